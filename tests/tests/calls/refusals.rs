//! Causes of failures that a server reports in a field of the extended protocol, in either direction of a connection.

use std::error::Error;

use frisbee::{Operation, Outcome, Router, RouterInfo, Stream};
use frpc::{CallError, Channel, Code, Config, Connection, Packet, RefusalReason, Server};
use support::{
    calls::{
        CallbackClient, CallbackServer, TestClient, TestServer, TestService, ask, each_kind, only_connection, quiet,
        quiet_channel, schema::test_methods, words,
    },
    in_virtual_time,
};
use tokio::io::duplex;

/// Encodes a FAILURE with this code and cause.
pub(crate) fn failure(code: u8, cause: &[u8]) -> Vec<u8> {
    let fields = [field(4, &[code]), field(5, b"any text"), field(8, cause)].concat();
    [&[3][..], &u32::try_from(fields.len()).unwrap().to_be_bytes(), &fields].concat()
}

/// Encodes the part `frpc` of a HELLO, with the methods of the test service.
pub(crate) fn hello_part() -> Vec<u8> {
    let methods = [test_methods::SAY, test_methods::COUNT, test_methods::GATHER, test_methods::CHAT];
    let method = |(kind, method): (u8, frpc::Method)| {
        let path = method.path().into_bytes();
        field(16, &[&method.operation.to_be_bytes()[..], &[kind], &[0; 32], &path].concat())
    };
    (0..).zip(methods).flat_map(method).collect()
}

fn field(tag: u8, value: &[u8]) -> Vec<u8> {
    [&[tag][..], &u32::try_from(value.len()).unwrap().to_be_bytes(), value].concat()
}

/// A server that answers every call with the same failure.
struct Failing {
    code: u8,
    cause: Vec<u8>,
}

impl Router for Failing {
    fn describe(&self) -> Result<RouterInfo, Box<dyn Error + Send + Sync>> {
        Ok(RouterInfo::default().with_part("frpc", hello_part()))
    }

    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        let content = failure(self.code, &self.cause).into();
        Outcome::Reply(Packet { operation: Operation::EXTENDED, content, ..packet })
    }

    async fn stream(&self, stream: Stream, _: Option<RefusalReason>, _: &Connection) {
        let (sender, mut reader) = stream.split();
        let _ = reader.read().await;
        let _ = sender.send(failure(self.code, &self.cause)).await;
        while reader.read().await.is_ok() {}
    }
}

/// Calls every method of a server that fails with this cause, and passes each error to `check`.
fn fails_with(code: u8, cause: &[u8], check: impl Fn(Code, Option<&CallError>) -> bool) {
    in_virtual_time(async {
        let server = frisbee::Server::builder(Failing { code, cause: cause.to_vec() }).config(quiet());
        let server = server.without_listener();
        let (ours, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        let client = TestClient::new(quiet_channel().attach(ours).await.unwrap());
        for (kind, result) in each_kind(&client, "hi").await.into_iter().enumerate() {
            let status = result.unwrap_err();
            assert!(check(status.code(), status.call_error()), "{kind} {cause:?}: {status:?}");
        }
        assert!(client.channel().connection().unwrap().close_reason().is_none());
    });
}

#[test]
fn each_cause_becomes_its_error() {
    type Check = fn(&CallError) -> bool;
    let causes: [(&[u8], Code, Check); 6] = [
        (&[1], Code::ResourceExhausted, |error| matches!(error, CallError::Refused { why: RefusalReason::Busy })),
        (&[2], Code::DeadlineExceeded, |error| matches!(error, CallError::Refused { why: RefusalReason::Expired })),
        (&[3], Code::Unavailable, |error| matches!(error, CallError::Refused { why: RefusalReason::Draining })),
        (&[4, 0, 0, 0, 9, 0, 0, 0, 8], Code::ResourceExhausted, |error| {
            matches!(error, CallError::Refused { why: RefusalReason::TooLarge { announced: 9, limit: 8 } })
        }),
        (&[5, 0, 0, 0, 7], Code::ResourceExhausted, |error| matches!(error, CallError::TooManyForPeer { limit: 7 })),
        (&[6, 0, 0, 0, 9, 0, 0, 0, 8], Code::ResourceExhausted, |error| {
            matches!(error, CallError::AnswerTooLarge { len: 9, limit: 8 })
        }),
    ];
    for (cause, expected, check) in causes {
        let is_right = |code, error: Option<&CallError>| code == expected && error.is_some_and(check);
        // The cause decides, whatever the code. A later version may append to it.
        fails_with(expected as u8, cause, is_right);
        fails_with(0, &[cause, b"more"].concat(), is_right);
    }
}

#[test]
fn an_unknown_or_malformed_cause_is_only_a_status() {
    for cause in [&[][..], &[0], &[7], &[255, 0, 0, 0, 1], &[4], &[4, 0, 0, 0, 1, 0, 0, 0], &[5, 1], &[6, 0, 0, 0, 9]] {
        fails_with(5, cause, |code, error| code == Code::NotFound && error.is_none());
    }
}

#[test]
fn the_caller_learns_the_cause_on_either_side_of_a_connection() {
    in_virtual_time(async {
        let limited = || Config { content_len_max: 1000, ..quiet() };
        let server = Server::builder().config(limited()).add_service(TestServer::new(TestService::default()));
        let server = server.without_listener().unwrap();
        let (ours, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        let callback = CallbackServer::new(TestService::default());
        let channel = quiet_channel().add_service(callback).attach(ours).await.unwrap();
        let client = TestClient::new(channel);
        ask(&client, "hi").await.unwrap();
        let back = CallbackClient::new(Channel::over(&only_connection(&server).await).unwrap());
        let status = back.say(words("large 3000")).await.unwrap_err();
        let error = status.call_error().unwrap();
        assert!(matches!(error, CallError::AnswerTooLarge { limit: 1000, .. }), "{error:?}");
        // The handler forwards the same status. Its caller does not take it for one of its own call.
        let status = ask(&client, "back say large 3000").await.unwrap_err();
        assert!(status.message().contains("accepts at most 1000 bytes"), "{status}");
        assert!(status.call_error().is_none(), "{status:?}");
    });
}
