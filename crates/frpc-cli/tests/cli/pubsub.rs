//! `frpc pub` and `frpc sub`.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdout},
};

use serde_json::{Value, json};

use crate::program::{Server, command, frpc, frpc_with_input};

/// A running program with an active subscription.
struct Subscriber {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Subscriber {
    fn start(arguments: &[&str]) -> Self {
        let mut child = command(&[&["sub", "--json"], arguments].concat()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert!(line.contains("subscribed"), "{line}");
        Self { child, out }
    }

    /// Returns what was printed, and the exit code.
    fn end(mut self) -> (Vec<Value>, i32) {
        let mut text = String::new();
        self.out.read_to_string(&mut text).unwrap();
        let printed = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (printed, self.child.wait().unwrap().code().unwrap())
    }
}

#[test]
fn messages_reach_the_subscribers_of_their_subjects() {
    let server = Server::start();
    let at = &*server.address;
    let one = Subscriber::start(&[at, "orders.*.created", "--count", "1"]);
    let all = Subscriber::start(&[at, "orders.>", "--count", "3"]);
    let ran = frpc(&["pub", at, "orders.eu.created", "one for Ada", "--json"]);
    assert_eq!(ran.json(), [json!({ "subject": "orders.eu.created", "messages": 1, "subscriptions": 2 })]);
    let ran = frpc(&["publish", at, "orders.eu", "twice", "-n", "2"]);
    assert_eq!((ran.code, &*ran.out), (0, "published 2 messages, the last to 1 subscription\n"), "{ran:?}");
    let first = json!({ "subject": "orders.eu.created", "text": "one for Ada" });
    assert_eq!(one.end(), (vec![first.clone()], 0));
    let second = json!({ "subject": "orders.eu", "text": "twice" });
    assert_eq!(all.end(), (vec![first, second.clone(), second], 0));
}

#[test]
fn lines_and_files_are_published_unchanged() {
    let server = Server::start();
    let at = &*server.address;
    let lines = Subscriber::start(&[at, "log.*", "-n", "3"]);
    let ran = frpc_with_input(&["pub", at, "log.web", "--lines", "--json"], "a\n\nb b\n");
    assert_eq!(ran.json()[0]["messages"], 3);
    let texts = |subscriber: Subscriber, name| -> Vec<_> {
        subscriber.end().0.into_iter().map(|message: Value| message[name].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(texts(lines, "text"), ["a", "", "b b"]);
    let bytes = Subscriber::start(&[at, "files", "-n", "1"]);
    let directory = crate::program::Directory::new("pub");
    let file = directory.write("bytes", [0xff, 0, 1]);
    assert_eq!(frpc(&["pub", at, "files", &format!("@{file}")]).code, 0);
    assert_eq!(texts(bytes, "base64"), ["/wAB"]);
}

#[test]
fn a_retained_message_reaches_later_subscribers() {
    let server = Server::start();
    let at = &*server.address;
    assert_eq!(frpc(&["pub", at, "shop.state", "open", "--retain"]).code, 0);
    let ran = frpc(&["sub", at, "shop.state", "--count", "1"]);
    assert_eq!((&*ran.out, &*ran.err), ("shop.state open\n", "note: subscribed to shop.state\n"), "{ran:?}");
    let ran = frpc(&["sub", at, "shop.state", "--count", "1", "--raw"]);
    assert_eq!(ran.out, "open\n", "{ran:?}");
}

#[test]
fn a_group_counts_as_one_subscription() {
    let server = Server::start();
    let at = &*server.address;
    let members = [(); 2].map(|()| Subscriber::start(&[at, "jobs", "--group", "workers", "-n", "1"]));
    let other = Subscriber::start(&[at, "jobs", "-n", "1"]);
    // The group counts once.
    assert_eq!(frpc(&["pub", at, "jobs", "one", "--json"]).json()[0]["subscriptions"], 2);
    assert_eq!(other.end(), (vec![json!({ "subject": "jobs", "text": "one" })], 0));
    for mut member in members {
        member.child.kill().unwrap();
        member.child.wait().unwrap();
    }
}

#[test]
fn a_timeout_before_the_expected_count_is_a_failure() {
    let server = Server::start();
    let at = &*server.address;
    let ran = frpc(&["sub", at, "a", "--timeout", "1ms"]);
    assert_eq!((ran.code, &*ran.out), (0, ""), "{ran:?}");
    let ran = frpc(&["sub", at, "a", "--timeout", "1ms", "--count", "2"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("0 of 2 messages arrived in time"), "{ran:?}");
}

#[test]
fn a_request_without_subscribers_fails_immediately() {
    let server = Server::start();
    let ran = frpc(&["pub", &server.address, "vat.rate", "books", "--request"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("no subscribers"), "{ran:?}");
}

#[test]
fn errors_suggest_a_remedy() {
    let server = Server::start();
    let at = &*server.address;
    for arguments in [["pub", at, "a..b"], ["sub", at, "a.>.b"]] {
        let ran = frpc(&arguments);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.err.contains(arguments[2]), "{ran:?}");
    }
    let ran = frpc(&["pub", "7300", "a"]);
    assert!(ran.code == 1 && ran.err.contains("try: :7300, for a port on this machine"), "{ran:?}");
    let ran = frpc(&["sub", "grpc://localhost:1", "a"]);
    assert!(ran.code == 1 && ran.err.contains("nats://HOST:PORT for NATS"), "{ran:?}");
}

#[cfg(not(feature = "nats"))]
#[test]
fn a_build_without_nats_names_the_feature() {
    let ran = frpc(&["sub", "nats://localhost:4222", "a"]);
    assert!(ran.code == 1 && ran.err.contains("--features nats"), "{ran:?}");
}

#[cfg(feature = "nats")]
#[test]
fn an_unreachable_cluster_is_reported() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("nats://127.0.0.1:{port}");
    let ran = frpc(&["sub", &address, "a", "--connect-timeout", "500ms"]);
    assert!(ran.code == 1 && ran.err.starts_with("error: "), "{ran:?}");
    let ran = frpc(&["sub", &address, "a", "--tls"]);
    assert!(ran.code == 1 && ran.err.contains("TLS settings for NATS belong in the address"), "{ran:?}");
}
