//! A server with a proxy, and its clients.

use std::{collections::HashMap, time::Duration};

use examples::gate::{
    Account, Limits, Protocol, Proxy,
    proto::{
        LogInRequest, OpenDatabaseRequest, OpenDatabaseResponse, gate_client::GateClient, gate_server::GateServer,
    },
};
use frpc::{Address, Channel, Raw, Server, Status};
use support::Identity;

/// A server with the proxy, for the user `ada`.
pub(super) struct Gateway<P> {
    pub(super) proxy: Proxy<P>,
    pub(super) server: Server,
    identity: Option<Identity>,
}

impl<P: Protocol> Gateway<P> {
    pub(super) async fn serve(protocol: P, database: Address, limits: Limits, identity: Option<Identity>) -> Self {
        let databases = ["postgres", "redis", "etcd"].map(str::to_owned).to_vec();
        let account = Account { role: "ada".into(), password: PASSWORD.into(), databases };
        let proxy = Proxy::new(protocol, database, HashMap::from([(TOKEN.to_owned(), account)]), limits);
        let server = Server::builder().add_service(GateServer::new(proxy.clone())).router(proxy.clone());
        let mut server = server.wire(proxy.clone());
        if let Some(identity) = &identity {
            server = server.tls(identity.server());
        }
        Self { proxy, server: server.bind("tcp://127.0.0.1:0").await.unwrap(), identity }
    }

    pub(super) async fn dial(&self) -> GateClient {
        let mut channel = Channel::builder();
        if let Some(identity) = &self.identity {
            channel = channel.tls_with_name(identity.client(), "localhost");
        }
        GateClient::new(channel.connect(self.server.local_addr()).await.unwrap())
    }

    /// Returns a connection that has logged in and opened a database.
    pub(super) async fn opened(&self, database: &str) -> Raw {
        let gate = self.dial().await;
        log_in(&gate).await.unwrap();
        open(&gate, database).await.unwrap();
        gate.into_raw().await.unwrap()
    }

    pub(super) async fn end(self, limit: Duration) {
        self.server.shutdown(limit).await;
        self.proxy.end(limit).await;
    }
}

pub(super) async fn log_in(gate: &GateClient) -> Result<String, Status> {
    Ok(gate.log_in(LogInRequest { token: TOKEN.into() }).await?.into_inner().role)
}

pub(super) async fn open(gate: &GateClient, database: &str) -> Result<OpenDatabaseResponse, Status> {
    Ok(gate.open_database(OpenDatabaseRequest { database: database.into() }).await?.into_inner())
}

const TOKEN: &str = "ada's secret";
/// The password of the user at the databases.
pub(super) const PASSWORD: &str = "engine";
