//! A proxy to etcd for clients authenticated by calls.
//!
//! Usage: `etcd_proxy_server DATABASE [ADDRESS]`, until Ctrl-C. The database is `tcp://host:port`. Authentication in etcd
//! must be enabled, with the user `ada` and the password `engine`.

use std::{collections::HashMap, env, error::Error, time::Duration};

use examples::gate::{Account, Limits, Proxy, etcd::Etcd, proto::gate_server::GateServer};
use frpc::Server;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let database = env::args().nth(1).ok_or("say where the database is")?.parse()?;
    let address = env::args().nth(2).unwrap_or("tcp://127.0.0.1:50051".into());
    let account = Account { role: "ada".into(), password: "engine".into(), databases: vec!["etcd".into()] };
    let accounts = HashMap::from([("ada's secret".to_owned(), account)]);

    let proxy = Proxy::new(Etcd, database, accounts, Limits::default());
    let gate = GateServer::new(proxy.clone());
    let server = Server::builder().add_service(gate).router(proxy.clone()).wire(proxy.clone()).bind(address).await?;
    println!("listening on {}", server.local_addr());
    tokio::signal::ctrl_c().await?;
    server.shutdown(Duration::from_secs(5)).await;
    proxy.end(Duration::from_secs(5)).await;
    Ok(())
}
