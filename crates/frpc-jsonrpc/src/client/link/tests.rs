use std::time::Duration;

use frpc::{Code, Method};
use futures_util::StreamExt;
use support::{SECOND, in_virtual_time, settle};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};

use super::{super::bytes::JsonStream, *};

const SAY: Method = Method::unary("a.A", "Say", 0);
const WATCH: Method = Method::server_streaming("a.A", "Watch", 1);

/// Returns a link and the server side of its connection.
fn link(buffer: usize) -> (Arc<JsonRpcLink>, BufReader<DuplexStream>) {
    let (ours, theirs) = duplex(buffer);
    (Arc::new(JsonRpcLink::new(JsonStream::new(ours, 1 << 20), 1 << 20)), BufReader::new(theirs))
}

fn calling(link: &Arc<JsonRpcLink>, message: &str, time: Duration) -> tokio::task::JoinHandle<Result<Bytes, Status>> {
    let (link, message) = (link.clone(), message.to_owned());
    tokio::spawn(async move { link.unary(&SAY, message.as_bytes(), Deadline::after(time)).await })
}

async fn line(server: &mut BufReader<DuplexStream>) -> String {
    let mut line = String::new();
    server.read_line(&mut line).await.unwrap();
    line
}

fn may_have_executed(status: &Status) -> Option<bool> {
    match status.call_error() {
        Some(CallError::ConnectionLost { may_have_executed, .. }) => Some(*may_have_executed),
        _ => None,
    }
}

#[test]
fn an_error_without_an_id_fails_all_pending_calls() {
    let error =
        br#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"no","data":{"code":"resource_exhausted"}},"id":null}"#;
    in_virtual_time(async {
        let (one, mut server) = link(1 << 16);
        let call = calling(&one, "{}", SECOND);
        line(&mut server).await;
        server.write_all(error).await.unwrap();
        assert_eq!(call.await.unwrap().unwrap_err().code(), Code::ResourceExhausted);
        assert!(one.is_over());

        let (several, mut server) = link(1 << 16);
        let calls = [calling(&several, "{}", SECOND), calling(&several, "{}", SECOND)];
        line(&mut server).await;
        line(&mut server).await;
        server.write_all(error).await.unwrap();
        for call in calls {
            let status = call.await.unwrap().unwrap_err();
            assert_eq!((status.code(), may_have_executed(&status)), (Code::Unavailable, Some(true)), "{status}");
        }
    });
}

#[test]
fn calls_end_with_the_runtime_of_their_connection() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (link, _server) = runtime.block_on(async { link(1 << 16) });
    in_virtual_time(async {
        let call = calling(&link, "{}", SECOND);
        settle().await;
        runtime.shutdown_background();
        let status = call.await.unwrap().unwrap_err();
        assert_eq!(may_have_executed(&status), Some(false), "{status}");
        link.ended().await;
        assert!(link.is_over());
    });
}

#[test]
fn an_invalid_or_oversized_message_fails_only_its_call() {
    in_virtual_time(async {
        let (link, mut server) = link(1 << 16);
        let other = calling(&link, "{}", SECOND);
        line(&mut server).await;
        for message in ["{", "{]", "{} {}", "[1,]", "{\"a\":\"\u{1}\"}", &"[".repeat(200)] {
            let status = calling(&link, message, SECOND).await.unwrap().unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{message}");
        }
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20));
        let status = calling(&link, &long, SECOND).await.unwrap().unwrap_err();
        assert!(matches!(status.call_error(), Some(CallError::MessageTooLarge { .. })), "{status}");
        server.write_all(br#"{"jsonrpc":"2.0","result":{},"id":1}"#).await.unwrap();
        assert_eq!(&*other.await.unwrap().unwrap(), b"{}");
        let call = calling(&link, "", SECOND);
        assert!(!line(&mut server).await.contains("params"), "an empty message is a call without params");
        call.abort();
    });
}

#[test]
fn a_subscription_abandoned_before_its_answer_is_ended() {
    in_virtual_time(async {
        let (link, mut server) = link(1 << 16);
        let error = link.subscribe(&WATCH, b"{}", Deadline::after(SECOND)).await.unwrap_err();
        assert_eq!(error.code(), Code::DeadlineExceeded);
        line(&mut server).await;
        server.write_all(br#"{"jsonrpc":"2.0","result":"7","id":1}"#).await.unwrap();
        let said = line(&mut server).await;
        assert!(said.contains("rpc.unsubscribe") && said.contains("\"7\""), "{said}");
        assert!(link.0.state().waiting.is_empty() && link.0.state().subscriptions.is_empty());
        assert_eq!(link.0.state().given_up, 0);
    });
}

/// Subscribes, and answers with this id of a subscription.
async fn subscribe(
    link: &JsonRpcLink,
    server: &mut BufReader<DuplexStream>,
    id: &str,
) -> Result<Streaming<Bytes>, Status> {
    let answering = async {
        let request = line(server).await;
        let (_, call) = request.trim_end().trim_end_matches('}').rsplit_once(':').unwrap();
        let answer = format!("{{\"jsonrpc\":\"2.0\",\"result\":{id},\"id\":{call}}}");
        server.write_all(answer.as_bytes()).await.unwrap();
    };
    tokio::join!(link.subscribe(&WATCH, b"{}", Deadline::after(SECOND)), answering).0
}

#[test]
fn an_ended_stream_leaves_its_subscription_to_the_next_one() {
    in_virtual_time(async {
        let (link, mut server) = link(1 << 16);
        let first = subscribe(&link, &mut server, "7").await.unwrap();
        server.write_all(br#"{"method":"x","params":{"subscription":7,"end":true}}"#).await.unwrap();
        let mut second = subscribe(&link, &mut server, "7").await.unwrap();
        drop(first);
        server.write_all(br#"{"method":"x","params":{"subscription":7,"result":[1]}}"#).await.unwrap();
        assert_eq!(&*second.next().await.unwrap().unwrap(), b"[1]");
    });
}

#[test]
fn a_subscription_given_to_two_streams_ends_both() {
    in_virtual_time(async {
        for is_given_up in [false, true] {
            let (link, mut server) = link(1 << 16);
            let mut first = subscribe(&link, &mut server, "7").await.unwrap();
            if is_given_up {
                link.subscribe(&WATCH, b"{}", Deadline::after(SECOND)).await.unwrap_err();
            }
            let second = subscribe(&link, &mut server, "7").await;
            assert_eq!(second.err().map(|status| status.code()), Some(Code::Internal));
            assert_eq!(first.next().await.unwrap().unwrap_err().code(), Code::Internal);
            assert!(link.is_over());
        }
    });
}

/// Returns a notification of the subscription 7, with a message of `len` bytes and `more` members.
fn notification(len: usize, more: &str) -> String {
    let text = "x".repeat(len - 2);
    format!(r#"{{"method":"x","params":{{"subscription":7,"result":"{text}"}}{more}}}"#)
}

#[test]
fn a_stream_with_too_many_unread_bytes_ends() {
    const LEN: usize = 1 << 19;
    in_virtual_time(async {
        for is_slow in [false, true] {
            let (link, mut server) = link(1 << 16);
            let mut stream = subscribe(&link, &mut server, "7").await.unwrap();
            // The last message arrives one byte below the limit.
            let mut lens = vec![LEN; MESSAGES_LEN_MAX / LEN + 1];
            lens[0] -= 1;
            for len in &lens {
                server.write_all(notification(*len, "").as_bytes()).await.unwrap();
            }
            settle().await;
            let mut read = Vec::new();
            if !is_slow {
                for _ in &lens {
                    read.push(stream.next().await.unwrap().unwrap().len());
                }
            }
            server.write_all(notification(2, "").as_bytes()).await.unwrap();
            settle().await;
            while read.len() < lens.len() {
                read.push(stream.next().await.unwrap().unwrap().len());
            }
            assert_eq!(read, lens);
            match stream.next().await.unwrap() {
                Ok(message) => assert!(!is_slow && message == "\"\""),
                Err(status) => {
                    assert!(is_slow && status.code() == Code::ResourceExhausted, "{status}");
                    assert!(line(&mut server).await.contains("rpc.unsubscribe"));
                }
            }
        }
    });
}

#[test]
fn unread_messages_keep_no_other_bytes_in_memory() {
    in_virtual_time(async {
        let (link, mut server) = link(1 << 16);
        let mut stream = subscribe(&link, &mut server, "7").await.unwrap();
        let more = format!(r#","more":"{}""#, "x".repeat(100_000));
        server.write_all(notification(10, &more).as_bytes()).await.unwrap();
        let message = stream.next().await.unwrap().unwrap();
        assert_eq!(message.try_into_mut().map(|message| message.capacity()), Ok(10));
    });
}

#[test]
fn only_a_server_that_never_spoke_json_rpc_fails_the_next_call() {
    in_virtual_time(async {
        for (said, is_foreign) in [("<html>", true), ("{} <html>", false)] {
            let (link, mut server) = link(1 << 16);
            server.write_all(said.as_bytes()).await.unwrap();
            link.ended().await;
            assert_eq!(link.take_mismatch().is_some(), is_foreign, "{said}");
        }
    });
}

#[test]
fn queued_requests_are_bounded_and_reported_as_unsent() {
    in_virtual_time(async {
        let (link, server) = link(1000);
        let message = format!("{{\"a\":\"{}\"}}", "x".repeat(10_000));
        let calls: Vec<_> = (0..300).map(|_| calling(&link, &message, SECOND)).collect();
        settle().await;
        let queued: usize = link.0.state().outgoing.iter().map(|message| message.text.len()).sum();
        assert!(queued > 900_000 && queued <= QUEUE_LEN_MAX as usize, "{queued}");
        let mut unsent = 0;
        for call in calls {
            match call.await.unwrap().unwrap_err().call_error() {
                Some(CallError::NotSent { .. }) => unsent += 1,
                Some(CallError::TimedOut { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(unsent >= 290, "{unsent}");
        assert!(link.0.state().outgoing.is_empty(), "what was given up is not sent later");
        drop(server);
    });
}

#[test]
fn unsent_calls_are_safe_to_retry_after_a_loss() {
    in_virtual_time(async {
        let (link, server) = link(1000);
        let message = format!("{{\"a\":\"{}\"}}", "x".repeat(100_000));
        let calls: Vec<_> = (0..5).map(|_| calling(&link, &message, SECOND)).collect();
        settle().await;
        drop(server);
        let mut executed = Vec::new();
        for call in calls {
            executed.push(may_have_executed(&call.await.unwrap().unwrap_err()));
        }
        assert_eq!(executed, [Some(true), Some(false), Some(false), Some(false), Some(false)]);
    });
}

#[test]
fn a_silent_server_is_disconnected_after_timeouts() {
    in_virtual_time(async {
        let (link, mut server) = link(1 << 16);
        // No call was made, so silence is normal.
        tokio::time::sleep(60 * SECOND).await;
        for second in 0..20 {
            assert_eq!(calling(&link, "{}", SECOND).await.unwrap().unwrap_err().code(), Code::DeadlineExceeded);
            if second < 8 {
                assert!(!link.is_over(), "{second}");
            }
        }
        assert!(link.is_over());
        server.write_all(br#"{"jsonrpc":"2.0","result":{},"id":1}"#).await.unwrap();
    });
    in_virtual_time(async {
        let (link, mut server) = link(1 << 16);
        for _ in 0..20 {
            assert!(calling(&link, "{}", SECOND).await.unwrap().is_err());
            server.write_all(br#"{"jsonrpc":"2.0","method":"news","params":{}}"#).await.unwrap();
            settle().await;
        }
        assert!(!link.is_over(), "a server that speaks is there");
    });
}

#[test]
fn a_server_that_stops_reading_is_disconnected_after_timeouts_of_unsent_calls() {
    // The first call fills the socket, and a second one the queue. Then short calls wait in the queue, or for room in it.
    for lens in [&[2 * CONDUIT_LEN_MAX][..], &[2 * CONDUIT_LEN_MAX, QUEUE_LEN_MAX as usize]] {
        in_virtual_time(async {
            let (link, _server) = link(1000);
            let message = |len| format!("{{\"a\":\"{}\"}}", "x".repeat(len));
            let long: Vec<_> = lens.iter().map(|len| calling(&link, &message(*len), 60 * SECOND)).collect();
            settle().await;
            for second in 0..12 {
                assert!(second > 8 || !link.is_over(), "{second}");
                let status = calling(&link, "{}", SECOND).await.unwrap().unwrap_err();
                assert!(matches!(status.call_error(), Some(CallError::NotSent { .. })), "{second}: {status}");
            }
            assert!(link.is_over());
            long.iter().for_each(tokio::task::JoinHandle::abort);
        });
    }
}

#[cfg(feature = "http")]
mod over_websocket {
    use frpc::ConnectSettings;
    use frpc_websocket::{Role, WebSocket};
    use support::{assert_elapsed, in_virtual_time};
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::client::transport::link_over;

    /// Returns a link with pings at this interval, and the server side of its connection.
    fn link(keepalive: Option<Duration>) -> (Arc<JsonRpcLink>, DuplexStream) {
        let (ours, theirs) = duplex(1 << 16);
        let mut settings = ConnectSettings::default();
        settings.sockets.keepalive = keepalive;
        (Arc::new(link_over(WebSocket::new(ours, Role::Client), &settings)), theirs)
    }

    /// Reads a short frame from the client and returns its first byte.
    async fn frame(server: &mut DuplexStream) -> u8 {
        let mut head = [0; 2];
        server.read_exact(&mut head).await.unwrap();
        // The masking key and the content follow.
        let mut rest = vec![0; 4 + usize::from(head[1] & 0x7f)];
        server.read_exact(&mut rest).await.unwrap();
        head[0]
    }

    const TEXT: u8 = 0x81;
    const PING: u8 = 0x89;

    #[test]
    fn an_unanswered_ping_ends_the_connection_and_its_calls() {
        // The interval, plus the time limit for the answer.
        for (period, timeout) in [(180, 20), (5, 5)] {
            in_virtual_time(async {
                let start = Instant::now();
                let (link, mut server) = link(Some(period * SECOND));
                let call = calling(&link, "{}", 600 * SECOND);
                assert_eq!(frame(&mut server).await, TEXT);
                assert_eq!(frame(&mut server).await, PING);
                assert_elapsed(start, period * SECOND);
                let status = call.await.unwrap().unwrap_err();
                assert_eq!((status.code(), may_have_executed(&status)), (Code::Unavailable, Some(true)), "{status}");
                assert!(status.message().contains("did not answer a ping"), "{status}");
                assert_elapsed(start, (period + timeout) * SECOND);
                assert!(link.is_over(), "other calls go over another connection");
            });
        }
    }

    #[test]
    fn answered_pings_keep_pending_calls() {
        in_virtual_time(async {
            for keepalive in [Some(5 * SECOND), None] {
                let (link, server) = link(keepalive);
                // The server answers pings automatically.
                let mut server = WebSocket::new(server, Role::Server);
                let call = calling(&link, "{}", 600 * SECOND);
                assert!(server.next().await.is_some());
                assert!(tokio::time::timeout(300 * SECOND, server.next()).await.is_err());
                server.queue(frpc_websocket::MessageKind::Text, br#"{"jsonrpc":"2.0","result":"yes","id":1}"#);
                let _ = tokio::time::timeout(SECOND, server.next()).await;
                assert_eq!(&*call.await.unwrap().unwrap(), b"\"yes\"");
                assert!(!link.is_over());
            }
        });
    }
}
