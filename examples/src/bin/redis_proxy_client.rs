//! A client of the Redis proxy: logs in by a call, opens Redis by another one, and passes the socket to the crate `redis`.
//!
//! Usage: `redis_proxy_client [ADDRESS]`

use std::{env, error::Error};

use examples::gate::proto::{LogInRequest, OpenDatabaseRequest, gate_client::GateClient};
use frpc::Channel;
use redis::{AsyncCommands, AsyncConnectionConfig, RedisConnectionInfo, RedisResult, aio::MultiplexedConnection};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::args().nth(1).unwrap_or("tcp://127.0.0.1:50051".into());
    let gate = GateClient::new(Channel::connect(address).await?);
    let role = gate.log_in(LogInRequest { token: "ada's secret".into() }).await?.into_inner().role;
    println!("logged in as {role}");
    gate.open_database(OpenDatabaseRequest { database: "redis".into() }).await?;

    // After its answer, the server expects the protocol of Redis. The proxy has logged in there already.
    let socket = gate.into_raw().await?;
    let (info, config) = (RedisConnectionInfo::default(), AsyncConnectionConfig::default());
    let (mut redis, session) = MultiplexedConnection::new_with_config(&info, socket, config).await?;
    tokio::spawn(session);
    let () = redis.set("ada:greeting", "hello").await?;
    let greeting: String = redis.get("ada:greeting").await?;
    println!("ada:greeting | {greeting}");
    let refused: RedisResult<String> = redis.get("secrets").await;
    println!("another key: {}", refused.err().ok_or("it should be refused")?);
    Ok(())
}
