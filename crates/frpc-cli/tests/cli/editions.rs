//! Files and servers of edition 2023.

use frpc::{Request, Response, Server, Service, Status};
use frpc_http::Http;
use frpc_services::{Health, Reflection};
use serde_json::json;
use support::editions::{
    Order,
    orders_server::{Orders, OrdersServer},
};
use tokio::runtime::Runtime;

use crate::program::{Directory, frpc};

#[cfg(feature = "proto")]
const DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/support/proto");
#[cfg(feature = "proto")]
const PROTO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/support/proto/editions.proto");
const WIRES: [&str; 5] = ["tcp", "ws", "grpc", "http", "twirp+http"];

/// Sends orders back, with what its generated code has read in them.
struct Counter;

impl Orders for Counter {
    async fn place(&self, request: Request<Order>) -> Result<Response<Order>, Status> {
        let mut order = request.into_inner();
        let lines = order.line.iter().chain(&order.lines).map(|line| line.text.as_deref());
        order.id = format!("{} {:?} {}", order.id, order.count, lines.flatten().collect::<Vec<_>>().join(","));
        Ok(order.into())
    }
}

fn serve(runtime: &Runtime, other: impl Service) -> Server {
    let server = Server::builder().wire(Http::new()).add_service(OrdersServer::new(Counter)).add_service(other);
    runtime.block_on(server.bind("tcp://127.0.0.1:0")).unwrap()
}

fn assert_called(server: &Server, sources: &[&str]) {
    let order = r#"{"count": 0, "sizes": [1, 2], "line": {"text": "a"}, "lines": [{"text": "b"}], "level": 2}"#;
    for wire in WIRES {
        let address = server.local_addr().to_string().replacen("tcp", wire, 1);
        let ran = frpc(&[&["call", &address, "Place", "id=7", "-d", order, "--json"], sources].concat());
        let expected = json!({
            "id": "7 Some(0) a,b", "count": 0, "sizes": [1, 2], "line": { "text": "a" }, "lines": [{ "text": "b" }],
            "level": "LEVEL_HIGH",
        });
        assert_eq!(ran.json(), [expected], "{wire}");
        let ran = frpc(&[&["call", &address, "Place", "id=7", "discount=0", "--json"], sources].concat());
        let answer = &ran.json()[0];
        assert_eq!((&answer["id"], answer.get("count")), (&json!("7 None "), None), "{wire}: {answer}");
    }
}

#[test]
fn methods_are_called_with_reflection_and_its_saved_descriptors() {
    let (runtime, directory) = (Runtime::new().unwrap(), Directory::new("editions"));
    let server = serve(&runtime, Reflection::v1());
    assert_called(&server, &[]);
    let saved = directory.path("saved.binpb");
    let ran = frpc(&["describe", &server.local_addr().to_string(), "--save", &saved]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_called(&serve(&runtime, Health::new()), &["--descriptor-set", &saved]);
    // Editions and options are saved as the server sends them.
    let set = std::fs::read(&saved).unwrap();
    let set = frpc_schema::decode_descriptors(&set).unwrap();
    let file = set.file.iter().find(|file| file.name() == "editions.proto").unwrap();
    assert_eq!(file.syntax(), "edition 2023");
}

#[cfg(feature = "proto")]
#[test]
fn methods_are_called_with_proto_files() {
    let runtime = Runtime::new().unwrap();
    assert_called(&serve(&runtime, Health::new()), &["--proto", PROTO, "-I", DIR]);
}

#[test]
fn descriptors_of_other_compilers_are_described() {
    let vectors = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/editions.binpb");
    let ran = frpc(&["describe", "vectors.editions.Levels", "--descriptor-set", vectors]);
    assert_eq!(
        ran.out,
        "message vectors.editions.Levels {
  optional vectors.editions.Level level = 1;
  repeated vectors.editions.Level levels = 2;
}

enum vectors.editions.Level {
  LEVEL_LOW = 1;
  LEVEL_HIGH = 2;
}
"
    );
    let ran = frpc(&["list", "--descriptor-set", vectors]);
    assert!(ran.out.starts_with("vectors.editions.Orders\n"), "{ran:?}");
}

#[cfg(feature = "proto")]
#[test]
fn presence_is_described() {
    let ran = frpc(&["describe", "Orders/Place", "--proto", PROTO, "-I", DIR]);
    assert!(ran.out.starts_with("// Sends the order back.\nrpc editions.Orders.Place(editions.Order)"), "{}", ran.out);
    let order = "message editions.Order {
  required string id = 1;
  optional int32 count = 2;
  int32 discount = 3;
  repeated int32 sizes = 4;
  editions.Line line = 5;
  repeated editions.Line lines = 6;
  optional editions.Level level = 7;
}
";
    assert!(ran.out.contains(order), "{}", ran.out);
}

#[cfg(feature = "proto")]
#[test]
fn rest_apis_are_described_as_openapi() {
    let ran = frpc(&["openapi", PROTO, "-I", DIR]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let document: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(document["paths"]["/v1/orders"]["post"]["operationId"], "Orders_Place");
    let order = &document["components"]["schemas"]["editions.Order"];
    assert_eq!(order["properties"]["lines"]["items"]["$ref"], "#/components/schemas/editions.Line", "{order}");
}

#[cfg(feature = "proto")]
#[test]
fn mistakes_have_the_place_in_the_file() {
    let directory = Directory::new("editions-mistakes");
    let text = "edition = \"2023\";\n\nmessage M {\n  string a = 1;\n  optional string b = 2;\n}\n";
    for (text, line, what) in [
        (text.to_owned(), 5, "no label `optional`"),
        (text.replace("  optional string b", "  string a"), 5, "defined twice"),
        (text.replace("optional string b = 2;", "strin"), 6, "expected"),
        (text.replace("2023", "2001"), 1, "edition 2001 is not known"),
    ] {
        let ran = frpc(&["list", "--proto", &directory.write("mistake.proto", text)]);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.err.contains(&format!("mistake.proto:{line}:")) && ran.err.contains(what), "{}", ran.err);
    }
}
