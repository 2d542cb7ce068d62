//! A client of the etcd proxy: logs in by a call, opens etcd by another one, and continues with calls of etcd on the same
//! socket, by a client generated from etcd's own proto files.
//!
//! Usage: `etcd_proxy_client [ADDRESS]`

use std::{env, error::Error};

use examples::gate::{
    etcd::{
        self,
        proto::etcdserverpb::{PutRequest, RangeRequest, kv_client::KvClient},
    },
    proto::{LogInRequest, OpenDatabaseRequest, gate_client::GateClient},
};
use frpc::Channel;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::args().nth(1).unwrap_or("tcp://127.0.0.1:50051".into());
    let gate = GateClient::new(Channel::connect(address).await?);
    let role = gate.log_in(LogInRequest { token: "ada's secret".into() }).await?.into_inner().role;
    println!("logged in as {role}");
    let opened = gate.open_database(OpenDatabaseRequest { database: "etcd".into() }).await?.into_inner();

    // After its answer, the server expects HTTP/2.
    let kv = KvClient::new(etcd::channel(gate.into_raw().await?, opened).await?);
    let put = PutRequest { key: "ada/greeting".into(), value: "hello".into(), ..Default::default() };
    let revision = kv.put(put).await?.into_inner().header.map(|header| header.revision);
    println!("etcd is at revision {}", revision.unwrap_or_default());
    let range = RangeRequest { key: "ada/greeting".into(), ..Default::default() };
    for pair in kv.range(range).await?.into_inner().kvs {
        println!("{} | {}", String::from_utf8(pair.key)?, String::from_utf8(pair.value)?);
    }
    let refused = kv.range(RangeRequest { key: "secrets".into(), ..Default::default() }).await;
    println!("another key: {}", refused.err().ok_or("it should be refused")?.message());
    Ok(())
}
