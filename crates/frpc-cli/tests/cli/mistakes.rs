//! Error messages and advice for mistakes.

use std::net::TcpListener;

use serde_json::Value;

#[cfg(feature = "proto")]
use crate::program::Directory;
use crate::program::{Ran, Server, command, frpc, frpc_with_input};

fn assert_says(ran: &Ran, code: i32, what: &str, advice: &str) {
    assert_eq!(ran.code, code, "{ran:?}");
    assert!(ran.err.contains(what), "{what}: {}", ran.err);
    let tries = ran.err.lines().filter(|line| line.starts_with("try: "));
    assert!(tries.clone().any(|line| line.contains(advice)), "{advice}: {}", ran.err);
}

#[test]
fn a_method_that_is_not_there_is_told_with_one_that_is() {
    let server = Server::start();
    let at = &*server.address;
    assert_says(&frpc(&["call", at, "Sya"]), 1, "there is no method Sya", "frpc.echo.v1.Echo/Say");
    let whole = "frpc.echo.v1.Echo/Repaet";
    assert_says(&frpc(&["call", at, whole]), 1, whole, "frpc.echo.v1.Echo/Repeat");
    assert_says(&frpc(&["call", at, "Unheard"]), 1, "Unheard", "frpc list");
}

#[test]
fn a_field_that_is_not_there_is_told_with_those_that_are() {
    let server = Server::start();
    let at = &*server.address;
    assert_says(&frpc(&["call", at, "Say", "txet=a"]), 1, "has no field txet", "text");
    assert_says(&frpc(&["call", at, "Say", "-d", r#"{"txet": 1}"#]), 1, "has no field txet", "text");
    assert_says(&frpc(&["call", at, "Say", "inner.nmuber=1"]), 1, "has no field nmuber", "number");
    assert_says(&frpc(&["call", at, "Say", "zzzzz=a"]), 1, "has no field zzzzz", "labels (map<string, string>)");
    let ran = frpc(&["call", at, "Say", "number=seven"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains(r#"number: "seven" is not a valid int64"#), "{}", ran.err);
    let ran = frpc(&["call", at, "Say", "mood=angry"]);
    assert!(ran.err.contains("one of MOOD_UNKNOWN, MOOD_CALM, MOOD_CURIOUS"), "{}", ran.err);
    let ran = frpc(&["call", at, "Say", "inner=1"]);
    assert!(ran.err.contains("write NAME.FIELD=VALUE"), "{}", ran.err);
}

#[test]
fn an_address_that_is_none_is_told_with_those_that_there_are() {
    assert_says(&frpc(&["call", "localhost", "Say"]), 1, "port missing", "tcp://HOST:PORT");
    assert_says(&frpc(&["call", "localhost", "Say"]), 1, "port missing", "such as grpc://localhost:PORT");
    assert_says(&frpc(&["call", "7300", "Say"]), 1, "port missing", ":7300, for a port on this machine");
    assert_says(&frpc(&["call", "gopher://localhost:1", "Say"]), 1, "gopher://", "grpc://");
}

#[test]
fn where_nobody_listens_a_server_to_try_is_offered() {
    let free = {
        let server = Server::start();
        server.address.clone()
    };
    for scheme in ["tcp", "grpc", "http"] {
        let ran = frpc(&["call", &free.replacen("tcp", scheme, 1), "Say"]);
        assert_ne!(ran.code, 0);
        assert!(ran.err.contains("refused"), "{}", ran.err);
    }
    assert_says(&frpc(&["call", &free, "Say"]), 1, "refused", "frpc serve --echo");
}

#[test]
fn a_peer_that_says_nothing_is_not_waited_for_and_another_wire_is_offered() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", silent.local_addr().unwrap());
    for command in ["call", "list"] {
        let ran = frpc(&[command, &address, "Say", "--connect-timeout", "100ms"]);
        assert_says(&ran, 1, "", "another wire");
    }
}

#[test]
fn tls_to_a_server_without_is_told() {
    let server = Server::start();
    let address = server.over("grpcs");
    assert_says(&frpc(&["call", &address, "Say", "-k"]), 1, "cannot connect", "the same without TLS");
}

#[test]
fn json_that_is_none_is_told_before_and_within_a_stream() {
    let server = Server::start();
    let ran = frpc(&["call", &server.address, "Say", "-d", "{"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("--data: not valid JSON"), "{}", ran.err);
    let ran = frpc_with_input(&["call", &server.address, "Chat", "-d", "@-"], r#"{"text": "a"} {"text""#);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("standard input: not valid JSON"), "{}", ran.err);
}

#[test]
fn a_stream_without_messages_is_told() {
    let server = Server::start();
    let none = "but none was given: use -d JSON";
    for method in ["Chat", "Gather"] {
        let ran = frpc(&["call", &server.address, method]);
        assert!(ran.code == 0 && ran.err.contains(none), "{ran:?}");
    }
    for arguments in [&["Chat", "text=a"][..], &["Chat", "-d", "{}"], &["Say"]] {
        let ran = frpc(&[&["call", &server.address], arguments].concat());
        assert!(ran.code == 0 && !ran.err.contains(none), "{ran:?}");
    }
}

#[test]
fn the_path_of_json_rpc_is_asked_for() {
    let server = Server::start();
    let ran = frpc(&["call", &server.over("jsonrpc+http"), "sum", "1", "2"]);
    assert_says(&ran, 64 + 12, "404", "jsonrpc+http://HOST:PORT/rpc");
    let ran = frpc(&["call", &format!("{}/rpc", server.over("jsonrpc+http")), "product"]);
    assert!(!ran.err.contains("try"), "{ran:?}");
}

#[cfg(feature = "proto")]
#[test]
fn files_that_are_not_there_or_make_no_sense_are_named() {
    let directory = Directory::new("mistakes");
    let ran = frpc(&["list", "--proto", &directory.path("none.proto")]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("there is no file") && ran.err.contains("none.proto"), "{}", ran.err);
    let ran = frpc(&["list", "--proto", &directory.write("bad.proto", "syntax = \"proto3\";\nmessage")]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("bad.proto:"), "{}", ran.err);
    let import = "syntax = \"proto3\"; import \"elsewhere.proto\";";
    assert_says(&frpc(&["list", "--proto", &directory.write("import.proto", import)]), 1, "elsewhere.proto", "-I DIR");
    let set = directory.write("set.binpb", "this is none");
    assert_says(&frpc(&["list", "--descriptor-set", &set]), 1, "is not a descriptor set", "protoc --include_imports");
}

#[cfg(not(feature = "proto"))]
#[test]
fn a_build_without_the_compiler_says_how_to_get_it() {
    for arguments in [&["list", "--proto", "a.proto"][..], &["lock", "frpc.lock", "a.proto"]] {
        assert_says(&frpc(arguments), 1, "this build has no compiler for proto files", "--features proto");
    }
}

#[test]
fn failures_are_json_where_programs_read_them() {
    let server = Server::start();
    let ran = frpc(&["call", &server.address, "Sya", "--json"]);
    let said: Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!(said["error"]["message"], "there is no method Sya");
    assert_eq!(said["error"]["try"][0], "frpc.echo.v1.Echo/Say");
}

#[test]
fn a_server_without_reflection_has_nothing_to_list() {
    let server = Server::start_with("tcp://127.0.0.1:0", &["--no-reflection"]);
    assert_says(&frpc(&["list", &server.address]), 1, "does not describe its services", "--proto FILE");
}

#[test]
fn a_command_line_that_makes_no_sense_has_a_code_of_its_own() {
    assert_eq!(frpc(&["call"]).code, 2);
    assert_eq!(frpc(&["sing"]).code, 2);
    assert_eq!(frpc(&["serve"]).code, 2);
    assert_says(&frpc(&["call", "tcp://localhost:1"]), 1, "no method given", "frpc list");
    assert_eq!(frpc(&["--version"]).code, 0);
}

#[test]
fn without_a_terminal_there_are_no_colours() {
    let server = Server::start();
    let ran: Ran = command(&["call", &server.address, "Sya"]).env("TERM", "xterm").output().unwrap().into();
    assert!(!ran.err.contains('\x1b'), "{:?}", ran.err);
}
