//! Answers every packet with itself, for `load_client` to measure.
//!
//! `load_server ADDR [--engine tokio|per-core] [--mode inline|ordered|spawn|limit:N] [--layer frisbee] [--sleep-us N]`

use std::{error::Error, future, time::Duration};

use frisbee::{Connection, Dispatch, Engine, Outcome, Packet, Router, Server};
use load::{Arguments, process};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    process::raise_open_files_limit()?;
    let mut arguments = Arguments::from_env();
    let engine = arguments.opt_value_from_fn("--engine", parse_engine)?.unwrap_or_default();
    let dispatch = arguments.opt_value_from_fn("--mode", parse_mode)?.unwrap_or_default();
    arguments.opt_value_from_fn("--layer", parse_layer)?;
    let sleep = Duration::from_micros(arguments.opt_value_from_str("--sleep-us")?.unwrap_or(0));
    let address: String = arguments.free_from_str()?;
    if let Some(unknown) = arguments.finish().first() {
        return Err(format!("unexpected {unknown:?}").into());
    }

    let server = Server::builder(Echo { sleep }).engine(engine).dispatch(dispatch).bind(address).await?;
    println!("listening on {}", server.local_addr().to_string().trim_start_matches("tcp://"));
    future::pending().await
}

struct Echo {
    sleep: Duration,
}

impl Router for Echo {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        if !self.sleep.is_zero() {
            tokio::time::sleep(self.sleep).await;
        }
        Outcome::Reply(packet)
    }
}

fn parse_engine(text: &str) -> Result<Engine, String> {
    match text {
        "tokio" => Ok(Engine::Tokio),
        "per-core" => Ok(Engine::PerCore),
        _ => Err(format!("no engine {text:?}: tokio or per-core")),
    }
}

fn parse_mode(text: &str) -> Result<Dispatch, String> {
    match text {
        "inline" => Ok(Dispatch::InPlace),
        "ordered" => Ok(Dispatch::Ordered),
        "spawn" => Ok(Dispatch::Spawned),
        _ => text
            .strip_prefix("limit:")
            .and_then(|limit| limit.parse().ok())
            .map(Dispatch::Limited)
            .ok_or_else(|| format!("no mode {text:?}: inline, ordered, spawn or limit:N")),
    }
}

fn parse_layer(text: &str) -> Result<(), String> {
    if text == "frisbee" { Ok(()) } else { Err(format!("no layer {text:?}: frisbee")) }
}
