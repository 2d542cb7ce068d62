//! RPC and custom packets on one port.
//!
//! Clients subscribe to places by packet, and call for a survey of a place. The server then calls the client back for
//! its reading and publishes it by packet. Finally, a connection becomes a raw socket.
//!
//! Usage: `mixed_server [ADDRESS]`, until Ctrl-C.

use std::{
    env,
    error::Error,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use frpc::{
    Connection, HandlerTable, Operation, Outcome, Packet, Raw, Request, Response, Server, Status, Unimplemented,
};
use mixed::{
    MeasureRequest, Reading, SurveyRequest,
    board_server::{Board, BoardServer},
    station_client::StationClient,
};
use tokio::io::AsyncWriteExt;

/// Generated from `proto/mixed.proto`.
pub mod mixed {
    frpc::include_proto!("mixed");
}

// Far above the operation numbers of methods, which start at 10.
const SUBSCRIBE: Operation = Operation::new(1000).unwrap();
const NEWS: Operation = Operation::new(1001).unwrap();
const GO_RAW: Operation = Operation::new(1002).unwrap();

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::args().nth(1).unwrap_or("tcp://127.0.0.1:50051".into());
    let subscribers = Arc::new(Subscribers::default());
    let packets = HandlerTable::over(Unimplemented)
        .on_with_connection(SUBSCRIBE, {
            let subscribers = subscribers.clone();
            move |packet: Packet, connection| {
                subscribers.add(packet.content.clone().into_bytes(), connection);
                async { packet } // The same packet is the acknowledgement.
            }
        })
        .on_with_connection(GO_RAW, {
            let subscribers = subscribers.clone();
            move |packet, connection| {
                subscribers.remove(&connection);
                go_raw(packet, connection)
            }
        });
    let board = BoardServer::new(Bulletin { subscribers });
    let server = Server::builder().add_service(board).router(packets).bind(address).await?;
    println!("listening on {}", server.local_addr());
    tokio::signal::ctrl_c().await?;
    server.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

struct Bulletin {
    subscribers: Arc<Subscribers>,
}

impl Board for Bulletin {
    async fn survey(&self, request: Request<SurveyRequest>) -> Result<Response<Reading>, Status> {
        // The caller also serves calls, on the same connection.
        let station = StationClient::new(request.channel()?);
        let reading = station.measure(MeasureRequest {}).await?.into_inner();
        let place = request.into_inner().place;
        let heard = self.subscribers.publish(&place, format!("{} °C", reading.celsius));
        println!("{} °C at the {place}, told to {heard}", reading.celsius);
        Ok(reading.into())
    }
}

/// The subscribers of each place.
#[derive(Default)]
struct Subscribers(Mutex<Vec<(Bytes, Connection)>>);

impl Subscribers {
    fn add(&self, place: Bytes, connection: Connection) {
        self.0.lock().expect("never poisoned").push((place, connection));
    }

    fn remove(&self, connection: &Connection) {
        self.0.lock().expect("never poisoned").retain(|(_, subscriber)| subscriber != connection);
    }

    /// Sends news to all subscribers of a place and returns their number.
    fn publish(&self, place: &str, news: String) -> usize {
        let news = Packet::new(0, NEWS, news);
        let mut subscribers = self.0.lock().expect("never poisoned");
        subscribers.retain(|(_, subscriber)| subscriber.close_reason().is_none());
        // The packets share their content. A slow subscriber misses this one.
        let concerned = subscribers.iter().filter(|(known, _)| known == place.as_bytes());
        concerned.filter(|(_, subscriber)| subscriber.try_send(news.clone()).is_ok()).count()
    }
}

/// Acknowledges the packet and takes over the socket.
async fn go_raw(packet: Packet, connection: Connection) -> Outcome {
    // It is written before the takeover completes, and no frisbee bytes follow it.
    if connection.try_send(packet).is_err() {
        return Outcome::Close;
    }
    let taken = connection.takeover();
    tokio::spawn(async move { echo(taken.await?).await.map_err(Box::<dyn Error + Send + Sync>::from) });
    Outcome::Nothing
}

async fn echo(mut raw: Raw) -> io::Result<()> {
    raw.skip_heartbeats();
    println!("took the socket over, echoing bytes");
    let (mut reader, mut writer) = tokio::io::split(raw);
    tokio::io::copy(&mut reader, &mut writer).await?;
    writer.shutdown().await
}
