//! From the path, the query and the body of a request to the JSON of its message.

use std::borrow::Cow;

use bytes::Bytes;
use frpc_json::{DEPTH_MAX, Scanner, Splitter, text::put_string, text::unescape};

use crate::{
    mask,
    params::{ParamFields, ParamNode, RequestError},
    routes::{BodyRule, RouteCall},
    template,
    types::{FieldInfo, FieldLabel, MessageInfo, TypeTable, ValueKind, WellKnown},
    values,
};

/// The parts of a request other than its path.
#[derive(Clone, Debug, Default)]
pub struct RequestParts<'a> {
    /// The query of the URL, still encoded.
    pub query: &'a str,
    /// The content type of the body.
    pub content_type: &'a str,
    /// The body, decompressed.
    pub body: Bytes,
    /// `true` if unknown parameters of the query are errors. Otherwise they are ignored.
    pub is_strict: bool,
}

impl RouteCall {
    /// Returns the JSON of the request message. The fields in the path take precedence over the same fields in the body,
    /// and both over parameters of the query.
    ///
    /// The JSON is valid only if the body is; the decoder of the message checks it.
    ///
    /// # Errors
    ///
    /// If a value does not fit its field, or the body cannot be combined with the other parts.
    pub fn message(&self, parts: RequestParts<'_>) -> Result<Bytes, RequestError> {
        let (api, route, values) = (&self.api, self.route(), &self.values);
        let types = &api.types;
        let mut fields = ParamFields::new();
        let paths = route.variables.iter().zip(route.template.fields()).zip(values);
        for ((indices, name), value) in paths {
            let field = types.field_at(&route.input, indices).ok_or_else(|| format!("no field {name}"))?;
            let values = match field.shape {
                FieldLabel::One => vec![value.clone()],
                _ => value.split(',').map(str::to_owned).collect(),
            };
            put(&mut fields, indices, ParamNode::Values(values));
        }
        if route.body.has_query() {
            for (name, value) in query_pairs(parts.query)? {
                self.put_query(&mut fields, &name, value, parts.is_strict)?;
            }
        }
        let text = match &route.body {
            BodyRule::None => None,
            _ => self.body_text(&parts)?,
        };
        // The most frequent request: everything is in the body.
        if fields.is_empty() && route.body == BodyRule::Whole {
            return Ok(match text {
                Some(Cow::Borrowed(text)) => parts.body.slice_ref(text.as_bytes()),
                Some(Cow::Owned(text)) => text.into(),
                None => Bytes::from_static(b"{}"),
            });
        }
        let text = text.as_deref();
        if let Some(text) = text {
            check_json(text)?;
        }
        let message = types.message(&route.input).ok_or_else(|| format!("no message {}", route.input))?;
        let mut out = Vec::with_capacity(text.map_or(0, str::len) + 64);
        match (&route.body, text) {
            (BodyRule::Field(path), Some(text)) => {
                if let ("PATCH", [index]) = (&*route.http_method, &path[..]) {
                    mask::complete(types, message, *index, text, &mut fields)?;
                }
                put_object(types, &mut out, message, &fields, BodyText::Field(path, text))?;
            }
            (_, Some(text)) => put_object(types, &mut out, message, &fields, BodyText::Whole(text))?,
            (_, None) => put_object(types, &mut out, message, &fields, BodyText::None)?,
        }
        Ok(out.into())
    }

    /// Returns `true` if the body of a request is a `google.api.HttpBody`, which has any content type.
    pub fn takes_http_body(&self) -> bool {
        let route = self.route();
        let of = match &route.body {
            BodyRule::None => None,
            BodyRule::Whole => Some(&*route.input),
            BodyRule::Field(path) => self.api.types.field_at(&route.input, path).and_then(FieldInfo::message),
        };
        of.and_then(WellKnown::of) == Some(WellKnown::HttpBody)
    }

    /// Returns the body as JSON. `None` if it is empty.
    fn body_text<'b>(&self, parts: &'b RequestParts<'_>) -> Result<Option<Cow<'b, str>>, RequestError> {
        if self.takes_http_body() {
            return Ok(Some(Cow::Owned(values::http_body(parts.content_type, &parts.body))));
        }
        let text = str::from_utf8(&parts.body).map_err(|_| "the body is not UTF-8".to_owned())?;
        let is_blank = text.bytes().all(|byte| byte.is_ascii_whitespace());
        Ok((!is_blank).then_some(Cow::Borrowed(text)))
    }

    /// Adds a parameter of the query.
    fn put_query(
        &self,
        fields: &mut ParamFields,
        name: &str,
        value: String,
        is_strict: bool,
    ) -> Result<(), RequestError> {
        let (api, route) = (&self.api, self.route());
        let (path, key) = match name.strip_suffix(']').and_then(|name| name.split_once('[')) {
            Some((path, key)) => (path, Some(key)),
            None => (name, None),
        };
        let unknown = || match is_strict {
            true => Err(RequestError(format!("the parameter `{name}` is not a field of {}", route.input))),
            false => Ok(()),
        };
        let mut indices = Vec::new();
        let (mut message, mut parts) = (&*route.input, path.split('.').peekable());
        let field = loop {
            let part = parts.next().unwrap_or_default();
            let Some(info) = api.types.message(message) else { return unknown() };
            let Some(index) = info.index_of(part) else { return unknown() };
            indices.push(index);
            let field = &info.fields[index];
            if parts.peek().is_none() {
                break field;
            }
            if indices.len() >= PATH_LEN_MAX {
                return Err(format!("the parameter `{part}` is nested too deeply").into());
            }
            match (field.message(), field.shape) {
                (Some(of), FieldLabel::One) if WellKnown::of(of).is_none() => message = of,
                _ => return Err(format!("the parameter `{name}` names a part of a field without named parts").into()),
            }
        };
        // These fields have another source.
        let is_bound = |bound: &Vec<usize>| indices.starts_with(bound);
        let is_in_body = matches!(&route.body, BodyRule::Field(path) if is_bound(path));
        if is_in_body || route.variables.iter().any(is_bound) {
            return Ok(());
        }
        let node = match (key, field.shape) {
            (Some(key), FieldLabel::Map(_)) => ParamNode::Entries(vec![(key.to_owned(), value)]),
            (Some(_), _) => return Err(format!("the parameter `{name}` has a key, but its field is not a map").into()),
            (None, FieldLabel::Map(_)) => {
                return Err(format!("the parameter `{name}` is a map: write it as `{name}[key]=value`").into());
            }
            (None, _) if !field.has_text_form() => {
                return Err(format!("the parameter `{name}` is a message: name one of its fields").into());
            }
            (None, _) => ParamNode::Values(vec![value]),
        };
        if !put(fields, &indices, node) {
            return Err(format!("the parameter `{name}` contradicts another one").into());
        }
        Ok(())
    }
}

/// Adds a parameter. Returns `false` if it contradicts an earlier one.
fn put(fields: &mut ParamFields, indices: &[usize], node: ParamNode) -> bool {
    let Some((&index, below)) = indices.split_first() else { return false };
    if !below.is_empty() {
        let ParamNode::Fields(inner) = fields.entry(index).or_insert_with(|| ParamNode::Fields(ParamFields::new()))
        else {
            return false;
        };
        return put(inner, below, node);
    }
    match (fields.get_mut(&index), node) {
        (None, node) => drop(fields.insert(index, node)),
        (Some(ParamNode::Values(values)), ParamNode::Values(more)) => values.extend(more),
        (Some(ParamNode::Entries(entries)), ParamNode::Entries(more)) => entries.extend(more),
        _ => return false,
    }
    true
}

/// Decodes the parameters of a query.
fn query_pairs(query: &str) -> Result<Vec<(String, String)>, RequestError> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let decode = |text: &str| {
        template::decode(&text.replace('+', " "))
            .ok_or_else(|| RequestError("the query has an invalid percent-encoding or is not UTF-8".to_owned()))
    };
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name)?, decode(value)?))
        })
        .collect()
}

/// Checks that a body is one JSON value, because it becomes a part of a larger one.
fn check_json(text: &str) -> Result<(), RequestError> {
    let mut scanner = Scanner::new(text, DEPTH_MAX);
    let error = match scanner.value() {
        Ok(_) if scanner.peek().is_none() => return Ok(()),
        Ok(_) => "text follows the value".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(format!("the body is not JSON: {error} (at byte {})", scanner.position()).into())
}

/// The body as a part of an object.
#[derive(Clone, Copy)]
enum BodyText<'a> {
    None,
    /// The members of the object itself.
    Whole(&'a str),
    /// The value of the field at the end of this path.
    Field(&'a [usize], &'a str),
}

/// Writes an object with parameters and the body. `text` was checked.
fn put_object(
    types: &TypeTable,
    out: &mut Vec<u8>,
    message: &MessageInfo,
    fields: &ParamFields,
    body: BodyText<'_>,
) -> Result<(), RequestError> {
    out.push(b'{');
    // Fields whose parameters were written as a part of the body.
    let mut merged = Vec::new();
    match body {
        BodyText::None => {}
        BodyText::Field([index, below @ ..], text)
            if matches!(fields.get(index), None | Some(ParamNode::Fields(_))) =>
        {
            let body = if below.is_empty() { BodyText::Whole(text) } else { BodyText::Field(below, text) };
            put_member(types, out, message, *index, fields, body)?;
            merged.push(*index);
        }
        BodyText::Field(..) => {}
        BodyText::Whole(text) => {
            let mut members = Splitter::new(text);
            if members.next_byte() != Some(b'{') {
                return Err(format!("the body is not an object, so it is not a {}", message.name).into());
            }
            while members.peek().is_some_and(|byte| byte != b'}') {
                let Some(name) = members.value() else { break };
                members.next_byte();
                let Some(value) = members.value() else { break };
                if members.peek() == Some(b',') {
                    members.next_byte();
                }
                let plain = name.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
                let plain = plain.and_then(unescape).unwrap_or_default();
                let index = message.index_of(&plain).filter(|index| fields.contains_key(index));
                match index {
                    Some(index) if matches!(fields.get(&index), Some(ParamNode::Fields(_))) => {
                        put_member(types, out, message, index, fields, BodyText::Whole(value))?;
                        merged.push(index);
                    }
                    // The parameter replaces the member.
                    Some(_) => {}
                    None => {
                        comma(out);
                        out.extend_from_slice(name.as_bytes());
                        out.push(b':');
                        out.extend_from_slice(value.as_bytes());
                    }
                }
            }
        }
    }
    for (index, node) in fields.iter().filter(|(index, _)| !merged.contains(index)) {
        let field = &message.fields[*index];
        comma(out);
        put_string(out, &field.json_name);
        out.push(b':');
        match node {
            ParamNode::Values(values) => put_values(types, out, field, values)?,
            ParamNode::Entries(entries) => put_entries(types, out, field, entries)?,
            ParamNode::Fields(inner) => put_object(types, out, of_field(types, field)?, inner, BodyText::None)?,
        }
    }
    out.push(b'}');
    Ok(())
}

/// Writes a member of the body, with the parameters of its message.
fn put_member(
    types: &TypeTable,
    out: &mut Vec<u8>,
    message: &MessageInfo,
    index: usize,
    fields: &ParamFields,
    body: BodyText<'_>,
) -> Result<(), RequestError> {
    let field = &message.fields[index];
    comma(out);
    put_string(out, &field.json_name);
    out.push(b':');
    match (fields.get(&index), body) {
        (Some(ParamNode::Fields(inner)), BodyText::Whole(text)) if text.trim() == "null" => {
            put_object(types, out, of_field(types, field)?, inner, BodyText::None)
        }
        (Some(ParamNode::Fields(inner)), body) => put_object(types, out, of_field(types, field)?, inner, body),
        (_, BodyText::Whole(text)) => {
            out.extend_from_slice(text.as_bytes());
            Ok(())
        }
        (_, body) => put_object(types, out, of_field(types, field)?, &ParamFields::new(), body),
    }
}

fn of_field<'t>(types: &'t TypeTable, field: &FieldInfo) -> Result<&'t MessageInfo, RequestError> {
    let message = field.message().and_then(|name| types.message(name));
    message.ok_or_else(|| RequestError(format!("the field `{}` has no fields", field.name)))
}

fn put_values(types: &TypeTable, out: &mut Vec<u8>, field: &FieldInfo, values: &[String]) -> Result<(), RequestError> {
    if field.shape.is_one() {
        let [value] = values else { return Err(format!("the parameter `{}` is given twice", field.name).into()) };
        return put_value(types, out, field, value);
    }
    out.push(b'[');
    for value in values {
        if out.last() != Some(&b'[') {
            out.push(b',');
        }
        put_value(types, out, field, value)?;
    }
    out.push(b']');
    Ok(())
}

fn put_entries(
    types: &TypeTable,
    out: &mut Vec<u8>,
    field: &FieldInfo,
    entries: &[(String, String)],
) -> Result<(), RequestError> {
    out.push(b'{');
    for (key, value) in entries {
        comma(out);
        put_string(out, key);
        out.push(b':');
        put_value(types, out, field, value)?;
    }
    out.push(b'}');
    Ok(())
}

/// Writes one value of a field.
fn put_value(types: &TypeTable, out: &mut Vec<u8>, field: &FieldInfo, value: &str) -> Result<(), RequestError> {
    let put = match &field.of {
        ValueKind::Scalar(kind) => values::put_scalar(out, *kind, value),
        ValueKind::Enum(name) => values::put_enum(out, types.enumeration(name), value),
        ValueKind::Message(name) => values::put_well_known(out, WellKnown::of(name), value),
    };
    put.map_err(|expected| {
        let shown: String = value.chars().take(SHOWN_LEN_MAX).collect();
        RequestError(format!("the parameter `{}`: {shown:?} is not {expected}", field.name))
    })
}

fn comma(out: &mut Vec<u8>) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
}

/// The maximum number of names in the path of a parameter.
const PATH_LEN_MAX: usize = 64;

/// The number of characters of a value in an error.
const SHOWN_LEN_MAX: usize = 80;
