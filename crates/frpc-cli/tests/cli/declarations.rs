//! `frpc list`, `frpc describe` and `frpc completions`.

use serde_json::json;

#[cfg(feature = "proto")]
use crate::program::PROTO;
use crate::program::{Server, frpc};

#[test]
fn services_and_methods_are_listed_over_every_wire() {
    let server = Server::start();
    for wire in ["tcp", "ws", "grpc", "http", "grpc-web+http", "twirp+http"] {
        let ran = frpc(&["list", &server.over(wire)]);
        assert_eq!(ran.code, 0, "{ran:?}");
        for line in ["frpc.echo.v1.Echo", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"] {
            assert!(ran.out.lines().any(|other| other == line), "{wire}: {}", ran.out);
        }
        let repeat = "  Repeat (frpc.echo.v1.RepeatRequest) → stream frpc.echo.v1.Message";
        assert!(ran.out.lines().any(|line| line == repeat), "{}", ran.out);
    }
    let ran = frpc(&["list", &server.address, "Echo", "--json"]);
    let said = ran.json();
    assert_eq!((said.len(), &said[0]["service"]), (1, &json!("frpc.echo.v1.Echo")));
    assert_eq!(said[0]["methods"][3]["path"], "frpc.echo.v1.Echo/Chat");
    assert_eq!(said[0]["methods"][3]["request_stream"], true);
    let ran = frpc(&["list", &server.address, "Ecoh"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("frpc.echo.v1.Echo"), "{}", ran.err);
}

#[cfg(feature = "proto")]
#[test]
fn files_are_listed_and_described_without_a_server() {
    let ran = frpc(&["list", "--proto", PROTO]);
    assert!(ran.out.starts_with("frpc.echo.v1.Echo\n"), "{ran:?}");
    let ran = frpc(&["describe", "Say", "--proto", PROTO]);
    let expected =
        "// Sends the message back.\nrpc frpc.echo.v1.Echo.Say(frpc.echo.v1.Message) returns (frpc.echo.v1.Message);\n";
    assert!(ran.out.starts_with(expected), "{}", ran.out);
}

#[test]
fn a_message_is_described_like_its_proto_file() {
    let server = Server::start();
    let ran = frpc(&["describe", &server.address, "frpc.echo.v1.Message"]);
    assert_eq!(
        ran.out,
        "message frpc.echo.v1.Message {
  string text = 1;
  int64 number = 2;
  bytes data = 3;
  repeated string tags = 4;
  map<string, string> labels = 5;
  frpc.echo.v1.Mood mood = 6;
  frpc.echo.v1.Message inner = 7;
}

enum frpc.echo.v1.Mood {
  MOOD_UNKNOWN = 0;
  MOOD_CALM = 1;
  MOOD_CURIOUS = 2;
}
"
    );
    let ran = frpc(&["describe", &server.address, "Mesage"]);
    assert!(ran.err.contains("frpc.echo.v1.Message"), "{}", ran.err);
}

#[test]
fn a_template_is_a_valid_message() {
    let server = Server::start();
    let template = frpc(&["describe", &server.address, "Say", "--template"]);
    assert_eq!(template.code, 0, "{template:?}");
    let ran = frpc(&["call", &server.address, "Say", "-d", &template.out, "--json"]);
    assert_eq!(ran.json(), [json!({ "tags": [""], "labels": { "": "" }, "inner": {} })]);
}

#[test]
fn functions_of_json_rpc_are_listed_and_described() {
    let server = Server::start();
    let address = server.over("jsonrpc+tcp");
    let ran = frpc(&["list", &address]);
    assert!(ran.out.contains("sum (a: integer, b: integer) → integer"), "{ran:?}");
    let ran = frpc(&["describe", &address, "sum"]);
    assert!(ran.out.starts_with("// Adds two numbers.\nsum(a: integer, b: integer) → integer\n"), "{ran:?}");
    let ran = frpc(&["describe", &address, "smu"]);
    assert!(ran.err.contains("try: sum"), "{ran:?}");
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ran = frpc(&["completions", shell]);
        assert_eq!(ran.code, 0);
        assert!(ran.out.contains("describe") && ran.out.contains("--descriptor-set") || shell == "fish", "{shell}");
    }
}
