//! Declarations in proto syntax.

use std::{collections::BTreeSet, fmt::Write};

use frpc::prost_types::field_descriptor_proto::Label;
use prost_reflect::{EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor, ServiceDescriptor};

use crate::fields::type_name;

/// A named declaration.
#[derive(Clone, Debug)]
pub(crate) enum ProtoDeclaration {
    Service(ServiceDescriptor),
    Method(MethodDescriptor),
    Message(MessageDescriptor),
    Enum(EnumDescriptor),
}

impl ProtoDeclaration {
    /// Returns the declaration, followed by the declarations of its messages.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        match self {
            Self::Service(service) => write_service(&mut out, service),
            Self::Method(method) => write_method(&mut out, method, ""),
            Self::Message(message) => write_message(&mut out, message),
            Self::Enum(declared) => write_enum(&mut out, declared),
        }
        let mut seen = BTreeSet::new();
        let mut left: Vec<MessageDescriptor> = match self {
            Self::Service(service) => service.methods().flat_map(|method| [method.input(), method.output()]).collect(),
            Self::Method(method) => vec![method.input(), method.output()],
            Self::Message(message) => {
                seen.insert(message.full_name().to_owned());
                parts_of(message, &mut out, &mut seen)
            }
            Self::Enum(_) => Vec::new(),
        };
        left.reverse();
        while let Some(message) = left.pop() {
            // The well-known types do not change and are documented elsewhere.
            if message.full_name().starts_with("google.protobuf.") || !seen.insert(message.full_name().to_owned()) {
                continue;
            }
            out.push('\n');
            write_message(&mut out, &message);
            let mut parts = parts_of(&message, &mut out, &mut seen);
            parts.reverse();
            left.extend(parts);
        }
        out
    }
}

/// Writes the enums used by a message, and returns the messages used by it.
fn parts_of(message: &MessageDescriptor, out: &mut String, seen: &mut BTreeSet<String>) -> Vec<MessageDescriptor> {
    let mut messages = Vec::new();
    for field in message.fields() {
        let kind = match field.kind() {
            Kind::Message(entry) if entry.is_map_entry() => entry.map_entry_value_field().kind(),
            kind => kind,
        };
        match kind {
            Kind::Message(part) => messages.push(part),
            Kind::Enum(part) if seen.insert(part.full_name().to_owned()) => {
                out.push('\n');
                write_enum(out, &part);
            }
            _ => {}
        }
    }
    messages
}

// Writing to a string cannot fail.
fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = writeln!(out, "{text}");
}

fn comment(out: &mut String, file: &prost_reflect::FileDescriptor, path: &[i32], indent: &str) {
    let locations = file.file_descriptor_proto().source_code_info.iter().flat_map(|info| &info.location);
    let Some(found) = locations.into_iter().find(|location| location.path == path) else { return };
    for text in found.leading_comments().lines() {
        line(out, format_args!("{indent}//{text}"));
    }
}

fn write_service(out: &mut String, service: &ServiceDescriptor) {
    comment(out, &service.parent_file(), service.path(), "");
    line(out, format_args!("service {} {{", service.full_name()));
    service.methods().for_each(|method| write_method(out, &method, "  "));
    line(out, format_args!("}}"));
}

fn write_method(out: &mut String, method: &MethodDescriptor, indent: &str) {
    comment(out, &method.parent_service().parent_file(), method.path(), indent);
    let stream = |streams: bool| if streams { "stream " } else { "" };
    let (input, output) = (method.input(), method.output());
    // Outside of a service block, use the full name.
    let name = if indent.is_empty() { method.full_name() } else { method.name() };
    line(
        out,
        format_args!(
            "{indent}rpc {name}({}{}) returns ({}{});",
            stream(method.is_client_streaming()),
            input.full_name(),
            stream(method.is_server_streaming()),
            output.full_name()
        ),
    );
}

fn write_message(out: &mut String, message: &MessageDescriptor) {
    comment(out, &message.parent_file(), message.path(), "");
    line(out, format_args!("message {} {{", message.full_name()));
    let mut last_oneof = None;
    for field in message.fields() {
        let oneof = field.containing_oneof().filter(|oneof| !oneof.is_synthetic());
        let name = oneof.as_ref().map(|oneof| oneof.name().to_owned());
        if last_oneof != name {
            if last_oneof.is_some() {
                line(out, format_args!("  }}"));
            }
            if let Some(name) = &name {
                line(out, format_args!("  oneof {name} {{"));
            }
            last_oneof = name;
        }
        write_field(out, &field, if last_oneof.is_some() { "    " } else { "  " });
    }
    if last_oneof.is_some() {
        line(out, format_args!("  }}"));
    }
    line(out, format_args!("}}"));
}

fn write_field(out: &mut String, field: &FieldDescriptor, indent: &str) {
    comment(out, &field.parent_file(), field.path(), indent);
    let label = match field.field_descriptor_proto() {
        declared if declared.label() == Label::Required => "required ",
        declared if declared.proto3_optional() && !matches!(field.kind(), Kind::Message(_)) => "optional ",
        _ => "",
    };
    line(out, format_args!("{indent}{label}{} {} = {};", type_name(field), field.name(), field.number()));
}

fn write_enum(out: &mut String, declared: &EnumDescriptor) {
    comment(out, &declared.parent_file(), declared.path(), "");
    line(out, format_args!("enum {} {{", declared.full_name()));
    for value in declared.values() {
        line(out, format_args!("  {} = {};", value.name(), value.number()));
    }
    line(out, format_args!("}}"));
}
