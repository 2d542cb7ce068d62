//! Calls the functions of the example over TCP, by POST, and from Python.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::Command,
};

use frpc::{Address, Server};
use serde_json::{Value, json};
use support::foreign_python;
use tokio::runtime::Runtime;

#[allow(dead_code, reason = "`main` of the example")]
#[path = "../bin/functions.rs"]
mod program;

/// The server of the example. Dropping it stops the server.
struct Example {
    runtime: Option<Runtime>,
    _server: Server,
    address: String,
}

impl Example {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let server = runtime.block_on(program::serve("tcp://127.0.0.1:0")).unwrap();
        let Address::Tcp(address) = server.local_addr() else { panic!("it has no port") };
        let address = address.to_string();
        Self { runtime: Some(runtime), _server: server, address }
    }

    fn socket(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }

    /// Sends JSON by POST and returns the head and body of the response.
    fn post(&self, path: &str, body: &str) -> (String, Value) {
        let mut socket = self.socket();
        let len = body.len();
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {len}");
        socket.write_all(format!("{head}\r\nconnection: close\r\n\r\n{body}").as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}")))
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[test]
fn functions_are_called_over_tcp_and_by_post() {
    let example = Example::start();
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"sum","params":[1,2]}"#;
    let mut socket = BufReader::new(example.socket());
    writeln!(socket.get_mut(), "{request}").unwrap();
    let mut line = String::new();
    socket.read_line(&mut line).unwrap();
    let expected = json!({"jsonrpc": "2.0", "id": 1, "result": 3});
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), expected);

    assert_eq!(example.post("/rpc", request).1, expected);
    assert_eq!(example.post("/frpc.Functions/sum", "[1, 2]").1, json!(3));
    let (head, error) = example.post("/frpc.Functions/sum", r#"{"a": 1, "c": 2}"#);
    assert!(head.starts_with("HTTP/1.1 400"), "{head}");
    let expected = "`sum` has no argument `c`: it takes 2 arguments (`a`, `b`)";
    assert_eq!((&error["code"], &error["message"]), (&json!("invalid_argument"), &json!(expected)));
    let visits = [(); 2].map(|()| example.post("/frpc.Functions/visit", "[]").1);
    assert_eq!(visits, [1, 2]);
}

#[test]
fn python_adds_two_arrays_of_numpy() {
    let Some(programs) = foreign_python() else { return };
    let example = Example::start();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/python/add_arrays.py");
    let output = Command::new(programs.join("python")).args([script, &example.address]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "[[0.5 1.5 2.5]\n [3.5 4.5 5.5]]\nthe shapes [2, 3] and [1, 3] differ\n");
}
