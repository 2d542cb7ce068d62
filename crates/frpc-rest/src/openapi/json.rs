//! JSON with members in the order of their insertion.

use frpc_json::text::put_string;

/// A JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JsonValue {
    Bool(bool),
    Text(String),
    List(Vec<JsonValue>),
    Object(JsonObject),
}

/// A JSON object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JsonObject(Vec<(String, JsonValue)>);

impl JsonObject {
    /// Creates an object without members.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Creates an object with one member.
    pub(crate) fn of(name: &str, value: impl Into<JsonValue>) -> Self {
        Self::new().with(name, value)
    }

    /// Adds a member.
    pub(crate) fn with(mut self, name: &str, value: impl Into<JsonValue>) -> Self {
        self.put(name, value);
        self
    }

    /// Adds a member, unless the text is empty.
    pub(crate) fn with_text(self, name: &str, text: &str) -> Self {
        if text.is_empty() { self } else { self.with(name, text) }
    }

    /// Adds the member `deprecated`, if `is_deprecated`.
    pub(crate) fn with_deprecated(self, is_deprecated: bool) -> Self {
        if is_deprecated { self.with("deprecated", true) } else { self }
    }

    pub(crate) fn put(&mut self, name: &str, value: impl Into<JsonValue>) {
        self.0.push((name.to_owned(), value.into()));
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(other, _)| other == name)
    }

    /// Removes a member.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.0.retain(|(other, _)| other != name);
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the text, indented, with a new line at the end.
    pub(crate) fn to_text(&self) -> String {
        let mut out = Vec::new();
        put_object(&mut out, self, 0);
        out.push(b'\n');
        String::from_utf8(out).expect("only text is written")
    }
}

impl From<bool> for JsonValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<&str> for JsonValue {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for JsonValue {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<JsonObject> for JsonValue {
    fn from(value: JsonObject) -> Self {
        Self::Object(value)
    }
}

impl<T: Into<JsonValue>> FromIterator<T> for JsonValue {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }
}

fn put_value(out: &mut Vec<u8>, value: &JsonValue, depth: usize) {
    match value {
        JsonValue::Bool(value) => out.extend_from_slice(value.to_string().as_bytes()),
        JsonValue::Text(value) => put_string(out, value),
        JsonValue::Object(object) => put_object(out, object, depth),
        JsonValue::List(values) => {
            let is_short = values.iter().all(|value| matches!(value, JsonValue::Text(_)));
            out.push(b'[');
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    out.extend_from_slice(if is_short { b", " } else { b"," });
                }
                if !is_short {
                    put_line(out, depth + 1);
                }
                put_value(out, value, depth + 1);
            }
            if !is_short {
                put_line(out, depth);
            }
            out.push(b']');
        }
    }
}

fn put_object(out: &mut Vec<u8>, JsonObject(members): &JsonObject, depth: usize) {
    out.push(b'{');
    for (index, (name, value)) in members.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        put_line(out, depth + 1);
        put_string(out, name);
        out.extend_from_slice(b": ");
        put_value(out, value, depth + 1);
    }
    if !members.is_empty() {
        put_line(out, depth);
    }
    out.push(b'}');
}

fn put_line(out: &mut Vec<u8>, depth: usize) {
    out.push(b'\n');
    out.extend(std::iter::repeat_n(b' ', 2 * depth));
}
