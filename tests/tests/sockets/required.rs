//! Required fields on every wire: a peer without the option lacks one.

use frpc::{Address, Channel, Code, Engine, Request, Response, Status, codec::Format};
use frpc_http::ClientSettings;
use support::{
    contracts::{optional, required},
    in_real_time,
};

use crate::wires::{connect, schemes, serve};

/// A server that checks requests.
struct Strict;

impl required::orders_server::Orders for Strict {
    async fn place(&self, request: Request<required::Order>) -> Result<Response<required::Receipt>, Status> {
        let required::Order { id, customer } = request.into_inner();
        Ok(Response::new(required::Receipt { id, customer }))
    }
}

/// A server whose receipts lack whatever the order lacks.
struct Lax;

impl optional::orders_server::Orders for Lax {
    async fn place(&self, request: Request<optional::Order>) -> Result<Response<optional::Receipt>, Status> {
        let optional::Order { id, .. } = request.into_inner();
        Ok(Response::new(optional::Receipt { id, customer: None }))
    }
}

fn order(address: Option<optional::Address>) -> optional::Order {
    let customer = Some(optional::Customer { name: "Ada".to_owned(), address });
    optional::Order { id: "1".to_owned(), customer }
}

async fn check(channel: Channel, scheme: &str) {
    let orders = optional::orders_client::OrdersClient::new(channel);
    let whole = order(Some(optional::Address { city: "Oslo".to_owned() }));
    let receipt = orders.place(whole.clone()).await.unwrap().into_inner();
    assert_eq!(receipt.customer, whole.customer, "{scheme}");
    for (order, path) in [
        (order(None), "Order.customer.address is required"),
        (optional::Order { customer: None, ..whole }, "Order.customer is required"),
    ] {
        let status = orders.place(order).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{scheme}: {status}");
        assert!(status.message().contains(path), "{scheme}: {status}");
    }
}

#[test]
fn a_request_without_a_required_field_is_refused_on_every_wire() {
    in_real_time(async {
        let server = serve(Engine::Tokio, required::orders_server::OrdersServer::new(Strict)).await;
        for (scheme, path, _) in schemes() {
            check(connect(&server, scheme, path).await, scheme).await;
        }
        let Address::Tcp(address) = server.local_addr() else { panic!("the server listens on TCP") };
        for scheme in ["http", "twirp+http"] {
            let settings = ClientSettings { format: Format::Json, ..ClientSettings::default() };
            let channel = Channel::builder().transport(frpc_http::Client::new().settings(settings));
            check(channel.connect(format!("{scheme}://{address}")).await.unwrap(), scheme).await;
        }
    });
}

#[test]
fn a_response_without_a_required_field_is_a_fault_of_the_server() {
    in_real_time(async {
        let server = serve(Engine::Tokio, optional::orders_server::OrdersServer::new(Lax)).await;
        for (scheme, path, _) in schemes() {
            let orders = required::orders_client::OrdersClient::new(connect(&server, scheme, path).await);
            let status = orders.place(required::Order::default()).await.unwrap_err();
            assert_eq!(status.code(), Code::Internal, "{scheme}: {status}");
            assert!(status.message().contains("Receipt.customer is required"), "{scheme}: {status}");
        }
    });
}
