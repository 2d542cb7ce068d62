//! `frpc openapi`.

use crate::program::{Directory, frpc};

const PROTO: &str = "syntax = \"proto3\";
package a;
import \"google/api/annotations.proto\";
service Shop { rpc Get(M) returns (M) { option (google.api.http) = { get: \"/v1/{text}\" }; } }
message M { string text = 1; }
";

#[test]
fn openapi_prints_or_writes_the_document() {
    let directory = Directory::new("openapi");
    let (proto, out) = (directory.write("a.proto", PROTO), directory.path("api.json"));
    let printed = frpc(&["openapi", &proto]);
    assert_eq!(printed.code, 0, "{printed:?}");
    let document: serde_json::Value = serde_json::from_str(&printed.out).unwrap();
    assert_eq!(document["info"], serde_json::json!({ "title": "Shop", "version": "1.0.0" }));
    assert_eq!(document["paths"]["/v1/{text}"]["get"]["operationId"], "Shop_Get");

    let written = frpc(&["openapi", &proto, "-o", &out, "--title", "T", "--api-version", "2"]);
    assert_eq!((written.code, &*written.out), (0, ""), "{written:?}");
    let document: serde_json::Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    assert_eq!(document["info"], serde_json::json!({ "title": "T", "version": "2" }));
}

#[test]
fn openapi_names_the_line_of_a_mistake() {
    let directory = Directory::new("openapi-mistake");
    let proto = directory.write("a.proto", PROTO.replace("{text}", "{no}"));
    let ran = frpc(&["openapi", &proto]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("a.M has no field `no`") && ran.err.contains("a.proto:4:"), "{}", ran.err);
}
