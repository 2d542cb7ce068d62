//! `frpc call`.

use std::{
    io::{BufRead, BufReader, Write},
    process::Stdio,
};

use frpc::{Call, Status, interceptor};
use frpc_services::{Health, Reflection};
use serde_json::{Value, json};

#[cfg(feature = "proto")]
use crate::program::PROTO;
use crate::program::{Directory, Server, command, frpc, frpc_with_input};

/// Address schemes of the wires with support for every kind of call.
const WIRES: [&str; 5] = ["tcp", "ws", "grpc", "http", "grpc-web+http"];

#[test]
fn a_call_works_over_every_wire() {
    let server = Server::start();
    for wire in WIRES.into_iter().chain(["twirp+http"]) {
        let ran = frpc(&["call", &server.over(wire), "Say", "text=hello", "number=7", "--json"]);
        assert_eq!(ran.json(), [json!({ "text": "hello", "number": "7" })], "{wire}: {ran:?}");
    }
    let ran = frpc(&["call", &server.over("http"), "Say", "text=hello", "--http2", "--json"]);
    assert_eq!(ran.json(), [json!({ "text": "hello" })]);
}

#[test]
fn a_call_takes_the_addresses_of_several_servers() {
    let servers = [Server::start(), Server::start()];
    for wire in ["tcp", "grpc"] {
        let addresses = servers.each_ref().map(|server| server.over(wire)).join(",");
        let ran = frpc(&["call", &addresses, "Say", "text=hello", "--json"]);
        assert_eq!(ran.json(), [json!({ "text": "hello" })], "{wire}: {ran:?}");
    }
}

#[test]
fn json_works_over_every_wire() {
    let server = Server::start();
    for wire in ["tcp", "ws", "http", "twirp+http"] {
        for option in ["--as-json", "--no-schema"] {
            let method = "frpc.echo.v1.Echo/Say";
            let ran = frpc(&["call", &server.over(wire), method, "text=hello", "number=7", option, "--json"]);
            assert_eq!(ran.json(), [json!({ "text": "hello", "number": "7" })], "{wire} {option}: {ran:?}");
        }
    }
}

#[test]
fn streams_work_over_every_wire_with_streams() {
    let server = Server::start();
    for wire in WIRES {
        let address = server.over(wire);
        let ran = frpc(&["call", &address, "Repeat", "message.text=hi", "times=3", "--json"]);
        assert_eq!(ran.json(), vec![json!({ "text": "hi" }); 3], "{wire}");
        if wire == "grpc-web+http" {
            continue;
        }
        let messages = r#"{"text": "a", "number": 1} {"text": "b", "number": 2}"#;
        let ran = frpc_with_input(&["call", &address, "Gather", "-d", "@-", "--json"], messages);
        assert_eq!(ran.json(), [json!({ "text": "a b", "number": "3" })], "{wire}");
        let ran = frpc_with_input(&["call", &address, "Chat", "-f", "-", "--json"], messages);
        assert_eq!(
            ran.json(),
            [json!({ "text": "a", "number": "1" }), json!({ "text": "b", "number": "2" })],
            "{wire}"
        );
    }
}

#[test]
#[cfg(unix)]
fn calls_work_over_a_unix_socket() {
    let directory = Directory::new("unix");
    let server = Server::start_with(&format!("unix:{}", directory.path("socket")), &[]);
    let ran = frpc(&["call", &server.address, "Say", "text=hello", "--json"]);
    assert_eq!(ran.json(), [json!({ "text": "hello" })]);
}

#[test]
fn messages_from_standard_input_are_sent_as_read() {
    let server = Server::start();
    let arguments = ["call", &server.address, "Chat", "-d", "@-", "--json"];
    let mut child = command(&arguments).stdin(Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    for text in ["one", "two"] {
        writeln!(input, "{}", json!({ "text": text })).unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), json!({ "text": text }));
    }
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[test]
fn arguments_are_converted_to_the_field_types() {
    let (server, directory) = (Server::start(), Directory::new("arguments"));
    let data = directory.write("data", [0xff, 0]);
    let text = directory.write("text", "from a file");
    let ran = frpc(&[
        "call",
        &server.address,
        "frpc.echo.v1.Echo.Say",
        &format!("text=@{text}"),
        "number=-5",
        &format!("data@{data}"),
        "tags=a",
        "tags=1",
        "labels.k=v",
        "labels[x.y]=2",
        "mood=mood_calm",
        "inner.text=5",
        "inner.inner.tags[]=z",
        r#"inner.labels:={"a": "b"}"#,
        "--json",
    ]);
    assert_eq!(
        ran.json(),
        [json!({
            "text": "from a file", "number": "-5", "data": "/wA=", "tags": ["a", "1"], "labels": { "k": "v", "x.y": "2" },
            "mood": "MOOD_CALM", "inner": { "text": "5", "inner": { "tags": ["z"] }, "labels": { "a": "b" } },
        })]
    );
    let ran = frpc(&["call", &server.address, "Say", "by place", "-7", "--json"]);
    assert_eq!(ran.json(), [json!({ "text": "by place", "number": "-7" })]);
}

#[test]
fn arguments_override_the_message_of_a_file() {
    let (server, directory) = (Server::start(), Directory::new("file"));
    let file = directory.write("message.json", r#"{"text": "hello", "tags": ["a"]}"#);
    let ran = frpc(&["call", &server.address, "Say", "-f", &file, "number=1", "tags=b", "--json"]);
    assert_eq!(ran.json(), [json!({ "text": "hello", "number": "1", "tags": ["a", "b"] })]);
    let ran = frpc(&["call", &server.address, "Say", "-d", &format!("@{file}"), "--json"]);
    assert_eq!(ran.json(), [json!({ "text": "hello", "tags": ["a"] })]);
}

#[test]
fn metadata_and_the_deadline_arrive() {
    let server = Server::start();
    for wire in ["tcp", "ws", "grpc", "http"] {
        let ran = frpc(&[
            "call",
            &server.over(wire),
            "Inspect",
            "-H",
            "X-One: first value",
            "x-two:second",
            "-t",
            "20s",
            "--json",
        ]);
        let said = &ran.json()[0];
        assert_eq!(said["metadata"]["x-one"], "first value", "{wire}: {said}");
        assert_eq!(said["metadata"]["x-two"], "second");
        let left: u64 = said["left"].as_str().unwrap().parse().unwrap();
        assert!((1..=20_000).contains(&left), "{left}");
    }
}

#[test]
fn a_deadline_ends_a_call() {
    let server = Server::start();
    let ran = frpc(&["call", &server.address, "Repeat", "times=2", "pause=60000", "-t", "100ms"]);
    assert_eq!(ran.code, 64 + 4, "{ran:?}");
    assert!(ran.err.starts_with("deadline_exceeded (4): "), "{}", ran.err);
}

#[test]
fn a_status_is_the_exit_code_on_every_wire() {
    let server = Server::start();
    for wire in WIRES.into_iter().chain(["twirp+http"]) {
        let ran = frpc(&["call", &server.over(wire), "Fail", "code=5", "text=no such thing"]);
        assert_eq!((ran.code, &*ran.out), (64 + 5, ""), "{wire}: {ran:?}");
        assert_eq!(ran.err.lines().next(), Some("not_found (5): no such thing"), "{wire}");
    }
    let ran = frpc(&["--json", "call", &server.address, "Fail", "code=16", "text=who?"]);
    assert_eq!(ran.code, 64 + 16);
    let said: Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!((&said["error"]["code"], &said["error"]["number"]), (&json!("unauthenticated"), &json!(16)));
    assert_eq!(said["error"]["message"], "who?");
}

#[test]
fn json_is_sent_unchanged_without_reflection() {
    let server = Server::start_with("tcp://127.0.0.1:0", &["--no-reflection"]);
    for wire in ["tcp", "http"] {
        let ran = frpc(&["call", &server.over(wire), "frpc.echo.v1.Echo/Say", "text=hello", "number=7", "--json"]);
        assert_eq!(ran.json(), [json!({ "text": "hello", "number": "7" })], "{wire}: {ran:?}");
    }
    let arguments = ["frpc.echo.v1.Echo/Repeat", r#"message:={"text":"x"}"#, "times=2", "--kind", "server", "--json"];
    let ran = frpc(&[&["call", &server.address], &arguments[..]].concat());
    assert_eq!(ran.json(), vec![json!({ "text": "x" }); 2]);
}

#[cfg(feature = "proto")]
#[test]
fn proto_files_replace_reflection() {
    let (server, directory) = (Server::start_with("tcp://127.0.0.1:0", &["--no-reflection"]), Directory::new("protos"));
    for wire in WIRES {
        let ran = frpc(&["call", &server.over(wire), "Say", "number=7", "--proto", PROTO, "--json"]);
        assert_eq!(ran.json(), [json!({ "number": "7" })], "{wire}: {ran:?}");
    }
    let set = protox::compile([PROTO], [concat!(env!("CARGO_MANIFEST_DIR"), "/proto")]).unwrap();
    let set = directory.write("echo.binpb", frpc::prost::Message::encode_to_vec(&set));
    let ran = frpc(&["call", &server.address, "Say", "number=7", "--descriptor-set", &set, "--json"]);
    assert_eq!(ran.json(), [json!({ "number": "7" })]);
}

#[test]
fn a_url_may_end_with_the_method() {
    let server = Server::start();
    let url = format!("{}/frpc.echo.v1.Echo/Say", server.over("http"));
    assert_eq!(
        frpc(&["call", &url, "text=hello", "number=7", "--json"]).json(),
        [json!({ "text": "hello", "number": "7" })]
    );
    assert_eq!(frpc(&["call", &url, "--json"]).json(), [json!({})]);
}

#[test]
fn functions_are_callable_as_methods_with_json() {
    let server = Server::start();
    for wire in ["tcp", "grpc", "http"] {
        for arguments in [&["a=1", "b=2"][..], &["1", "2"], &["-d", "[1, 2]"]] {
            let ran = frpc(&[&["call", &server.over(wire), "frpc.Functions/sum", "--json"], arguments].concat());
            assert_eq!(ran.out, "3\n", "{wire} {arguments:?}: {ran:?}");
        }
    }
}

/// The addresses of JSON-RPC at a server.
fn json_rpc(server: &Server) -> [String; 3] {
    ["jsonrpc+tcp", "jsonrpc+http", "jsonrpc+ws"].map(|scheme| match scheme {
        "jsonrpc+tcp" => server.over(scheme),
        scheme => format!("{}/rpc", server.over(scheme)),
    })
}

#[test]
fn functions_are_callable_over_json_rpc() {
    let server = Server::start();
    for address in json_rpc(&server) {
        for arguments in [&["a=1", "b:=2"][..], &["1", "2"], &["-d", "[1, 2]"], &["-d", r#"{"a": 1, "b": 2}"#]] {
            let ran = frpc(&[&["call", &address, "sum", "--json"], arguments].concat());
            assert_eq!(ran.out, "3\n", "{address} {arguments:?}: {ran:?}");
        }
        let ran = frpc(&["call", &address, "greet"]);
        assert_eq!(ran.out, "\"Hello, world!\"\n", "{address}: {ran:?}");
        let ran = frpc(&["call", &address, "sum", "a=one", "b=2"]);
        assert_eq!(ran.code, 64 + 3, "{address}: {ran:?}");
        let ran = frpc(&["call", &address, "product"]);
        assert_eq!(ran.code, 64 + 12, "{address}: {ran:?}");
    }
}

#[test]
fn services_and_streams_are_callable_over_json_rpc() {
    let server = Server::start();
    for address in json_rpc(&server) {
        let ran = frpc(&["call", &address, "frpc.echo.v1.Echo/Say", "text=hello", "number=7", "--json"]);
        assert_eq!(ran.json(), [json!({ "text": "hello", "number": "7" })], "{address}: {ran:?}");
        if address.starts_with("jsonrpc+http") {
            continue;
        }
        let arguments = ["frpc.echo.v1.Echo/Repeat", "message.text=x", "times=2", "--kind", "server", "--json"];
        let ran = frpc(&[&["call", &address], &arguments[..]].concat());
        assert_eq!(ran.json(), vec![json!({ "text": "x" }); 2], "{address}: {ran:?}");
    }
}

#[test]
fn reflected_descriptors_can_be_saved_to_a_file() {
    let (server, directory) = (Server::start(), Directory::new("kept"));
    let set = directory.path("all.binpb");
    assert_eq!(frpc(&["describe", &server.address, "--save", &set]).code, 0);
    let ran = frpc(&["call", &server.address, "Say", "number=7", "--descriptor-set", &set, "--json"]);
    assert_eq!(ran.json(), [json!({ "number": "7" })]);
}

#[test]
fn binary_messages_are_sent_and_printed_unchanged() {
    let (server, directory) = (Server::start(), Directory::new("bytes"));
    let message = "\u{a}\u{2}hi";
    let file = directory.write("message.binpb", message);
    let ran = frpc(&["call", &server.address, "Say", "--binary", &file, "--raw"]);
    assert_eq!((ran.code, &*ran.out), (0, message), "{ran:?}");
}

#[test]
fn responses_are_printed_in_the_requested_format() {
    let server = Server::start();
    let ran = frpc(&["call", &server.address, "Say", "text=hello"]);
    assert_eq!(ran.out, "{\n  \"text\": \"hello\"\n}\n");
    let ran = frpc(&["call", &server.address, "Say", "--defaults", "--json"]);
    assert_eq!(ran.json()[0]["number"], "0");
    let ran = frpc(&["call", &server.address, "Say", "text=hello", "-v"]);
    assert!(ran.err.contains("> frpc.echo.v1.Echo/Say · unary · protobuf"), "{}", ran.err);
}

#[test]
fn metadata_is_sent_with_reflection_as_well() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(async {
        let known = interceptor(|call: &mut Call| match call.head().metadata().get("authorization") {
            Some("Bearer secret") => Ok(()),
            _ => Err(Status::unauthenticated("the token is missing")),
        });
        let server = frpc::Server::builder().layer(known).add_service(Health::new()).add_service(Reflection::v1());
        server.bind("tcp://127.0.0.1:0").await.unwrap()
    });
    let address = server.local_addr().to_string();
    for token in [&["authorization:Bearer secret"][..], &["-H", "authorization: Bearer secret"]] {
        let ran = frpc(&[&["call", &address, "Check", "--json"], token].concat());
        assert_eq!(ran.json(), [json!({ "status": "SERVING" })], "{ran:?}");
    }
    let ran = frpc(&["list", &address, "--header", "authorization: Bearer secret"]);
    assert!(ran.out.contains("grpc.health.v1.Health"), "{ran:?}");
    let ran = frpc(&["describe", &address, "Check", "-H", "authorization: Bearer secret"]);
    assert!(ran.out.contains("HealthCheckRequest"), "{ran:?}");
    let ran = frpc(&["call", &address, "Check"]);
    let tries = "try: -H 'authorization: Bearer TOKEN'\ntry: --no-schema, if only reflection needs the token\n";
    assert_eq!(ran.err, format!("unauthenticated (16): the token is missing\n{tries}"));
}
