//! From the JSON of a message to the body of a response.

use bytes::Bytes;
use frpc_json::{Splitter, base64, text::unescape};

use crate::{
    routes::{RestApi, RouteCall},
    types::{FieldInfo, FieldLabel, ScalarKind, ValueKind, WellKnown},
};

/// The body of a response, or one message of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseContent {
    /// The bytes.
    pub content: Bytes,
    /// The content type of a `google.api.HttpBody`. `None` for JSON.
    pub content_type: Option<String>,
}

impl RouteCall {
    /// Returns the body of a response, given the JSON of its message: the message, its field in `response_body`, or the
    /// bytes of a `google.api.HttpBody`. `None` if the JSON is not an object.
    pub fn response(&self, json: Bytes) -> Option<ResponseContent> {
        let (api, route) = (&self.api, self.route());
        let (json, of) = match route.response_body {
            None => (json, Some(&*route.output)),
            Some(index) => {
                let field = &api.types.message(&route.output)?.fields[index];
                let of = field.message().filter(|_| field.shape.is_one());
                let json = match member(str::from_utf8(&json).ok()?, &field.json_name) {
                    Some(value) => json.slice_ref(value.as_bytes()),
                    None => api.default_of(field).into(),
                };
                (json, of)
            }
        };
        if of.and_then(WellKnown::of) != Some(WellKnown::HttpBody) {
            return Some(ResponseContent { content: json, content_type: None });
        }
        let json = str::from_utf8(&json).ok()?;
        let text = |name| member(json, name)?.strip_prefix('"')?.strip_suffix('"').and_then(unescape);
        let content_type = text("contentType").unwrap_or_default().into_owned();
        let content = base64::decode(&text("data").unwrap_or_default())?.into();
        Some(ResponseContent { content, content_type: Some(content_type) })
    }

    /// Returns `true` if responses are bytes of a `google.api.HttpBody` instead of JSON.
    pub fn has_http_body(&self) -> bool {
        let route = self.route();
        let field = route.response_body.and_then(|index| Some(&self.api.types.message(&route.output)?.fields[index]));
        let of = if route.response_body.is_some() { field.and_then(FieldInfo::message) } else { Some(&*route.output) };
        of.and_then(WellKnown::of) == Some(WellKnown::HttpBody)
    }
}

impl RestApi {
    /// Returns the JSON of a field that its message omits.
    fn default_of(&self, field: &FieldInfo) -> String {
        match (&field.of, field.shape) {
            (_, FieldLabel::Repeated) => "[]".to_owned(),
            (_, FieldLabel::Map(_)) => "{}".to_owned(),
            (ValueKind::Message(_), _) => "null".to_owned(),
            (ValueKind::Enum(name), _) => {
                let first = self.types.enumeration(name).and_then(|declared| declared.values.first());
                first.map_or("0".to_owned(), |value| format!("\"{}\"", value.name))
            }
            (ValueKind::Scalar(kind), _) => match kind {
                ScalarKind::Bool => "false",
                ScalarKind::Int64 | ScalarKind::Uint64 => "\"0\"",
                ScalarKind::String | ScalarKind::Bytes => "\"\"",
                _ => "0",
            }
            .to_owned(),
        }
    }
}

/// Returns the value of a member of an object that our encoder wrote.
fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let mut members = Splitter::new(object);
    if members.next_byte() != Some(b'{') {
        return None;
    }
    while members.peek()? != b'}' {
        let found = members.value()?.strip_prefix('"')?.strip_suffix('"').and_then(unescape)?;
        members.next_byte();
        let value = members.value()?;
        if found == name {
            return Some(value);
        }
        if members.peek() == Some(b',') {
            members.next_byte();
        }
    }
    None
}
