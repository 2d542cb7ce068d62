//! Servers of plain fRPC in Go, from `tests/go`.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use frisbee::HeaderFormat;
use serde_json::{Value, json};
use support::GoPeers;

use crate::{
    plain::told,
    program::{Directory, Ran, frpc, frpc_with_input},
};

const PROTO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/go/interop.proto");

/// A server in Go, killed when this value is dropped.
pub(crate) struct GoServer {
    child: Child,
    pub(crate) address: String,
}

impl GoServer {
    /// Starts a server with headers of ten bytes. Returns `None` if the servers are not built; see [`GoPeers::find`].
    pub(crate) fn start() -> Option<Self> {
        Self::with(HeaderFormat::Magic10, &[])
    }

    fn with(headers: HeaderFormat, options: &[&str]) -> Option<Self> {
        let mut server = Command::new(GoPeers::find()?.program("rpc-server", headers));
        let mut child =
            server.args(options).arg("127.0.0.1:0").stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = format!("tcp://{}", line.trim().strip_prefix("listening ").unwrap());
        Some(Self { child, address })
    }

    fn call(&self, arguments: &[&str]) -> Ran {
        frpc(&[&["call", &self.address, "--proto", PROTO, "--json"], arguments].concat())
    }
}

impl Drop for GoServer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_field_round_trips_through_a_go_server() {
    let Some(server) = GoServer::start() else { return };
    let rich = json!({
        "origin": { "x": -3 },
        "on": true,
        "parts": [{ "name": "a", "samples": [0.5, -2.0], "next": { "name": "b" } }, {}],
        "mood": "MOOD_STORMY",
        "i32": -5, "i64": "-6", "title": "hello", "u32": 7, "u64": "18446744073709551615", "s64": "-8", "f32": 9, "sf64": "10",
        "single": 1.5, "wide": -2.25, "blob": "/wA=", "tags": ["x", ""], "numbers": ["1", "-1"],
        "names": { "7": "seven" }, "moods": { "now": "MOOD_CALM" }, "places": { "here": { "y": 4 }, "there": {} },
        "spot": {},
    });
    let ran = server.call(&["Echo", "-d", &rich.to_string()]);
    assert_eq!(ran.json(), [rich], "{ran:?}");
    assert_eq!(server.call(&["interop.Interop/Echo"]).json(), [json!({})]);
    let ran = server.call(&["Second/Greet", "text=Go"]);
    assert_eq!(ran.json(), [json!({ "text": "hello Go" })]);
}

#[test]
fn an_error_of_a_go_server_is_a_status_with_its_text() {
    let Some(server) = GoServer::start() else { return };
    for method in ["Fail", "Hangup"] {
        let ran = server.call(&[method, "text=not today"]);
        assert_eq!((ran.code, &*ran.out), (64 + 2, ""), "{ran:?}");
        let said = told(&ran);
        assert_eq!((&said["code"], &said["message"]), (&json!("unknown"), &json!("not today")));
    }
}

#[test]
fn streams_work_in_both_directions_with_a_go_server() {
    let Some(server) = GoServer::start() else { return };
    let numbers = |all: &[i64]| all.iter().map(|value| json!({ "value": value.to_string() })).collect::<Vec<_>>();
    assert_eq!(server.call(&["Numbers", "start=3", "count=3"]).json(), numbers(&[3, 4, 5]));
    let ran = server.call(&["Numbers", "start=3", "count=2", "fail_with=enough"]);
    let lines: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((ran.code, lines), (64 + 2, numbers(&[3, 4])), "{ran:?}");
    assert_eq!(told(&ran)["message"], "enough");

    let ran = server.call(&["Total", "-d", r#"{"value": 1} {"value": 2} {"value": 39}"#]);
    assert_eq!(ran.json(), [json!({ "sum": "42", "count": 3 })]);
    let ran = server.call(&["Total", "-d", r#"{"value": -1}"#]);
    assert_eq!((ran.code, told(&ran)["message"].clone()), (64 + 2, json!("negative: -1")));

    let talk = ["call", &server.address, "Talk", "--proto", PROTO, "--json", "-d", "@-"];
    let ran = frpc_with_input(&talk, r#"{"text": "one"} {"text": "two"}"#);
    assert_eq!(ran.json(), [json!({ "text": "re: one" }), json!({ "text": "re: two" })], "{ran:?}");
}

#[test]
fn go_servers_with_old_headers_need_an_option() {
    let Some(server) = GoServer::with(HeaderFormat::Plain8, &[]) else { return };
    let ran = server.call(&["Greet", "text=x", "--old-frisbee"]);
    assert_eq!(ran.json(), [json!({ "text": "hello x" })], "{ran:?}");
    let ran = server.call(&["Numbers", "count=2", "--old-frisbee"]);
    assert_eq!(ran.json(), [json!({}), json!({ "value": "1" })]);
    let ran = server.call(&["Greet", "text=x"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("--old-frisbee"), "{}", ran.err);
}

#[test]
fn go_servers_are_called_over_tls() {
    let directory = Directory::new("plain-tls");
    let ca = directory.path("ca.pem");
    let Some(server) = GoServer::with(HeaderFormat::Magic10, &["-tls-cert", &ca]) else { return };
    let ran = server.call(&["Greet", "text=x", "--ca", &ca]);
    assert_eq!(ran.json(), [json!({ "text": "hello x" })], "{ran:?}");
}

#[test]
fn a_go_server_can_be_benchmarked() {
    let Some(server) = GoServer::start() else { return };
    let load = ["-n", "40", "-c", "2", "--warmup", "0s", "--json"];
    let ran = frpc(&[&["bench", &server.address, "Echo", "title=x", "--proto", PROTO], &load[..]].concat());
    let load = &ran.json()[0]["loads"][0];
    assert_eq!(load["calls"], 40, "{ran:?}");
}

#[test]
fn binary_messages_are_converted_for_go_servers() {
    let Some(server) = GoServer::start() else { return };
    let directory = Directory::new("plain-binary");
    let file = directory.write("message.binpb", "\u{a}\u{2}hi");
    let ran = server.call(&["Greet", "--binary", &file, "--raw"]);
    assert_eq!((ran.code, &*ran.out), (0, "\u{a}\u{8}hello hi"), "{ran:?}");
    let ran = server.call(&["Greet", "--binary", &directory.write("none", "\u{a}")]);
    assert_eq!((ran.code, told(&ran)["message"].as_str().unwrap().contains("interop.Text")), (1, true), "{ran:?}");
}

#[test]
fn an_unknown_method_of_a_go_server_fails_immediately() {
    let Some(server) = GoServer::start() else { return };
    let ran = server.call(&["Greet", "text=x", "--first-operation", "100", "-t", "200ms"]);
    assert_eq!(ran.code, 64 + 4, "{ran:?}");
    assert!(told(&ran)["try"].to_string().contains("numbers methods"), "{ran:?}");
    let ran = server.call(&["Greet", "text=x", "--first-operation", "9"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(told(&ran)["message"].as_str().unwrap().contains("belong to frisbee"), "{ran:?}");
}
