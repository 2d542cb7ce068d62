//! The Autobahn suite, against a WebSocket that repeats what it gets.

use bytes::Bytes;
use frpc::Server;
use frpc_http::{Http, HttpSettings, Mount, MountContext};
use frpc_websocket::WebSocket;
use futures_util::future::{BoxFuture, FutureExt};
use http::{Request, Response};
use support::{foreign_program, in_real_time_within};

use crate::{LIMIT, port, run};

/// Repeats all messages.
struct Echo;

impl Mount for Echo {
    fn respond<'a>(&'a self, _: MountContext, _: Request<Bytes>) -> BoxFuture<'a, Response<Bytes>> {
        async { Response::new(Bytes::new()) }.boxed()
    }

    fn subprotocols(&self) -> &[&'static str] {
        &["echo"]
    }

    fn websocket<'a>(&'a self, _: MountContext, mut socket: WebSocket) -> BoxFuture<'a, ()> {
        async move {
            while let Some(Ok(message)) = socket.next().await {
                if socket.send(message.kind, &message.data).await.is_err() {
                    return;
                }
            }
        }
        .boxed()
    }
}

#[test]
fn every_autobahn_case_passes() {
    let Some(suite) = foreign_program("autobahn") else { return };
    in_real_time_within(LIMIT, async {
        let server = Server::builder().wire(
            Http::new()
                .settings(HttpSettings { message_len_max: 32 * 1024 * 1024, ..HttpSettings::default() })
                .mount("/", Echo),
        );
        let server = server.bind("tcp://127.0.0.1:0").await.unwrap();
        let report = std::env::temp_dir().join(format!("autobahn-{}", std::process::id()));
        let said =
            run(&suite, &[&format!("ws://127.0.0.1:{}", port(&server)), report.to_str().unwrap()]).await.unwrap();
        assert!(said.contains("247 cases, 0 of them bad"), "{said}");
        std::fs::remove_dir_all(report).unwrap();
    });
}
