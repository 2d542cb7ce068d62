//! REST APIs: checks, descriptors and documents.

use std::{fs, path::PathBuf};

use frpc_build::Builder;

use crate::new_dir;

/// Returns a proto file with two methods of these annotations.
fn proto(one: &str, two: &str) -> String {
    format!(
        "syntax = \"proto3\";\npackage shop;\nimport \"google/api/annotations.proto\";\n// Sells.\nservice Shop {{\n  rpc One(Order) \
         returns (Order) {{ option (google.api.http) = {{ {one} }}; }}\n  rpc Two(Order) returns (Order) {{ option \
         (google.api.http) = {{ {two} }}; }}\n}}\nmessage Order {{ string id = 1; }}\n"
    )
}

fn compile(text: &str, change: impl FnOnce(Builder) -> Builder) -> (PathBuf, Result<(), String>) {
    let dir = new_dir();
    fs::write(dir.join("shop.proto"), text).unwrap();
    let builder = change(frpc_build::configure().out_dir(&dir));
    let compiled = builder.compile_protos(&[dir.join("shop.proto")], &[&dir]);
    let shown = format!("{}/", dir.display());
    (dir, compiled.map_err(|error| error.to_string().replace(&shown, "")))
}

#[test]
fn colliding_paths_fail_the_build_with_their_lines() {
    let text = proto("get: \"/v1/{id}\"", "get: \"/v1/{id=*}\"");
    let (_, compiled) = compile(&text, |builder| builder.rest(true));
    let error = compiled.unwrap_err();
    assert!(error.starts_with("shop.Shop/One and shop.Shop/Two have the same HTTP method and path: GET `/v1/{id}` and `/v1/{id=*}`\n --> shop.proto:7:"), "{error}");
    assert!(error.contains("shop.proto:6:") && error.contains("the other one"), "{error}");
    // Without REST, the annotations have no meaning.
    assert_eq!(compile(&text, |builder| builder).1, Ok(()));
}

#[test]
fn invalid_paths_fail_the_build() {
    let (_, compiled) = compile(&proto("get: \"/v1/{no}\"", "get: \"/\""), |builder| builder.rest(true));
    let error = compiled.unwrap_err();
    assert!(error.starts_with("the HTTP rule of shop.Shop/One is invalid: the path `/v1/{no}`: shop.Order has no field `no`\n --> shop.proto:6:"), "{error}");
}

#[test]
fn rest_adds_json_and_keeps_the_annotations() {
    let text = proto("get: \"/v1/{id}\"", "post: \"/v1:go\" body: \"*\"");
    let (dir, compiled) = compile(&text, |builder| builder.rest(true));
    assert_eq!(compiled, Ok(()));
    assert!(fs::read_to_string(dir.join("shop.rs")).unwrap().contains("json_types"));
    let descriptors = fs::read(dir.join("shop.binpb")).unwrap();
    assert!(descriptors.windows(8).any(|part| part == b"/v1/{id}"));
}

#[test]
fn the_document_is_written_next_to_the_code() {
    let text = proto("get: \"/v1/{id}\"", "post: \"/v1:go\" body: \"*\"");
    let (dir, compiled) = compile(&text, |builder| builder.openapi("api.json").openapi_info("The Shop", "3.1.4"));
    assert_eq!(compiled, Ok(()));
    let document = fs::read_to_string(dir.join("api.json")).unwrap();
    for part in ["\"title\": \"The Shop\"", "\"version\": \"3.1.4\"", "\"/v1:go\"", "\"description\": \"Sells.\""] {
        assert!(document.contains(part), "{part} in {document}");
    }
    let builder = frpc_build::configure().openapi_info("The Shop", "3.1.4");
    assert_eq!(builder.openapi_document(&[dir.join("shop.proto")], &[&dir]).unwrap(), document);
}
