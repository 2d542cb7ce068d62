//! A proxy to a PostgreSQL database for clients authenticated by calls.
//!
//! Usage: `postgres_proxy_server DATABASE [ADDRESS]`, until Ctrl-C. The database is `tcp://host:port` or the path of a
//! Unix socket, such as `unix:/run/postgresql/.s.PGSQL.5432`. It must accept the proxy without a password.

use std::{collections::HashMap, env, error::Error, time::Duration};

use examples::gate::{Account, Limits, Proxy, postgres::Postgres, proto::gate_server::GateServer};
use frpc::Server;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let database = env::args().nth(1).ok_or("say where the database is")?.parse()?;
    let address = env::args().nth(2).unwrap_or("tcp://127.0.0.1:50051".into());
    let (role, databases) = ("postgres".into(), vec!["postgres".into()]);
    let account = Account { role, password: String::new(), databases };
    let accounts = HashMap::from([("ada's secret".to_owned(), account)]);

    let proxy = Proxy::new(Postgres, database, accounts, Limits::default());
    // The proxy is a service, a router and a wire. On an untrusted network, add `.tls` too.
    let gate = GateServer::new(proxy.clone());
    let server = Server::builder().add_service(gate).router(proxy.clone()).wire(proxy.clone()).bind(address).await?;
    println!("listening on {}", server.local_addr());
    tokio::signal::ctrl_c().await?;
    server.shutdown(Duration::from_secs(5)).await;
    proxy.end(Duration::from_secs(5)).await;
    Ok(())
}
