//! A replica of a service, announced in a NATS cluster. SIGTERM or Ctrl-C replaces it without losing a call.
//!
//! Usage: `fleet_replica NATS_ADDRESS NAME`. `fleet/run.sh` starts three of them, with a client.

use std::{env, error::Error, time::Duration};

use fleet::{
    GetStockRequest, Stock,
    warehouse_server::{Warehouse, WarehouseServer},
};
use frpc::{Request, Response, Server, Status};
use frpc_nats::{Announcement, NatsCluster};

/// Generated from `proto/fleet.proto`.
pub mod fleet {
    frpc::include_proto!("fleet");
}

struct Replica(String);

impl Warehouse for Replica {
    async fn get_stock(&self, request: Request<GetStockRequest>) -> Result<Response<Stock>, Status> {
        let item = request.into_inner().item;
        if item.is_empty() {
            return Err(Status::invalid_argument("an item needs a name"));
        }
        Ok(Stock { pieces: u32::from(item.as_bytes()[0]), replica: self.0.clone() }.into())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [nats, name] = &args[..] else { return Err("fleet_replica NATS_ADDRESS NAME".into()) };
    let service = WarehouseServer::new(Replica(name.clone()));
    let server = Server::builder().add_service(service).bind("tcp://127.0.0.1:0").await?;
    // If this process is killed, its entry expires after this time.
    let announcement = Announcement::builder("warehouse", server.local_addr())?.ttl(Duration::from_secs(2));
    let announcement = announcement.start(&NatsCluster::new(nats)).await?;
    println!("{name} is announced as {}", server.local_addr());

    termination().await?;
    // Channels leave first, and calls on their way are answered.
    announcement.withdraw().await;
    server.shutdown(Duration::from_secs(5)).await;
    println!("{name} is shut down");
    Ok(())
}

#[cfg(unix)]
async fn termination() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        pressed = tokio::signal::ctrl_c() => pressed,
    }
}

#[cfg(not(unix))]
async fn termination() -> std::io::Result<()> {
    tokio::signal::ctrl_c().await
}
