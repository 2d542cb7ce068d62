//! `frpc top`.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Stdio},
};

use serde_json::Value;

use crate::program::{Server, command, frpc};

/// A stream under way: the server has answered its first message, and its client sends no second one yet.
struct OpenChat {
    client: Child,
    input: Option<ChildStdin>,
}

impl OpenChat {
    fn start(address: &str) -> Self {
        let arguments = ["call", address, "Chat", "-d", "@-", "--json"];
        let mut client = command(&arguments).stdin(Stdio::piped()).spawn().unwrap();
        let mut input = client.stdin.take().unwrap();
        writeln!(input, "{{\"text\": \"hello\"}}").unwrap();
        let mut line = String::new();
        BufReader::new(client.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("hello"), "{line}");
        Self { client, input: Some(input) }
    }
}

impl Drop for OpenChat {
    fn drop(&mut self) {
        drop(self.input.take());
        // It may have ended already.
        let _ = self.client.wait();
    }
}

/// Returns the columns of the first line for a method.
fn row<'a>(view: &'a str, method: &str) -> Vec<&'a str> {
    let line = view.lines().find(|line| line.starts_with(method)).unwrap_or_else(|| panic!("no {method} in {view}"));
    line.split_whitespace().collect()
}

#[test]
fn calls_under_way_are_shown_over_every_wire_and_the_count_ends_the_view() {
    for wire in ["tcp", "grpc"] {
        let server = Server::start();
        let address = server.over(wire);
        let _chat = OpenChat::start(&address);
        assert_eq!(frpc(&["call", &address, "Fail", "code=5", "text=not here"]).code, 64 + 5);
        let ran = frpc(&["top", &address, "--count", "2", "--interval", "100ms"]);
        assert_eq!((ran.code, &*ran.err), (0, ""), "{wire}: {ran:?}");
        assert!(!ran.out.contains('\x1b'), "a pipe is no screen: {ran:?}");
        assert_eq!(ran.out.matches("SERVED").count(), 2, "{wire}: {}", ran.out);
        // Name, calls and errors per second, three percentiles, calls in flight, all calls.
        let chat = row(&ran.out, "frpc.echo.v1.Echo/Chat");
        assert_eq!((chat[6], chat[7]), ("1", "1"), "{wire}: {}", ran.out);
        let fail = row(&ran.out, "frpc.echo.v1.Echo/Fail");
        assert_eq!((fail[6], fail[7]), ("0", "1"), "{wire}: {}", ran.out);
        for part in ["STREAMS", "ERRORS", "NOT_FOUND not here"] {
            assert!(ran.out.contains(part), "{wire}: no {part} in {}", ran.out);
        }
        let states = frpc(&["top", &address, "--count", "1", "--json"]).json();
        let served = states[0]["served"].as_array().unwrap();
        let in_flight = |method: &Value| method["method"] == "frpc.echo.v1.Echo/Chat" && method["inFlight"] == "1";
        assert!(served.iter().any(in_flight), "{wire}: {}", states[0]);
    }
}

/// Starts `frpc top` without an end, and returns it after its first view.
#[cfg(unix)]
fn watch(address: &str) -> Child {
    let arguments = ["top", address, "--interval", "100ms"];
    let mut top = command(&arguments).spawn().unwrap();
    let mut output = BufReader::new(top.stdout.as_mut().unwrap());
    let mut line = String::new();
    while !line.starts_with("SERVED") {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "a view before the end");
    }
    top
}

#[test]
#[cfg(unix)]
fn a_signal_ends_the_view_without_an_error() {
    let server = Server::start();
    let top = watch(&server.address);
    let pid = top.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let ended = top.wait_with_output().unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
}

#[test]
#[cfg(unix)]
fn the_end_of_the_server_ends_the_view() {
    let server = Server::start();
    let top = watch(&server.address);
    drop(server);
    let ended = top.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && message.contains("cannot watch the process"), "{ended:?}");
}
