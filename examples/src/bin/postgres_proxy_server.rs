//! A server through which clients reach a PostgreSQL database once they have authenticated by calls.
//! `postgres_proxy_server DATABASE [ADDRESS]`, until Ctrl-C. The database is `tcp://host:port` or the path of a Unix socket,
//! `unix:/run/postgresql/.s.PGSQL.5432`, and must let the proxy in without a password.

use std::{collections::HashMap, env, error::Error, time::Duration};

use examples::postgres::{Account, Limits, Proxy, gate::gate_server::GateServer};
use frpc::Server;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let database = env::args().nth(1).ok_or("say where the database is")?.parse()?;
    let address = env::args().nth(2).unwrap_or("tcp://127.0.0.1:50051".into());
    let account = Account { role: "postgres".into(), databases: vec!["postgres".into()] };
    let accounts = HashMap::from([("ada's secret".to_owned(), account)]);

    let proxy = Proxy::new(database, accounts, Limits::default());
    // As a service, a router and a wire. Where others are on the network, `.tls` belongs here too.
    let gate = GateServer::new(proxy.clone());
    let server = Server::builder().add_service(gate).router(proxy.clone()).wire(proxy.clone()).bind(address).await?;
    println!("listening on {}", server.local_addr());
    tokio::signal::ctrl_c().await?;
    server.shutdown(Duration::from_secs(5)).await;
    proxy.end(Duration::from_secs(5)).await;
    Ok(())
}
