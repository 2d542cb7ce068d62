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
fn unknown_methods_suggest_a_similar_one() {
    let server = Server::start();
    let at = &*server.address;
    assert_says(&frpc(&["call", at, "Sya"]), 1, "there is no method Sya", "frpc.echo.v1.Echo/Say");
    let whole = "frpc.echo.v1.Echo/Repaet";
    assert_says(&frpc(&["call", at, whole]), 1, whole, "frpc.echo.v1.Echo/Repeat");
    assert_says(&frpc(&["call", at, "Unheard"]), 1, "Unheard", "frpc list");
}

#[test]
fn unknown_fields_list_the_known_ones() {
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
fn invalid_addresses_list_the_valid_forms() {
    assert_says(&frpc(&["call", "localhost", "Say"]), 1, "port missing", "tcp://HOST:PORT");
    assert_says(&frpc(&["call", "localhost", "Say"]), 1, "port missing", "such as grpc://localhost:PORT");
    assert_says(&frpc(&["call", "7300", "Say"]), 1, "port missing", ":7300, for a port on this machine");
    assert_says(&frpc(&["call", "gopher://localhost:1", "Say"]), 1, "gopher://", "grpc://");
}

#[test]
fn a_refused_connection_suggests_starting_a_server() {
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
fn a_silent_peer_times_out_and_suggests_another_wire() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", silent.local_addr().unwrap());
    for command in ["call", "list"] {
        let ran = frpc(&[command, &address, "Say", "--connect-timeout", "100ms"]);
        assert_says(&ran, 1, "", "another wire");
    }
}

#[test]
fn tls_to_a_plain_server_is_explained() {
    let server = Server::start();
    let address = server.over("grpcs");
    assert_says(&frpc(&["call", &address, "Say", "-k"]), 1, "cannot connect", "the same without TLS");
}

#[test]
fn invalid_json_is_reported_before_and_within_a_stream() {
    let server = Server::start();
    let ran = frpc(&["call", &server.address, "Say", "-d", "{"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("--data: not valid JSON"), "{}", ran.err);
    let ran = frpc_with_input(&["call", &server.address, "Chat", "-d", "@-"], r#"{"text": "a"} {"text""#);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("standard input: not valid JSON"), "{}", ran.err);
}

#[test]
fn an_empty_request_stream_prints_a_hint() {
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
fn a_missing_json_rpc_path_is_suggested() {
    let server = Server::start();
    let ran = frpc(&["call", &server.over("jsonrpc+http"), "sum", "1", "2"]);
    assert_says(&ran, 64 + 12, "404", "jsonrpc+http://HOST:PORT/rpc");
    let ran = frpc(&["call", &format!("{}/rpc", server.over("jsonrpc+http")), "product"]);
    assert!(!ran.err.contains("try"), "{ran:?}");
}

#[cfg(feature = "proto")]
#[test]
fn missing_and_invalid_files_are_named() {
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
    assert_says(&frpc(&["list", "--descriptor-set", &set]), 1, "not a set of descriptors", "protoc --include_imports");
}

#[cfg(not(feature = "proto"))]
#[test]
fn a_build_without_proto_support_names_the_feature() {
    for arguments in [&["list", "--proto", "a.proto"][..], &["lock", "frpc.lock", "a.proto"]] {
        assert_says(&frpc(arguments), 1, "this build has no compiler for proto files", "--features proto");
    }
}

#[test]
fn failures_are_json_with_the_json_option() {
    let server = Server::start();
    let ran = frpc(&["call", &server.address, "Sya", "--json"]);
    let said: Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!(said["error"]["message"], "there is no method Sya");
    assert_eq!(said["error"]["try"][0], "frpc.echo.v1.Echo/Say");
}

#[test]
fn listing_without_reflection_is_an_error() {
    let server = Server::start_with("tcp://127.0.0.1:0", &["--no-reflection"]);
    assert_says(&frpc(&["list", &server.address]), 1, "does not describe its services", "--proto FILE");
}

#[test]
fn an_invalid_command_line_has_its_own_exit_code() {
    assert_eq!(frpc(&["call"]).code, 2);
    assert_eq!(frpc(&["sing"]).code, 2);
    assert_eq!(frpc(&["serve"]).code, 2);
    assert_says(&frpc(&["call", "tcp://localhost:1"]), 1, "no method given", "frpc list");
    assert_eq!(frpc(&["--version"]).code, 0);
}

#[test]
fn errors_are_not_coloured_without_a_terminal() {
    let server = Server::start();
    let ran: Ran = command(&["call", &server.address, "Sya"]).env("TERM", "xterm").output().unwrap().into();
    assert!(!ran.err.contains('\x1b'), "{:?}", ran.err);
}
