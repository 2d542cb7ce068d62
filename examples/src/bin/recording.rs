//! Three services whose calls are recorded over gRPC, and replayed to their next version over frisbee.
//!
//! `recording record FOLDER` runs the system once and writes a recording per service. `recording serve [CENTS] [ADDRESS]`
//! serves the next version, with this price per unit. `frpc replay FOLDER/orders.frec --to ADDRESS --diff` compares.

use std::{env, error::Error, path::Path, time::Duration};

use frpc::{Channel, Layer, Request, Response, Server, Service, Status, Streaming};
use frpc_http::Http;
use frpc_record::Recorder;
use shop::{
    CreateOrder, Item, Order, Price, Progress, Reservation,
    orders_client::OrdersClient,
    orders_server::{Orders, OrdersServer},
    prices_client::PricesClient,
    prices_server::{Prices, PricesServer},
    stock_client::StockClient,
    stock_server::{Stock, StockServer},
};

/// Generated from `proto/shop.proto`.
pub mod shop {
    frpc::include_proto!("shop");
}

/// Prices by the number of units.
struct PriceList {
    cents_per_unit: u64,
}

impl Prices for PriceList {
    async fn quote(&self, request: Request<Item>) -> Result<Response<Price>, Status> {
        Ok(Price { cents: self.cents_per_unit * u64::from(request.get_ref().units) }.into())
    }
}

/// A stock with the same number of units of each item.
struct Shelves;

impl Stock for Shelves {
    async fn reserve(&self, request: Request<Item>) -> Result<Response<Reservation>, Status> {
        let Item { name, units } = request.into_inner();
        if units > UNITS_MAX {
            return Err(Status::failed_precondition(format!("there are {UNITS_MAX} units of {name}")));
        }
        Ok(Reservation { shelf: format!("shelf of {name}") }.into())
    }
}

/// The service in front of the two others.
struct Counter {
    prices: PricesClient,
    stock: StockClient,
}

impl Orders for Counter {
    async fn create(&self, request: Request<CreateOrder>) -> Result<Response<Order>, Status> {
        let CreateOrder { customer, item } = request.into_inner();
        let item = item.ok_or_else(|| Status::invalid_argument("an order needs an item"))?;
        let shelf = self.stock.reserve(item.clone()).await?.into_inner().shelf;
        let total = self.prices.quote(item.clone()).await?.into_inner();
        Ok(Order { id: format!("{customer}/{}", item.name), total: Some(total), shelf }.into())
    }

    async fn follow(&self, request: Request<Order>) -> Result<Response<Streaming<Progress>>, Status> {
        let shelf = request.into_inner().shelf;
        let states = ["paid".to_owned(), format!("taken from the {shelf}"), "sent".to_owned()];
        Ok(Streaming::from_iter(states.map(|state| Progress { state })).into())
    }
}

async fn serve_recorded(service: impl Service, recorder: impl Layer) -> Result<(Server, Channel), Box<dyn Error>> {
    let server =
        Server::builder().layer(recorder).wire(Http::new()).add_service(service).bind("tcp://127.0.0.1:0").await?;
    let address = server.local_addr().to_string().replacen("tcp://", "grpc://", 1);
    let channel = Channel::builder().transport(frpc_http::transport()).connect(address).await?;
    Ok((server, channel))
}

/// Runs three servers with a recorder each, and calls them over gRPC.
async fn record(folder: &Path) -> Result<(), Box<dyn Error>> {
    let recorder = |name: &str| Recorder::create(folder.join(name));
    let recorders = [recorder("orders.frec")?, recorder("prices.frec")?, recorder("stock.frec")?];
    let [orders, prices, stock] = recorders.clone();
    let (_prices, prices) = serve_recorded(PricesServer::new(PriceList { cents_per_unit: CENTS }), prices).await?;
    let (_stock, stock) = serve_recorded(StockServer::new(Shelves), stock).await?;
    let counter = Counter { prices: PricesClient::new(prices), stock: StockClient::new(stock) };
    let (_orders, channel) = serve_recorded(OrdersServer::new(counter), orders).await?;

    let orders = OrdersClient::new(channel);
    for (name, units) in [("cup", 2), ("plate", 6), ("sofa", UNITS_MAX + 1)] {
        let item = Some(Item { name: name.into(), units });
        match orders.create(CreateOrder { customer: "Ada".into(), item }).await {
            Ok(order) => {
                let mut progress = orders.follow(order.into_inner()).await?.into_inner();
                while let Some(Progress { state }) = progress.message().await? {
                    println!("{name}: {state}");
                }
            }
            Err(status) => println!("{name}: {status}"),
        }
    }
    for recorder in recorders {
        println!("{} calls recorded", recorder.close().calls);
    }
    Ok(())
}

/// Serves all three services in one process, without HTTP.
async fn serve(cents_per_unit: u64, address: &str) -> Result<(), Box<dyn Error>> {
    let counter = Counter {
        prices: PricesClient::new(Channel::in_process(PricesServer::new(PriceList { cents_per_unit }))),
        stock: StockClient::new(Channel::in_process(StockServer::new(Shelves))),
    };
    let server = Server::builder()
        .add_service(OrdersServer::new(counter))
        .add_service(PricesServer::new(PriceList { cents_per_unit }))
        .add_service(StockServer::new(Shelves))
        .bind(address)
        .await?;
    println!("listening on {}", server.local_addr());
    tokio::signal::ctrl_c().await?;
    server.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["record", folder] => record(Path::new(folder)).await,
        ["serve"] => serve(CENTS, ADDRESS).await,
        ["serve", cents] => serve(cents.parse()?, ADDRESS).await,
        ["serve", cents, address] => serve(cents.parse()?, address).await,
        _ => Err("usage: recording record FOLDER, or recording serve [CENTS] [ADDRESS]".into()),
    }
}

const ADDRESS: &str = "tcp://127.0.0.1:50051";
/// The price per unit of the recorded version.
const CENTS: u64 = 250;
const UNITS_MAX: u32 = 10;
