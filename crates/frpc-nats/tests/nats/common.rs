//! Servers and channels of the tests.

use frpc::{Channel, IntoEndpoint};
use frpc_nats::{NatsCluster, NatsServer};
use futures_util::StreamExt;
use support::NatsProgram;

/// A NATS server with a server of frpc.
pub(crate) struct Setup {
    pub(crate) nats: support::NatsServer,
    pub(crate) server: NatsServer,
}

impl Setup {
    pub(crate) async fn start(program: NatsProgram, services: impl IntoEndpoint) -> Self {
        Self::start_with(program, "", services).await
    }

    pub(crate) async fn start_with(program: NatsProgram, settings: &str, services: impl IntoEndpoint) -> Self {
        let nats = program.start("one", settings).await;
        let server = NatsServer::builder("test").serve(&cluster(&nats), services).await.unwrap();
        Self { nats, server }
    }

    pub(crate) async fn connect(&self) -> Channel {
        connect(&self.nats).await
    }
}

pub(crate) fn cluster(nats: &support::NatsServer) -> NatsCluster {
    NatsCluster::new(nats.url())
}

/// Returns a channel through NATS.
pub(crate) async fn connect(nats: &support::NatsServer) -> Channel {
    let address = format!("{}/test", nats.url());
    Channel::builder().transport(frpc_nats::transport()).connect(address).await.unwrap()
}

/// Waits until NATS has processed everything that this client has sent.
pub(crate) async fn round_trip(client: &async_nats::Client) {
    let inbox = client.new_inbox();
    let mut echo = client.subscribe(inbox.clone()).await.unwrap();
    client.publish(inbox, "".into()).await.unwrap();
    echo.next().await.unwrap();
}
