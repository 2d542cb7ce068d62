//! The rules of a call over every transport with sockets: deadlines, lost connections, and the end of a channel.

use frpc::{CallError, Code, Engine, Request};
use support::{
    MILLI, SECOND,
    calls::{TestClient, TestServer, TestService, Words, ask},
    in_real_time, until,
};

use super::wires::{EveryWire, SCHEMES, connect, schemes, serve};

async fn client(server: &EveryWire, (scheme, path, _): (&str, &str, bool)) -> TestClient {
    TestClient::new(connect(server, scheme, path).await)
}

#[test]
fn a_call_ends_at_its_deadline() {
    in_real_time(async {
        let service = TestService::default();
        let server = serve(Engine::Tokio, TestServer::new(service.clone())).await;
        for scheme in schemes() {
            let client = client(&server, scheme).await;
            let mut request = Request::new(Words { text: "wait".into() });
            request.set_timeout(50 * MILLI);
            let status = client.say(request).await.unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded, "{scheme:?}: {status}");
            // Whichever clock is faster, the error is that of this side.
            assert!(matches!(status.call_error(), Some(CallError::TimedOut { .. })), "{scheme:?}: {status:?}");
            assert_eq!(ask(&client, "hi").await.unwrap(), "hi", "{scheme:?}: the connection serves other calls");
        }
    });
}

#[test]
fn a_lost_connection_is_replaced_by_the_next_call() {
    in_real_time(async {
        let service = TestService::default();
        let server = serve(Engine::Tokio, TestServer::new(service.clone())).await;
        let mut clients = Vec::new();
        let mut waiting = Vec::new();
        for scheme in schemes() {
            let client = client(&server, scheme).await;
            assert_eq!(ask(&client, "hi").await.unwrap(), "hi", "{scheme:?}");
            let waits = client.clone();
            waiting.push(tokio::spawn(async move { ask(&waits, "wait").await }));
            service.gate.arrival().await;
            clients.push((scheme, client));
        }
        let stopped = server.stop();
        for (waiting, (scheme, _)) in waiting.into_iter().zip(&clients) {
            let status = waiting.await.unwrap().unwrap_err();
            let is_lost =
                matches!(status.call_error(), Some(CallError::ConnectionLost { may_have_executed: true, .. }));
            assert!(is_lost, "{scheme:?}: {status:?}");
        }
        // All at the same time: each channel makes several attempts to connect, with pauses.
        let calls = clients.iter().map(|(_, client)| {
            let client = client.clone();
            tokio::spawn(async move { ask(&client, "hi").await })
        });
        for (call, (scheme, _)) in calls.collect::<Vec<_>>().into_iter().zip(&clients) {
            let status = call.await.unwrap().unwrap_err();
            assert_eq!(status.code(), Code::Unavailable, "{scheme:?}: {status}");
            let is_unsent = match status.call_error() {
                // NATS is there and knows that there is no server.
                Some(CallError::ConnectionLost { may_have_executed: false, .. }) => scheme.0 == "nats",
                error => matches!(error, Some(CallError::Unreachable(_))),
            };
            assert!(is_unsent, "{scheme:?}: {status:?}");
        }
        let server = stopped.serve(Engine::Tokio, TestServer::new(service)).await;
        for (scheme, client) in &clients {
            let calls: Vec<_> = (0..10)
                .map(|_| {
                    let client = client.clone();
                    tokio::spawn(async move { ask(&client, "back").await })
                })
                .collect();
            for call in calls {
                assert_eq!(call.await.unwrap().unwrap(), "back", "{scheme:?}");
            }
        }
        drop(server);
    });
}

#[test]
fn a_connection_lost_between_calls_is_replaced() {
    in_real_time(async {
        let service = TestService::default();
        let mut server = serve(Engine::Tokio, TestServer::new(service.clone())).await;
        let mut clients = Vec::new();
        for scheme in schemes() {
            let client = client(&server, scheme).await;
            assert_eq!(ask(&client, "hi").await.unwrap(), "hi", "{scheme:?}");
            clients.push((scheme, client));
        }
        server = server.stop().serve(Engine::Tokio, TestServer::new(service)).await;
        for (scheme, client) in &clients {
            // A call in the moment of the loss may have been sent. It is repeated if it certainly was not.
            let first = match ask(client, "back").await {
                Err(status) => {
                    let is_lost =
                        matches!(status.call_error(), Some(CallError::ConnectionLost { may_have_executed: true, .. }));
                    assert!(is_lost, "{scheme:?}: {status:?}");
                    ask(client, "back").await
                }
                answered => answered,
            };
            assert_eq!(first.unwrap(), "back", "{scheme:?}");
        }
        drop(server);
    });
}

#[test]
fn dropping_the_last_channel_closes_the_connection() {
    in_real_time(async {
        let service = TestService::default();
        let server = serve(Engine::Tokio, TestServer::new(service)).await;
        for scheme in SCHEMES {
            let client = client(&server, scheme).await;
            let other = client.clone();
            drop(client);
            assert_eq!(ask(&other, "hi").await.unwrap(), "hi", "{scheme:?}");
            drop(other);
            until(|| server.metrics().connections == 0).await;
        }
        assert_eq!(server.shutdown(10 * SECOND).await, 0);
    });
}
