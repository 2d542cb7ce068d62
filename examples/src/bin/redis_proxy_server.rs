//! A proxy to Redis for clients authenticated by calls.
//!
//! Usage: `redis_proxy_server DATABASE [ADDRESS]`, until Ctrl-C. The database is `tcp://host:port` or the path of a Unix
//! socket, such as `unix:/run/redis/redis.sock`. Redis must have the user `ada` with the password `engine`, and no user
//! `default`: `--user default off --user ada on '>engine' '~ada:*' +@all`.

use std::{collections::HashMap, env, error::Error, time::Duration};

use examples::gate::{Account, Limits, Proxy, proto::gate_server::GateServer, redis::Redis};
use frpc::Server;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let database = env::args().nth(1).ok_or("say where the database is")?.parse()?;
    let address = env::args().nth(2).unwrap_or("tcp://127.0.0.1:50051".into());
    let account = Account { role: "ada".into(), password: "engine".into(), databases: vec!["redis".into()] };
    let accounts = HashMap::from([("ada's secret".to_owned(), account)]);

    let proxy = Proxy::new(Redis, database, accounts, Limits::default());
    let gate = GateServer::new(proxy.clone());
    let server = Server::builder().add_service(gate).router(proxy.clone()).wire(proxy.clone()).bind(address).await?;
    println!("listening on {}", server.local_addr());
    tokio::signal::ctrl_c().await?;
    server.shutdown(Duration::from_secs(5)).await;
    proxy.end(Duration::from_secs(5)).await;
    Ok(())
}
