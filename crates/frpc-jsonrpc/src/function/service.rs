//! Functions as a service, available on all wires of a server.

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use bytes::Bytes;
use frpc::{
    Answer, Body, BoxService, Call, Head, MessageType, Method, Status,
    codec::{CodecError, Format, MemoryBudget, json},
    prost::Message,
    prost_types::{
        self, FileDescriptorProto, FileDescriptorSet, ListValue, MethodDescriptorProto, ServiceDescriptorProto,
        SourceCodeInfo, Struct, source_code_info::Location, value::Kind,
    },
};
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{Called, Context, Description, Function, Functions, memory};
use crate::protos::types::function_methods;

impl Functions {
    /// Returns the functions as the service `frpc.Functions`, callable on every wire of a server.
    ///
    /// Its methods have the names of the functions, with `_` instead of characters other than letters, digits and
    /// underscores. Requests and responses are `google.protobuf.Value` messages, and their JSON is the plain value:
    /// over HTTP, `POST /frpc.Functions/sum` with `[1, 2]` or `{"a": 1, "b": 2}` returns `3`. JSON is passed through
    /// unchanged. In other formats, all numbers are 64-bit floating point, and a result without an exact representation
    /// is an error.
    ///
    /// Reflection describes the service. Its comments contain the schemas of the parameters and the result.
    ///
    /// ```
    /// use frpc::Server;
    /// use frpc_jsonrpc::{Functions, function};
    ///
    /// #[function]
    /// fn sum(a: i64, b: i64) -> i64 {
    ///     a + b
    /// }
    ///
    /// let functions = Functions::new().function(sum);
    /// let server = Server::builder().add_services([functions.service()]);
    /// # let _ = server;
    /// ```
    ///
    /// Each call leaks the memory of the method names. Call it once per set, not once per server.
    ///
    /// # Panics
    ///
    /// Panics if two functions have the same method name.
    pub fn service(&self) -> BoxService {
        self.service_named("frpc.Functions")
    }

    /// Returns the functions as a [service](Self::service) with another name, such as `math.Calculator`.
    ///
    /// # Panics
    ///
    /// Panics if two functions have the same method name.
    pub fn service_named(&self, name: &str) -> BoxService {
        let functions: Vec<Arc<dyn Function>> = self.sorted().cloned().collect();
        let methods = methods(name, functions.iter().map(|function| function.description()));
        let set = self.clone();
        BoxService::of_methods(methods, move |index, call| {
            let (function, set) = (functions[index].clone(), set.clone());
            Box::pin(async move { handle(&*function, |head| set.context(head), call).await })
        })
    }
}

/// Handles a call by calling a function, in the context created from the call's head.
pub(crate) async fn handle(
    function: &dyn Function,
    context: impl FnOnce(Head) -> Context,
    call: Call,
) -> Result<Answer, Status> {
    let format = call.format();
    let memory = call.memory_budget();
    let (head, body) = call.into_parts();
    let Body::One(content) = body else {
        return Err(Status::unimplemented("the method takes one message, not a stream"));
    };
    let content = content.into_bytes();
    let params = params(format, &content, memory)?;
    let mut out = Vec::new();
    let context = context(head).with_memory_budget(memory);
    memory::check(params.as_deref(), &context)?;
    match function.call(params.as_deref(), &context, &mut out) {
        Called::Written => {}
        Called::Failed(status) => return Err(status),
        Called::Later(result) => out = result.await?,
    }
    if out.is_empty() {
        out.extend_from_slice(b"null");
    }
    result(format, out).map(|content| Answer::new(Body::from(content)))
}

/// Returns the arguments as JSON.
fn params(format: Format, content: &Bytes, memory: MemoryBudget) -> Result<Option<Cow<'_, str>>, Status> {
    if content.is_empty() {
        return Ok(None);
    }
    let invalid =
        |error: &dyn std::error::Error| Status::invalid_argument(format!("the arguments are invalid: {error}"));
    if format == Format::Json {
        let text = std::str::from_utf8(content).map_err(|error| invalid(&error))?;
        serde_json::from_str::<IgnoredAny>(text).map_err(|error| invalid(&error))?;
        return Ok(Some(text.into()));
    }
    let value: prost_types::Value = format.decode_within(content, memory).map_err(|error| match error {
        error if error.is_too_much_memory() => Status::resource_exhausted(format!(
            "the arguments are too large: {error} (`message_memory_max` of the server sets the limit)"
        )),
        error => invalid(&error),
    })?;
    let text = json::to_string(&value).map_err(|error| invalid(&error))?;
    Ok(Some(text.into()))
}

/// Converts a result to the format of the call.
fn result(format: Format, out: Vec<u8>) -> Result<Bytes, Status> {
    if format == Format::Json {
        return Ok(out.into());
    }
    let value: Value = serde_json::from_slice(&out)
        .map_err(|error| Status::internal(format!("the result cannot be converted to {format}: {error}")))?;
    let content = format.encode(&to_proto(value)?).map_err(|error: CodecError| Status::from(error))?;
    Ok(content.into_bytes())
}

fn to_proto(value: Value) -> Result<prost_types::Value, Status> {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(value) => Kind::BoolValue(value),
        Value::String(text) => Kind::StringValue(text),
        Value::Number(number) => Kind::NumberValue(exact(&number)?),
        Value::Array(items) => {
            let values = items.into_iter().map(to_proto).collect::<Result<_, _>>()?;
            Kind::ListValue(ListValue { values })
        }
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| Ok((name, to_proto(value)?)));
            Kind::StructValue(Struct { fields: fields.collect::<Result<_, Status>>()? })
        }
    };
    Ok(prost_types::Value { kind: Some(kind) })
}

/// Returns a number as `f64`, or an error if the conversion is not exact.
fn exact(number: &serde_json::Number) -> Result<f64, Status> {
    let float = number.as_f64().unwrap_or(f64::NAN);
    let integer = number.as_i64().map(i128::from).or(number.as_u64().map(i128::from));
    #[allow(clippy::cast_possible_truncation, reason = "a number of 64 bits fits, and others are not the same")]
    let is_same = integer.is_none_or(|integer| float as i128 == integer);
    if is_same && float.is_finite() {
        return Ok(float);
    }
    let message = format!(
        "the result contains {number}, which google.protobuf.Value cannot represent: call the function in JSON"
    );
    Err(Status::out_of_range(message))
}

/// Declares the methods of a service. Their memory is leaked, because services need static methods.
fn methods<'a>(service: &str, functions: impl Iterator<Item = &'a Description> + Clone) -> &'static [Method] {
    let mut known = HashSet::new();
    let functions = functions.map(|function| (method_name(function.name()), function));
    for (name, function) in functions.clone() {
        assert!(
            known.insert(name.clone()),
            "two functions have the method name `{name}`: rename `{}`",
            function.name()
        );
    }
    let descriptors = Vec::leak(descriptors(service, functions.clone()).encode_to_vec());
    let types = function_methods::CALL.types.expect("generated methods have their types");
    let value = |found: &MessageType| -> &'static MessageType {
        Box::leak(Box::new(MessageType::new(found.name, found.fingerprint, descriptors)))
    };
    let (request, response) = (value(types.request), value(types.response));
    let service: &'static str = service.to_owned().leak();
    let operations = FIRST_OPERATION..=u16::MAX;
    let methods = functions
        .zip(operations)
        .map(|((name, _), operation)| Method::unary(service, name.leak(), operation).with_types(request, response));
    Vec::leak(methods.collect())
}

/// Returns the descriptors of the service and its dependencies.
fn descriptors<'a>(
    service: &str,
    functions: impl Iterator<Item = (String, &'a Description)> + Clone,
) -> FileDescriptorSet {
    let types = function_methods::CALL.types.expect("generated methods have their types");
    let mut set = FileDescriptorSet::decode(types.request.descriptors).expect("generated descriptors are right");
    set.file.retain(|file| file.name() == VALUE_FILE);
    let (package, name) = service.rsplit_once('.').unwrap_or(("", service));
    let method = |(name, _): (String, &Description)| MethodDescriptorProto {
        name: Some(name),
        input_type: Some(".google.protobuf.Value".to_owned()),
        output_type: Some(".google.protobuf.Value".to_owned()),
        ..Default::default()
    };
    let comment = |(index, (_, function)): (i32, (String, &Description))| Location {
        path: vec![SERVICE_FIELD, 0, METHOD_FIELD, index],
        span: vec![0, 0, 0],
        leading_comments: Some(comment(function)),
        ..Default::default()
    };
    set.file.push(FileDescriptorProto {
        name: Some(format!("{}.proto", service.replace('.', "/"))),
        package: Some(package.to_owned()).filter(|package| !package.is_empty()),
        dependency: vec![VALUE_FILE.to_owned()],
        service: vec![ServiceDescriptorProto {
            name: Some(name.to_owned()),
            method: functions.clone().map(method).collect(),
            ..Default::default()
        }],
        source_code_info: Some(SourceCodeInfo { location: (0..).zip(functions).map(comment).collect() }),
        syntax: Some("proto3".to_owned()),
        ..Default::default()
    });
    set
}

/// Returns the comment on a method: the documentation of the function and the schemas.
fn comment(function: &Description) -> String {
    let mut comment = function.docs().to_owned();
    if !comment.is_empty() {
        comment.push_str("\n\n");
    }
    for parameter in function.parameters() {
        let optional = if parameter.is_required() { "" } else { " (optional)" };
        comment.push_str(&format!("{}{optional}: {}\n", parameter.name(), parameter.schema()));
    }
    comment.push_str(&format!("returns: {}\n", function.result()));
    comment
}

/// Returns the name of a function as a valid method name.
fn method_name(name: &str) -> String {
    let sign = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
    let mut name: String = name.chars().map(sign).collect();
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        name.insert(0, '_');
    }
    name
}

/// The file declaring `google.protobuf.Value`.
const VALUE_FILE: &str = "google/protobuf/struct.proto";
/// The field number of `service` in a file descriptor.
const SERVICE_FIELD: i32 = 6;
/// The field number of `method` in a service descriptor.
const METHOD_FIELD: i32 = 2;
/// The operation number of the first function, above the numbers of services from proto files. Extended peers find
/// methods by name.
const FIRST_OPERATION: u16 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_out_of_range_number_is_an_error() {
        let value = |text: &str| result(Format::Proto, text.as_bytes().to_vec());
        for text in ["9007199254740992", "-9007199254740992", "18446744073709549568", "0.1", "1e300"] {
            let content = value(text).unwrap();
            let back = prost_types::Value::decode(content).unwrap();
            assert_eq!(back.kind, Some(Kind::NumberValue(text.parse().unwrap())), "{text}");
        }
        for text in ["9007199254740993", "[-9007199254740993]", "{\"a\":18446744073709551615}"] {
            let status = value(text).unwrap_err();
            assert_eq!(status.code(), frpc::Code::OutOfRange, "{text}");
        }
    }

    #[test]
    fn function_names_become_method_names() {
        for (name, expected) in [("sum", "sum"), ("text.greet", "text_greet"), ("2d", "_2d"), ("gr\u{fc}n", "gr_n")] {
            assert_eq!(method_name(name), expected);
        }
    }
}
