//! Channels whose reconnection takes long.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use frpc::{CallError, Channel, Connection, Outcome, Packet, Router, Server, Status};
use support::{
    SECOND, in_virtual_time,
    interop::{
        Service,
        schema::{Text, interop_client::InteropClient, interop_server::InteropServer},
    },
    localhost,
    sockets::{IDENTITY, Kind, unused_address},
};
use tokio::time::{Instant, sleep};

/// A router that passes each connection on to a server, after a delay.
#[derive(Clone)]
struct Door {
    server: Arc<Server>,
    wait: Arc<AtomicU64>,
}

impl Router for Door {
    async fn route(&self, _: Packet, _: &Connection) -> Outcome {
        Outcome::Nothing
    }

    fn event(&self, connection: &Connection, event: frisbee::Event<'_>) {
        let frisbee::Event::Opened = event else { return };
        let (raw, server) = (connection.takeover(), self.server.clone());
        let wait = Duration::from_secs(self.wait.load(Ordering::Relaxed));
        tokio::spawn(async move {
            let raw = raw.await.unwrap();
            sleep(wait).await;
            server.attach(raw);
        });
    }
}

async fn upper(channel: &Channel) -> Result<(), Status> {
    InteropClient::new(channel.clone()).fail(Text { text: "as asked".into() }).await.map(|_| ())
}

#[test]
fn calls_share_a_slow_connection_attempt() {
    in_virtual_time(async {
        let server = Server::builder().tls(IDENTITY.server()).add_service(InteropServer::new(Service));
        let server = Arc::new(server.without_listener().unwrap());
        let door = Door { server: server.clone(), wait: Arc::default() };
        let wait = door.wait.clone();
        let port = frisbee::Server::builder(door).bind(unused_address(Kind::Mem)).await.unwrap();
        let channel = Channel::builder().tls_with_name(IDENTITY.client(), localhost());
        let channel = channel.connect_timeout(10 * SECOND).timeout(SECOND).connect(port.local_addr()).await.unwrap();
        assert_eq!(upper(&channel).await.unwrap_err().message(), "as asked");
        for again in 2..5 {
            wait.store(3, Ordering::Relaxed);
            channel.connection().unwrap().close();
            channel.connection().unwrap().closed().await;
            let since = Instant::now();
            let calls: Vec<_> = (0..100)
                .map(|number| {
                    let channel = channel.clone();
                    tokio::spawn(async move {
                        sleep(number * SECOND / 20).await;
                        (Instant::now(), upper(&channel).await.unwrap_err())
                    })
                })
                .collect();
            for call in calls {
                let (begun, status) = call.await.unwrap();
                if begun < since + 2 * SECOND - SECOND / 20 {
                    assert!(matches!(status.call_error(), Some(CallError::NotSent { .. })), "{status}");
                } else if begun > since + 2 * SECOND + SECOND / 20 {
                    assert_eq!(status.message(), "as asked");
                }
            }
            assert_eq!(port.metrics().accepted, again);
        }
    });
}
