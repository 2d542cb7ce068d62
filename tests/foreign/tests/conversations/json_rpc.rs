//! Clients of JSON-RPC in JavaScript, Python and Go. Each check that goes wrong is told, and fails its program.

use support::{foreign_packages, foreign_program, foreign_python};

use crate::{run, with_server};

fn node(clients: &[&str]) {
    let Some(packages) = foreign_packages() else { return };
    let script = packages.join("node/jsonrpc.mjs");
    with_server(async |port| {
        for client in clients {
            let args = [script.to_str().unwrap(), &port.to_string(), client];
            let said = run("node".as_ref(), &args).await.unwrap_or_else(|why| panic!("{client}: {why}"));
            assert!(said.contains("all went well"), "{client}: {said}");
        }
    });
}

#[test]
fn jayson_calls_over_tcp_http_and_websocket() {
    node(&["jayson-tcp", "jayson-http", "jayson-websocket"]);
}

#[test]
fn json_rpc_2_0_calls_with_fetch_over_websocket_and_in_lines() {
    node(&["json-rpc-2.0-fetch", "json-rpc-2.0-websocket", "json-rpc-2.0-lines"]);
}

#[test]
fn vscode_jsonrpc_calls_like_an_editor() {
    node(&["vscode-jsonrpc"]);
}

#[test]
fn jsonrpcclient_and_the_ucall_client_call() {
    let Some(python) = foreign_python() else { return };
    with_server(async |port| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/python/jsonrpc.py");
        let said = run(&python.join("python"), &[script, &port.to_string()]).await.unwrap();
        assert!(said.contains("all went well"), "{said}");
    });
}

#[test]
fn the_ucall_command_calls() {
    let Some(python) = foreign_python() else { return };
    let ucall = python.join("ucall");
    with_server(async |port| {
        let port = port.to_string();
        let at = ["--uri", "127.0.0.1", "--port", &port];
        let ask = async |words: &[&str]| run(&ucall, &[&at[..], words].concat()).await.unwrap();
        let sum = ask(&["sum", "a=40", "b=2"]).await;
        assert!(sum.contains(r#""result": 42"#), "{sum}");
        assert_eq!(ask(&["--format", "json", "echo", "message=hi"]).await, "hi\n");
        assert_eq!(ask(&["--format", "json", "sum", "--positional", "1", "2"]).await, "3\n");
        let refused = ask(&["sum", "a=1", "b=two"]).await;
        assert!(refused.contains("-32602") && refused.contains("`b`"), "{refused}");
        let none = ask(&["nothing", "a=1"]).await;
        assert!(none.contains("-32601"), "{none}");
    });
}

#[test]
fn go_ethereum_calls_and_subscribes() {
    let Some(client) = foreign_program("geth-client") else { return };
    with_server(async |port| {
        let said = run(&client, &[&port.to_string()]).await.unwrap();
        assert!(said.contains("94 passed, 0 failed"), "{said}");
    });
}
