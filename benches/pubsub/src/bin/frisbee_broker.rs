//! Our broker, with a limit high enough for the subscriptions of the load. `frisbee_broker [--engine ENGINE] ADDR`

use std::{
    error::Error,
    future::pending,
    io::{self, Write},
};

use frisbee::{Engine, Server};
use frisbee_pubsub::{Broker, BrokerLimits};
use load::{Arguments, parse_addr, process};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = Arguments::from_env();
    let engine: Engine = arguments.opt_value_from_str("--engine")?.unwrap_or_default();
    let addr = arguments.free_from_fn(parse_addr)?;
    process::raise_open_files_limit()?;
    let limits = BrokerLimits { subscriptions_max: 1_000_000, ..BrokerLimits::default() };
    let broker = Broker::builder().limits(limits).build();
    let server = Server::builder(broker.router()).engine(engine).bind(addr).await?;
    println!("listening on {}", server.local_addr());
    io::stdout().flush()?;
    pending().await
}
