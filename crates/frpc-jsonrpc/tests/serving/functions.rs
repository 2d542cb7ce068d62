//! Rust functions made callable by name with `#[function]`.

use std::{
    io,
    sync::atomic::{AtomicI64, Ordering},
};

use frpc::{Code, Head, Status};
use frpc_jsonrpc::{Called, Context, Function, Functions, function};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Adds two numbers.
///
/// The second is 1 if it is left out.
#[function]
fn add(a: i64, #[default(1)] b: i64) -> i64 {
    a + b
}

#[function]
async fn sum(a: i64, b: i64) -> i64 {
    a + b
}

#[function(name = "text.greet")]
async fn greet(name: &str, #[name("salute")] word: Option<String>, #[default("!")] end: &str) -> String {
    tokio::task::yield_now().await;
    format!("{} {name}{end}", word.as_deref().unwrap_or("hello"))
}

#[derive(Debug, Deserialize, Serialize, PartialEq)]
struct Point {
    x: f64,
    y: f64,
}

#[function]
fn mirror(points: &[Point], r#type: Option<u8>, #[default] twice: bool) -> Vec<Point> {
    let _ = (r#type, twice);
    points.iter().map(|point| Point { x: -point.x, y: point.y }).collect()
}

struct Counter(AtomicI64);

#[function]
async fn count(counter: &Counter, by: i64, context: Context) -> Result<i64, Status> {
    if by < 0 {
        return Err(Status::out_of_range("only upwards"));
    }
    assert!(context.peer_addr().is_none());
    Ok(counter.0.fetch_add(by, Ordering::Relaxed) + by)
}

#[function(blocking)]
fn read(path: String, context: &Context) -> io::Result<String> {
    assert!(context.metadata().is_empty());
    std::fs::read_to_string(path)
}

#[function]
fn ping() {}

#[function(blocking)]
fn explode() -> i64 {
    panic!("on purpose")
}

mod inner {
    #[frpc_jsonrpc::function]
    pub(super) fn hidden<'a>(text: &'a str, _context: &frpc_jsonrpc::Context) -> &'a str {
        text.trim()
    }
}

async fn call(function: &dyn Function, params: &str) -> Result<String, (Code, String)> {
    let functions = Functions::new().state(Counter(AtomicI64::new(40)));
    let mut out = Vec::new();
    let params = Some(params).filter(|params| !params.is_empty());
    let result = match function.call(params, &functions.context(Head::default()), &mut out) {
        Called::Written => Ok(out),
        Called::Failed(status) => Err(status),
        Called::Later(result) => result.await,
    };
    match result {
        Ok(out) => Ok(String::from_utf8(out).expect("JSON is UTF-8")),
        Err(status) => Err((status.code(), status.message().to_owned())),
    }
}

fn ok(text: &str) -> Result<String, (Code, String)> {
    Ok(text.to_owned())
}

fn wrong(text: &str) -> Result<String, (Code, String)> {
    Err((Code::InvalidArgument, text.to_owned()))
}

#[tokio::test]
async fn arguments_are_positional_or_named_and_may_be_optional() {
    assert_eq!(call(&add, "[1,2]").await, ok("3"));
    assert_eq!(call(&add, r#"{"b":2,"a":1}"#).await, ok("3"));
    assert_eq!(call(&add, "[1]").await, ok("2"));
    assert_eq!(call(&sum, "[1,2]").await, ok("3"));
    assert_eq!(call(&greet, r#"["you"]"#).await, ok(r#""hello you!""#));
    assert_eq!(call(&greet, r#"{"salute":"good day","name":"you","end":"?"}"#).await, ok(r#""good day you?""#));
    assert_eq!(call(&mirror, r#"{"points":[{"x":1,"y":2}],"type":null}"#).await, ok(r#"[{"x":-1.0,"y":2.0}]"#));
    assert_eq!(call(&inner::hidden, r#"[" x "]"#).await, ok(r#""x""#));
    for params in ["", "[]", "{}"] {
        assert_eq!(call(&ping, params).await, ok("null"));
    }
}

#[tokio::test]
async fn a_wrong_argument_is_named() {
    let expected = "argument `b` (2 of 2): expected i64, found string \"x\"";
    assert_eq!(call(&sum, r#"[1,"x"]"#).await, wrong(expected));
    assert_eq!(call(&sum, "[1]").await, wrong("argument `b` (2 of 2) is missing: expected i64"));
    assert_eq!(call(&ping, "[1]").await, wrong("`ping` takes no arguments, but the call has 1"));
    let expected = "argument `points` (1 of 3): missing field `y` (at byte 8 of the params)";
    assert_eq!(call(&mirror, r#"[[{"x":1}]]"#).await, wrong(expected));
}

#[tokio::test]
async fn state_and_context_are_not_arguments() {
    assert_eq!(call(&count, "[2]").await, ok("42"));
    assert_eq!(call(&count, "[-2]").await, Err((Code::OutOfRange, "only upwards".to_owned())));
    let names: Vec<_> = count.description().parameters().iter().map(|parameter| parameter.name()).collect();
    assert_eq!(names, ["by"]);
}

#[tokio::test]
async fn a_missing_state_is_an_error_with_advice() {
    let called = count.call(Some("[1]"), &Context::default(), &mut Vec::new());
    let Called::Failed(status) = called else { panic!("there is no state") };
    let expected = "the server has no state of the type that `count` takes: add it with `.state(…)`";
    assert_eq!((status.code(), status.message()), (Code::Internal, expected));
}

#[tokio::test]
async fn functions_may_block_and_their_errors_become_statuses() {
    let (code, _) = call(&read, r#"["/no/such/file"]"#).await.unwrap_err();
    assert_eq!(code, Code::NotFound);
    assert_eq!(call(&explode, "[]").await, Err((Code::Internal, "the handler panicked".to_owned())));
}

#[tokio::test]
async fn a_function_can_be_called_from_rust() {
    assert_eq!((add(1, 2), add::call(1, 2)), (3, 3));
    assert_eq!((sum(1, 2).await, sum::call(1, 2).await), (3, 3));
    assert_eq!(inner::hidden(" x ", &Context::default()), "x");
    assert_eq!(greet::call("you", None, "").await, "hello you");
}

#[test]
fn a_function_is_described() {
    let description = add.description();
    assert_eq!(
        (description.name(), description.docs()),
        ("add", "Adds two numbers.\n\nThe second is 1 if it is left out.")
    );
    let parameters: Vec<_> = description
        .parameters()
        .iter()
        .map(|parameter| (parameter.name(), parameter.schema()["format"].as_str(), parameter.is_required()))
        .collect();
    assert_eq!(parameters, [("a", Some("int64"), true), ("b", Some("int64"), false)]);
    assert_eq!(*description.result(), json!({"type": "integer", "format": "int64"}));

    assert_eq!(greet.description().name(), "text.greet");
    let described = mirror.description();
    let required: Vec<_> = described.parameters().iter().map(|one| (one.name(), one.is_required())).collect();
    assert_eq!(required, [("points", true), ("type", false), ("twice", false)]);
    assert_eq!(*described.result(), json!(true), "a type without a schema is anything");
    assert_eq!(*read.description().result(), json!({"type": "string"}), "a result is what comes of it");
    assert_eq!(*ping.description().result(), json!({"type": "null"}));
}

#[tokio::test]
async fn functions_are_served_and_described_over_json_rpc() {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

    let functions = Functions::new().about("Sums", "1.2.3").function(add).function(greet);
    let server = frpc::Server::builder()
        .wire(frpc_jsonrpc::JsonRpc::new().functions(functions))
        .without_listener()
        .expect("nothing is there twice");
    let (theirs, ours) = tokio::io::duplex(64 * 1024);
    server.attach(theirs);
    let mut socket = BufReader::new(ours);
    let mut ask = async |method: &str, params: &str| {
        let request = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}{}"#, "\n");
        socket.write_all(request.as_bytes()).await.expect("the server reads");
        let mut answer = String::new();
        socket.read_line(&mut answer).await.expect("the server answers");
        serde_json::from_str::<serde_json::Value>(&answer).expect("the answer is JSON")
    };
    assert_eq!(ask("add", "[1]").await["result"], 2);
    assert_eq!(ask("text.greet", r#"{"name":"you"}"#).await["result"], "hello you!");
    let error = ask("add", r#"["x"]"#).await["error"].take();
    assert_eq!(error["code"], -32602);
    assert!(error.to_string().contains("argument `a` (1 of 2): expected i64, found string"), "{error}");

    let document = ask("rpc.discover", "[]").await["result"].take();
    assert_eq!(document["info"], json!({"title": "Sums", "version": "1.2.3"}));
    let expected = json!({
        "name": "add",
        "summary": "Adds two numbers.",
        "description": "Adds two numbers.\n\nThe second is 1 if it is left out.",
        "paramStructure": "either",
        "params": [
            {"name": "a", "required": true, "schema": {"type": "integer", "format": "int64"}},
            {"name": "b", "required": false, "schema": {"type": "integer", "format": "int64"}},
        ],
        "result": {"name": "result", "schema": {"type": "integer", "format": "int64"}},
    });
    assert_eq!(document["methods"][0], expected);
    assert_eq!(document["methods"][1]["name"], "text.greet");
}
