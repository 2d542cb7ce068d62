//! Mixes RPC and packets on one connection: subscribes by packet, makes a call, is called back, receives news by
//! packet, and ends with raw bytes on the same socket.
//!
//! Usage: `mixed_client [ADDRESS]`

use std::{env, error::Error};

use frpc::{Channel, Connection, Operation, Outcome, Packet, Request, Response, Router, Status};
use mixed::{
    MeasureRequest, Reading, SurveyRequest,
    board_client::BoardClient,
    station_server::{Station, StationServer},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    sync::mpsc,
};

/// Generated from `proto/mixed.proto`.
pub mod mixed {
    frpc::include_proto!("mixed");
}

const SUBSCRIBE: Operation = Operation::new(1000).unwrap();
const NEWS: Operation = Operation::new(1001).unwrap();
const GO_RAW: Operation = Operation::new(1002).unwrap();

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::args().nth(1).unwrap_or("tcp://127.0.0.1:50051".into());
    let (sender, mut inbox) = mpsc::unbounded_channel();
    let channel = Channel::builder()
        .add_service(StationServer::new(Thermometer { celsius: 21.5 }))
        .router(Packets(sender))
        .connect(address)
        .await?;
    let client = BoardClient::new(channel);
    let connection = client.channel().connection().ok_or("there is none within the process")?;

    connection.send(Packet::new(0, SUBSCRIBE, "harbour")).await?;
    expect(&mut inbox, SUBSCRIBE).await?;
    let reading = client.survey(SurveyRequest { place: "harbour".into() }).await?.into_inner();
    println!("the survey says {} °C", reading.celsius);
    let news = expect(&mut inbox, NEWS).await?;
    println!("the news say {}", String::from_utf8_lossy(&news.content));

    connection.send(Packet::new(0, GO_RAW, "no more packets, please")).await?;
    expect(&mut inbox, GO_RAW).await?;
    let mut raw = client.into_raw().await?;
    raw.skip_heartbeats();
    raw.write_all(b"plain bytes, no header\n").await?;
    let line = BufReader::new(raw).lines().next_line().await?.ok_or("the server closed the socket")?;
    println!("the socket says {line:?}");
    Ok(())
}

struct Thermometer {
    celsius: f64,
}

impl Station for Thermometer {
    async fn measure(&self, _: Request<MeasureRequest>) -> Result<Response<Reading>, Status> {
        println!("the server asks for a reading");
        Ok(Reading { celsius: self.celsius }.into())
    }
}

/// Forwards all packets other than answers and calls.
struct Packets(mpsc::UnboundedSender<Packet>);

impl Router for Packets {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        // Without a receiver, packets are no longer needed.
        let _ = self.0.send(packet);
        Outcome::Nothing
    }
}

async fn expect(inbox: &mut mpsc::UnboundedReceiver<Packet>, operation: Operation) -> Result<Packet, Box<dyn Error>> {
    let packet = inbox.recv().await.ok_or("the server closed the connection")?;
    if packet.operation == operation { Ok(packet) } else { Err(format!("unexpected: {packet:?}").into()) }
}
