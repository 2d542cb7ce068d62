//! The transports that calls go over.

use frpc::{Channel, Config, IntoEndpoint, Router, Services};
use support::{
    calls::{TestClient, TestServer, TestService, quiet, quiet_channel},
    settle,
};
use tokio::io::duplex;

/// Mounts tests once for each transport, such as `answers::frisbee::a_panic_is_answered`. A test takes the transport.
macro_rules! over_every_transport {
    ($($test:ident)*) => {
        over_every_transport! { in_process InProcess: $($test)* }
        over_every_transport! { frisbee Frisbee: $($test)* }
        over_every_transport! { extended Extended: $($test)* }
    };
    ($name:ident $transport:ident: $($test:ident)*) => {
        mod $name {
            $(
                #[test]
                fn $test() {
                    super::$test(crate::transport::Transport::$transport);
                }
            )*
        }
    };
}

/// Mounts tests once for each transport that carries everything that goes with a call.
macro_rules! over_full_transports {
    ($($test:ident)*) => {
        crate::transport::over_every_transport! { full_in_process InProcess: $($test)* }
        crate::transport::over_every_transport! { full_extended Extended: $($test)* }
    };
}

pub(crate) use {over_every_transport, over_full_transports};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    InProcess,
    /// As between plain peers.
    Frisbee,
    /// Frisbee between extended peers.
    Extended,
}

/// Services that are served over a transport, and a channel to them.
pub(crate) struct Served {
    pub(crate) channel: Channel,
    /// In process there is none.
    pub(crate) server: Option<frisbee::Server>,
}

impl Transport {
    /// Serves services without timers.
    pub(crate) async fn serve(self, services: impl Router + IntoEndpoint) -> Served {
        match self {
            Self::InProcess => Served { channel: Channel::in_process(services), server: None },
            Self::Frisbee | Self::Extended => {
                let config = Config { extended: self == Self::Extended, ..quiet() };
                let server = frisbee::Server::builder(services).config(config).without_listener();
                let (ours, theirs) = duplex(64 * 1024);
                server.attach(theirs);
                Served { channel: quiet_channel().attach(ours).await.unwrap(), server: Some(server) }
            }
        }
    }

    /// Serves a test service.
    pub(crate) async fn serve_and_connect(self) -> (TestService, Served, TestClient) {
        let service = TestService::default();
        let served = self.serve(Services::new().add_service(TestServer::new(service.clone()))).await;
        let client = TestClient::new(served.channel.clone());
        (service, served, client)
    }
}

impl Served {
    /// Asserts that whatever failed was a call and no connection, and that no call left anything behind.
    pub(crate) async fn assert_unharmed(&self) {
        settle().await;
        let Some(server) = &self.server else { return };
        assert_eq!(server.metrics().accepted, 1);
        assert!(server.connections().iter().all(|connection| connection.close_reason().is_none()));
        assert!(server.connections().iter().all(|connection| connection.metrics().streams == 0));
    }
}
