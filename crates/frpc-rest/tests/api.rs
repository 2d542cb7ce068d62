//! Routes, requests and the description of an API, from proto files.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{fs, path::Path, sync::Arc};

use frpc_rest::{GOOGLE_API_FILES, OpenApiInfo, RequestParts, RestApi, RouteCall, RouteMatch};
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

/// The proto files of a test, by name.
struct Files(Vec<(String, String)>);

impl FileResolver for Files {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match self.0.iter().find(|(file, _)| file == name) {
            Some((_, text)) => File::from_source(name, text),
            None => Err(protox::Error::file_not_found(name)),
        }
    }
}

fn compile(name: &str, text: &str) -> Vec<u8> {
    let api = GOOGLE_API_FILES.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let mut resolver = ChainFileResolver::new();
    resolver.add(Files([vec![(name.to_owned(), text.to_owned())], api.to_vec()].concat()));
    resolver.add(GoogleFileResolver::new());
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).include_source_info(true).open_file(name).unwrap();
    compiler.encode_file_descriptor_set()
}

fn library() -> Arc<RestApi> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/library.proto")).unwrap();
    Arc::new(RestApi::read([&*compile("library.proto", &text)], |_| true).unwrap())
}

fn found(api: &Arc<RestApi>, method: &str, path: &str) -> RouteCall {
    match api.find(method, path) {
        RouteMatch::Found(call) => call,
        other => panic!("{method} {path}: {other:?}"),
    }
}

/// Returns the JSON of the message of a request, or the error.
fn message(api: &Arc<RestApi>, method: &str, target: &str, body: &str) -> String {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parts = RequestParts { query, content_type: "text/plain", body: body.to_owned().into(), is_strict: false };
    match found(api, method, path).message(parts) {
        Ok(json) => String::from_utf8(json.to_vec()).unwrap(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn requests_find_their_method() {
    let api = library();
    for (method, path, called) in [
        ("GET", "/v1/shelves/1/books/2", "GetBook"),
        ("GET", "/v1/books/7", "GetBook"),
        ("HEAD", "/v1/books/7", "GetBook"),
        ("GET", "/v1/shelves/1/books", "ListBooks"),
        ("POST", "/v1/shelves/1/books", "CreateBook"),
        ("PATCH", "/v1/shelves/1/books/2", "UpdateBook"),
        ("DELETE", "/v1/shelves/1/books/2", "DeleteBook"),
        ("POST", "/v1/shelves/1/books/2:archive", "ArchiveBook"),
        ("GET", "/v1/shelves/1/books/2:archive", "GetBook"),
        ("GET", "/v1/files", "GetFile"),
        ("GET", "/v1/files/a/b/c", "GetFile"),
        ("GET", "/v1/echo/a/1,2", "Echo"),
        ("REPORT", "/v1/echo", "Echo"),
        ("GET", "/v1/%73helves/1/books/2", "GetBook"),
    ] {
        assert_eq!(found(&api, method, path).route().method(), format!("library.v1.Library/{called}"), "{path}");
    }
}

#[test]
fn other_paths_are_refused() {
    let api = library();
    let long = format!("/v1/books/{}", "a/".repeat(8_000));
    for path in [
        "",
        "/",
        "v1/books/7",
        "/v1/books",
        "/v1/books/",
        "/v1/books//",
        "//v1/books/7",
        "/v1//books/7",
        "/v2/books/7",
        "/v1/books/7/8",
        &long,
    ] {
        assert!(matches!(api.find("GET", path), RouteMatch::NotFound), "{path}");
    }
    for path in [
        "/v1/books/%",
        "/v1/books/%2",
        "/v1/books/%zz",
        "/v1/books/..",
        "/v1/files/../x",
        "/v1/files/%2e%2E/x",
        "/v1/./books/7",
        "/v1/files/%ff",
    ] {
        assert!(matches!(api.find("GET", path), RouteMatch::Malformed(_)), "{path}");
    }
    match api.find("PUT", "/v1/shelves/1/books/2") {
        RouteMatch::OtherMethods(methods) => assert_eq!(methods, ["DELETE", "GET", "PATCH"]),
        other => panic!("{other:?}"),
    }
    let deep = format!("/v1/files/{}", vec!["a"; 8_000].join("/"));
    assert!(matches!(api.find("GET", &deep), RouteMatch::Found(_)));
    let colons = format!("/v1/books/{}", ":archive".repeat(2_000));
    assert!(matches!(api.find("GET", &colons), RouteMatch::Found(_)));
}

#[test]
fn path_values_are_decoded() {
    let api = library();
    for (path, json) in [
        ("/v1/shelves/a%20b/books/c%2Fd", r#"{"name":"shelves/a b/books/c%2Fd"}"#),
        ("/v1/books/a%2Fb+c", r#"{"name":"a/b+c"}"#),
        ("/v1/books/%22%2C%5C", r#"{"name":"\",\\"}"#),
        ("/v1/books/7:x", r#"{"name":"7:x"}"#),
    ] {
        assert_eq!(message(&api, "GET", path, ""), json);
    }
    assert_eq!(message(&api, "GET", "/v1/files/a/b%2fc/d.txt", ""), r#"{"path":"a/b%2fc/d.txt"}"#);
    assert_eq!(message(&api, "GET", "/v1/files", ""), r#"{"path":""}"#);
    assert_eq!(message(&api, "GET", "/v1/echo/t/1,-2,3", ""), r#"{"text":"t","numbers":[1,-2,3]}"#);
}

#[test]
fn parameters_have_the_types_of_their_fields() {
    let api = library();
    for (query, json) in [
        ("", "{}"),
        ("text=a+b%26&flag=true&flag2=x", r#"{"text":"a b&","flag":true}"#),
        ("numbers=1&numbers=-2", r#"{"numbers":[1,-2]}"#),
        (
            "big=-9223372036854775808&count=18446744073709551615",
            r#"{"big":-9223372036854775808,"count":18446744073709551615}"#,
        ),
        ("ratio=1.5e3&share=NaN&small=7", r#"{"ratio":1500.0,"share":"NaN","small":7}"#),
        ("data=_-8", r#"{"data":"_-8"}"#),
        ("color=RED&colors=1&colors=BLUE", r#"{"color":"RED","colors":[1,"BLUE"]}"#),
        (
            "at=2026-01-02T03:04:05Z&span=1.5s&mask=a_b,c.dE",
            r#"{"at":"2026-01-02T03:04:05Z","span":"1.5s","mask":"aB,c.dE"}"#,
        ),
        ("wrapped=x&value=%7B%22a%22:1%7D", r#"{"wrapped":"x","value":{"a":1}}"#),
        ("limits[a]=1&limits[b.c]=2", r#"{"limits":{"a":1,"b.c":2}}"#),
        ("author.first_name=A&author.surname=B", r#"{"author":{"firstName":"A","surname":"B"}}"#),
        ("inner.author.last_name=C&inner.flag=1", r#"{"inner":{"flag":true,"author":{"surname":"C"}}}"#),
        ("maybe=&left=l", r#"{"maybe":"","left":"l"}"#),
        ("unknown=1&author.unknown=2&inner.=3", "{}"),
    ] {
        assert_eq!(message(&api, "GET", &format!("/v1/echo?{query}"), ""), json, "{query}");
    }
}

#[test]
fn parameters_that_do_not_fit_are_named() {
    let api = library();
    for (query, error) in [
        ("big=x", r#"the parameter `big`: "x" is not an int64"#),
        ("small=-1", r#"the parameter `small`: "-1" is not a uint32"#),
        ("flag=yes", r#"the parameter `flag`: "yes" is not `true` or `false`"#),
        ("ratio=1e999", r#"the parameter `ratio`: "1e999" is not a double"#),
        ("share=inf", r#"the parameter `share`: "inf" is not a float"#),
        ("data=?", r#"the parameter `data`: "?" is not base64"#),
        ("color=GREEN", r#"the parameter `color`: "GREEN" is not the name or the number of a value of this enum"#),
        ("value=1,\"text\":2", r#"the parameter `value`: "1,\"text\":2" is not JSON"#),
        ("text=a&text=b", "the parameter `text` is given twice"),
        ("author=x", "the parameter `author` is a message: name one of its fields"),
        ("text.a=x", "the parameter `text.a` names a part of a field without named parts"),
        ("at.seconds=1", "the parameter `at.seconds` names a part of a field without named parts"),
        ("limits=1", "the parameter `limits` is a map: write it as `limits[key]=value`"),
        ("text[a]=1", "the parameter `text[a]` has a key, but its field is not a map"),
        ("text=%f", "the query has an invalid percent-encoding or is not UTF-8"),
        ("text=%ff", "the query has an invalid percent-encoding or is not UTF-8"),
    ] {
        assert_eq!(message(&api, "GET", &format!("/v1/echo?{query}"), ""), error, "{query}");
    }
    let deep = format!("/v1/echo?{}flag=true", "inner.".repeat(2_000));
    assert_eq!(message(&api, "GET", &deep, ""), "the parameter `inner` is nested too deeply");
    let strict = RequestParts { query: "no=1", is_strict: true, ..RequestParts::default() };
    let error = found(&api, "GET", "/v1/echo").message(strict).unwrap_err();
    assert_eq!(error.to_string(), "the parameter `no` is not a field of library.v1.Everything");
}

#[test]
fn a_body_is_the_message_or_a_field() {
    let api = library();
    let body = r#"{"title": "T", "author": {"surname": "B"}}"#;
    assert_eq!(
        message(&api, "POST", "/v1/shelves/1/books?book_id=7&book.title=x&parent=y", body),
        format!(r#"{{"book":{body},"parent":"shelves/1","bookId":"7"}}"#)
    );
    assert_eq!(message(&api, "POST", "/v1/shelves/1/books", " \n"), r#"{"parent":"shelves/1"}"#);
    // The message itself is passed on unchanged, and the decoder checks it.
    assert_eq!(message(&api, "POST", "/v1/echo?text=ignored", r#"{"text": 1"#), r#"{"text": 1"#);
    assert_eq!(message(&api, "POST", "/v1/echo", ""), "{}");
    // The path takes precedence over the body, under both names of a field and within messages.
    let archive = |body| message(&api, "POST", "/v1/shelves/1/books/2:archive", body);
    let name = r#""name":"shelves/1/books/2""#;
    assert_eq!(
        archive(r#"{"reason": "old", "n\u0061me": "other", "x": [{}]}"#),
        format!(r#"{{"reason":"old","x":[{{}}],{name}}}"#)
    );
    assert_eq!(archive("{}"), format!("{{{name}}}"));
    let update = |body| message(&api, "PATCH", "/v1/shelves/1/books/2", body);
    assert_eq!(
        update(r#"{"name": "other", "title": "T", "author": {"first_name": "A", "surname": "B"}}"#),
        format!(
            r#"{{"book":{{"title":"T","author":{{"first_name": "A", "surname": "B"}},{name}}},"updateMask":"name,title,author.firstName,author.lastName"}}"#
        )
    );
    let empty = update(r#"{"author": { }, "title": ""}"#);
    assert!(empty.ends_with(r#""updateMask":"author,title"}"#), "{empty}");
    let masked = message(&api, "PATCH", "/v1/shelves/1/books/2?update_mask=title", r#"{"title": "T"}"#);
    assert_eq!(masked, format!(r#"{{"book":{{"title":"T",{name}}},"updateMask":"title"}}"#));
    let first = message(&api, "PUT", "/v1/echo/x?flag=true&author.surname=B&author.first_name=no", "\"A\"");
    assert_eq!(first, r#"{"author":{"firstName":"A","surname":"B"},"text":"x","flag":true}"#);
    let file = message(&api, "PUT", "/v1/files/a.txt", "hello");
    assert_eq!(file, r#"{"content":{"contentType":"text/plain","data":"aGVsbG8="},"path":"a.txt"}"#);
}

#[test]
fn a_body_cannot_leave_its_place() {
    let api = library();
    for (body, error) in [
        (r#"{"title": "T"}, "parent": "x""#, "the body is not JSON: text follows the value (at byte 14)"),
        (r#"{"title": "T""#, "the body is not JSON: the JSON ends too early (at byte 13)"),
        ("\u{7f}", "the body is not JSON: expected a value (at byte 0)"),
    ] {
        assert_eq!(message(&api, "POST", "/v1/shelves/1/books", body), error, "{body}");
    }
    let archive = |body| message(&api, "POST", "/v1/shelves/1/books/2:archive", body);
    assert_eq!(archive("[1]"), "the body is not an object, so it is not a library.v1.ArchiveBookRequest");
    assert!(archive(&"[".repeat(100_000)).starts_with("the body is not JSON: nested deeper than"));
    let parts = RequestParts { body: vec![b'"', 0xff, b'"'].into(), ..RequestParts::default() };
    let error = found(&api, "POST", "/v1/shelves/1/books").message(parts).unwrap_err();
    assert_eq!(error.to_string(), "the body is not UTF-8");
    let members = r#""author":{"firstName":""},"#.repeat(20_000);
    let update = message(&api, "PATCH", "/v1/shelves/1/books/2", &format!("{{{members}\"title\":\"\"}}"));
    assert_eq!(update, "the body has too many fields for a field mask of 65536 bytes: set `update_mask`");
}

#[test]
fn a_response_is_the_message_or_a_field() {
    let api = library();
    let list = found(&api, "GET", "/v1/shelves/1/books");
    let content = |json: &'static str| list.response(json.into()).unwrap().content;
    assert_eq!(content(r#"{"other":1,"books":[{"name":"a"}]}"#), r#"[{"name":"a"}]"#);
    assert_eq!(content("{}"), "[]");
    let file = found(&api, "GET", "/v1/files/a").response(r#"{"contentType":"a\/b","data":"aGk="}"#.into()).unwrap();
    assert_eq!((file.content_type.as_deref(), &file.content[..]), (Some("a/b"), &b"hi"[..]));
    let book = found(&api, "GET", "/v1/books/1").response("{}".into()).unwrap();
    assert_eq!((book.content_type, &book.content[..]), (None, &b"{}"[..]));
}

#[test]
fn invalid_rules_are_named_with_their_place() {
    let rule = |rule: &str| {
        let text = format!(
            "syntax = \"proto3\";\npackage p;\nimport \"google/api/annotations.proto\";\nmessage M {{ string a = 1; M m = 2; repeated M ms = 3; map<string, string> map = 4; }}\nservice S {{\n  rpc Do(M) returns (M) {{\n    option (google.api.http) = {{ {rule} }};\n  }}\n}}\n"
        );
        RestApi::read([&*compile("p.proto", &text)], |_| true).unwrap_err().to_string()
    };
    for (text, error) in [
        ("get: \"/{b}\"", "the path `/{b}`: p.M has no field `b`"),
        ("get: \"/{m}\"", "the path `/{m}`: the field `m` cannot be written as a single text"),
        ("get: \"/{ms.a}\"", "the path `/{ms.a}`: the field `ms` of p.M is not a single message"),
        ("get: \"/{map}\"", "the path `/{map}`: the field `map` cannot be written as a single text"),
        ("get: \"x\"", "the path `x`: a path template starts with a slash (at byte 0)"),
        ("post: \"/x\" body: \"b\"", "`body` names `b`: p.M has no field `b`"),
        ("get: \"/x\" response_body: \"b\"", "`response_body` names `b`: p.M has no field `b`"),
        ("body: \"*\"", "it has no HTTP method with a path"),
        (
            "custom { kind: \"get\" path: \"/x\" }",
            "`get` is not the name of an HTTP method: use capital letters, or `*` for any",
        ),
        (
            "get: \"/x\" additional_bindings { get: \"/y\" additional_bindings { get: \"/z\" } }",
            "an additional binding cannot have additional bindings",
        ),
    ] {
        assert_eq!(rule(text), format!("the HTTP rule of p.S/Do is invalid: {error}\n--> p.proto:7:5"), "{text}");
    }
}

#[test]
fn colliding_paths_are_named_with_both_methods() {
    let text = "syntax = \"proto3\";\nimport \"google/api/annotations.proto\";\nmessage M { string a = 1; string b = 2; }\nservice S {\n  rpc One(M) returns (M) { option (google.api.http) = { get: \"/x/{a}:go\" }; }\n  rpc Two(M) returns (M) { option (google.api.http) = { get: \"/x/{b=*}:go\" }; }\n}\n";
    let set = compile("p.proto", text);
    let error = RestApi::read([&*set], |_| true).unwrap_err();
    assert_eq!(
        error.to_string(),
        "S/One and S/Two have the same HTTP method and path: GET `/x/{a}:go` and `/x/{b=*}:go`\n--> p.proto:6:28\n--> p.proto:5:28 the other one\n = help: change one of the paths, or serve the methods on different servers"
    );
    // A server may serve one of them.
    assert_eq!(RestApi::read([&*set, &*set], |method| method != "S/One").unwrap().routes().len(), 1);
    assert!(
        RestApi::read([&b"\xff"[..]], |_| true).unwrap_err().to_string().starts_with("the descriptors cannot be read")
    );
}

/// Compares with `tests/library.openapi.json`. With `FRPC_REST_WRITE` set, writes the file instead.
#[test]
fn the_document_describes_all_routes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/library.openapi.json");
    let document = library().open_api(&OpenApiInfo::new("", "2.0.0"));
    if std::env::var_os("FRPC_REST_WRITE").is_some() {
        fs::write(&path, &document).unwrap();
    }
    assert_eq!(document, fs::read_to_string(path).unwrap());
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["paths"].as_object().unwrap().len(), 9);
}
