//! A client of the PostgreSQL proxy: logs in by a call, opens a database by another one, and passes the socket to
//! `tokio-postgres`.
//!
//! Usage: `postgres_proxy_client [ADDRESS [QUERY]]`

use std::{env, error::Error};

use examples::gate::proto::{LogInRequest, OpenDatabaseRequest, gate_client::GateClient};
use frpc::Channel;
use tokio_postgres::{Config, NoTls, SimpleQueryMessage};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::args().nth(1).unwrap_or("tcp://127.0.0.1:50051".into());
    let query = env::args().nth(2).unwrap_or("SELECT current_user, version()".into());
    let gate = GateClient::new(Channel::connect(address).await?);

    let database = "postgres".to_owned();
    let refused = gate.open_database(OpenDatabaseRequest { database: database.clone() }).await;
    println!("without logging in: {}", refused.err().ok_or("it should be refused")?);

    let role = gate.log_in(LogInRequest { token: "ada's secret".into() }).await?.into_inner().role;
    println!("logged in as {role}");
    gate.open_database(OpenDatabaseRequest { database: database.clone() }).await?;

    // After its answer, the server expects PostgreSQL's protocol. TLS, if any, continues below it.
    let socket = gate.into_raw().await?;
    let (client, session) = Config::new().user(role).dbname(database).connect_raw(socket, NoTls).await?;
    let session = tokio::spawn(session);
    for message in client.simple_query(&query).await? {
        if let SimpleQueryMessage::Row(row) = message {
            let values: Vec<_> = (0..row.len()).map(|column| row.get(column).unwrap_or("NULL")).collect();
            println!("{}", values.join(" | "));
        }
    }
    drop(client); // Sends PostgreSQL's terminate message.
    Ok(session.await??)
}
