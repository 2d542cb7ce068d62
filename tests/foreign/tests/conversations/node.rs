//! Clients in JavaScript, whose scripts are in `node/`. Each call that goes wrong is told, and fails its script.

use support::{Directory, foreign_packages};

use crate::{run, with_server, write_descriptors};

fn converse(script: &str, transports: &[&str]) {
    let Some(packages) = foreign_packages() else { return };
    with_server(async |port| {
        let directory = Directory::new("foreign");
        let descriptors = write_descriptors(&directory);
        let (path, port) = (packages.join("node").join(script), port.to_string());
        for transport in transports {
            let args = [path.to_str().unwrap(), &port, descriptors.to_str().unwrap(), transport];
            let said = run("node".as_ref(), &args).await.unwrap_or_else(|why| panic!("{transport}: {why}"));
            assert!(said.contains("all went well"), "{transport}: {said}");
        }
    });
}

#[test]
fn connect_node_calls_by_connect() {
    converse("connect.mjs", &["connect-1.1", "connect-2", "connect-2-binary"]);
}

#[test]
fn connect_node_calls_by_grpc_and_grpc_web() {
    converse("connect.mjs", &["grpc-2", "grpc-web-1.1", "grpc-web-2"]);
}

#[test]
fn connect_web_calls_with_fetch() {
    converse("connect.mjs", &["web-connect", "web-grpc-web"]);
}

#[test]
fn grpc_js_calls() {
    converse("grpc.mjs", &["grpc"]);
}
