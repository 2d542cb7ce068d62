//! Makes calls and pushes their measurements as one-way packets on the same connection.
//!
//! Usage: `metrics_client [ADDRESS [CALLS]]`

use std::{env, error::Error, mem, time::Instant};

use frpc::{Channel, Connection, Operation, Packet};
use hello_world::{HelloRequest, greeter_client::GreeterClient};

/// Generated from `proto/helloworld.proto`.
pub mod hello_world {
    frpc::include_proto!("helloworld");
}

const SAMPLES: Operation = Operation::new(1000).unwrap();

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::args().nth(1).unwrap_or("tcp://127.0.0.1:50051".into());
    let calls: u32 = env::args().nth(2).map_or(Ok(1000), |calls| calls.parse())?;
    let greeter = GreeterClient::new(Channel::connect(address).await?);
    let connection = greeter.channel().connection().ok_or("there is none within the process")?;

    let mut samples = Samples::default();
    for number in 1..=calls {
        let start = Instant::now();
        let reply = greeter.say_hello(HelloRequest { name: format!("number {number}") }).await?.into_inner();
        samples.add("call_us", start.elapsed().as_secs_f64() * 1e6);
        samples.add("reply_bytes", reply.message.len() as f64);
        if number % CALLS_PER_PACKET == 0 || number == calls {
            samples.push(&connection);
        }
    }
    println!("{calls} calls made, {} packets pushed, {} dropped", samples.pushed, samples.dropped);
    // Returns once all packets have been written.
    Ok(connection.flush().await?)
}

/// Samples for the next packet.
#[derive(Default)]
struct Samples {
    content: Vec<u8>,
    pushed: u32,
    dropped: u32,
}

impl Samples {
    fn add(&mut self, name: &str, value: f64) {
        self.content.extend(value.to_be_bytes());
        self.content.push(u8::try_from(name.len()).expect("names are short"));
        self.content.extend(name.bytes());
    }

    /// Sends the collected samples, or drops them if the connection is congested: calls are more important than their
    /// measurements.
    fn push(&mut self, connection: &Connection) {
        match connection.try_send(Packet::new(0, SAMPLES, mem::take(&mut self.content))) {
            Ok(_) => self.pushed += 1,
            Err(_) => self.dropped += 1,
        }
    }
}

const CALLS_PER_PACKET: u32 = 50;
