//! REST: path templates, requests and responses of an API, and annotations. The message of a request is JSON if its body
//! is.
#![no_main]

use std::sync::{Arc, LazyLock};

use arbitrary::Arbitrary;
use bytes::Bytes;
use frisbee_fuzz::fuzz_target;
use frpc_rest::{PathTemplate, RequestParts, RestApi, RouteMatch};
use serde::de::IgnoredAny;

/// The descriptors of `crates/frpc-rest/tests/library.proto`.
const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/library.v1.binpb"));

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Template(&'a str),
    Request(Request<'a>),
    Annotations(&'a [u8]),
}

#[derive(Arbitrary, Debug)]
struct Request<'a> {
    method: u8,
    path: Vec<Segment<'a>>,
    query: Vec<(u8, &'a str)>,
    content_type: &'a str,
    body: &'a [u8],
    is_strict: bool,
    response: &'a [u8],
}

#[derive(Arbitrary, Debug)]
enum Segment<'a> {
    Known(u8),
    Any(&'a str),
}

const METHODS: [&str; 8] = ["GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "REPORT", "OPTIONS"];

const SEGMENTS: [&str; 10] =
    ["v1", "shelves", "books", "echo", "files", "pages", "pages:count", "1:archive", "1", "%E4%BD%A0"];

const PARAMETERS: [&str; 10] = [
    "text",
    "numbers",
    "author.first_name",
    "book.author.surname",
    "update_mask",
    "page_size",
    "name",
    "author",
    "when",
    "reason",
];

static LIBRARY: LazyLock<Arc<RestApi>> =
    LazyLock::new(|| Arc::new(RestApi::read([DESCRIPTORS], |_| true).expect("the annotations are valid")));

fuzz_target!(|input: Input<'_>| match input {
    Input::Template(text) => template(text),
    Input::Request(request) => answer(&request),
    Input::Annotations(bytes) => {
        let _ = RestApi::read([bytes], |_| true);
    }
});

fn template(text: &str) {
    let Ok(template) = PathTemplate::parse(text) else { return };
    assert_eq!(template.as_str(), text);
    let mut fields: Vec<_> = template.fields().collect();
    fields.sort_unstable();
    assert!(fields.windows(2).all(|pair| pair[0] != pair[1]), "{fields:?}");
    assert!(template.verb().is_none_or(|verb| text.ends_with(&format!(":{verb}"))));
}

fn answer(request: &Request<'_>) {
    let pick = |choices: &[&'static str], index: u8| choices[usize::from(index) % choices.len()];
    let path: String = request.path.iter().fold(String::new(), |path, segment| match segment {
        Segment::Known(index) => path + "/" + pick(&SEGMENTS, *index),
        Segment::Any(text) => path + "/" + text,
    });
    let RouteMatch::Found(call) = LIBRARY.find(pick(&METHODS, request.method), &path) else { return };
    let query = request.query.iter().map(|(name, value)| format!("{}={value}", pick(&PARAMETERS, *name)));
    let query = query.collect::<Vec<_>>().join("&");
    let body = Bytes::copy_from_slice(request.body);
    let parts = RequestParts { query: &query, content_type: request.content_type, body, is_strict: request.is_strict };
    let is_json = call.takes_http_body() || request.body.trim_ascii().is_empty() || is_json(request.body);
    if let Ok(message) = call.message(parts)
        && is_json
    {
        assert!(self::is_json(&message), "{}", message.escape_ascii());
    }
    let response = Bytes::copy_from_slice(request.response);
    if let Some(content) = call.response(response)
        && is_json
        && content.content_type.is_none()
        && self::is_json(request.response)
    {
        assert!(self::is_json(&content.content), "{}", content.content.escape_ascii());
    }
}

fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(text).is_ok()
}
