//! Fields marked as required by options. The types of prost lack these options.

use std::collections::HashSet;

use protox::prost::{self, Message as _};

/// The parts of descriptor.proto needed to reach the options of fields.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(prost_path = "protox::prost")]
struct OptionFiles {
    #[prost(message, repeated, tag = "1")]
    file: Vec<OptionFile>,
}

#[derive(Clone, PartialEq, prost::Message)]
#[prost(prost_path = "protox::prost")]
struct OptionFile {
    #[prost(string, tag = "2")]
    package: String,
    #[prost(message, repeated, tag = "4")]
    message_type: Vec<OptionMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
#[prost(prost_path = "protox::prost")]
struct OptionMessage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    field: Vec<OptionField>,
    #[prost(message, repeated, tag = "3")]
    nested_type: Vec<OptionMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
#[prost(prost_path = "protox::prost")]
struct OptionField {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "8")]
    options: Option<FieldMarks>,
}

/// The options with marks: `(google.api.field_behavior)` and `(buf.validate.field)`.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(prost_path = "protox::prost")]
struct FieldMarks {
    #[prost(int32, repeated, tag = "1052")]
    behavior: Vec<i32>,
    #[prost(message, optional, tag = "1159")]
    rules: Option<FieldRules>,
}

#[derive(Clone, PartialEq, prost::Message)]
#[prost(prost_path = "protox::prost")]
struct FieldRules {
    #[prost(bool, tag = "25")]
    required: bool,
    #[prost(int32, tag = "27")]
    ignore: i32,
}

/// Returns the full names of all fields marked as required.
///
/// # Errors
///
/// Fails if `encoded` is not an encoded `FileDescriptorSet`.
pub(crate) fn marked(encoded: &[u8]) -> Result<HashSet<String>, prost::DecodeError> {
    let mut marked = HashSet::new();
    for file in OptionFiles::decode(encoded)?.file {
        file.message_type.iter().for_each(|message| add(message, &file.package, &mut marked));
    }
    Ok(marked)
}

fn add(message: &OptionMessage, parent: &str, marked: &mut HashSet<String>) {
    let full_name = if parent.is_empty() { message.name.clone() } else { format!("{parent}.{}", message.name) };
    let fields = message.field.iter().filter(|field| field.is_marked());
    marked.extend(fields.map(|field| format!("{full_name}.{}", field.name)));
    message.nested_type.iter().for_each(|nested| add(nested, &full_name, marked));
}

impl OptionField {
    fn is_marked(&self) -> bool {
        let Some(options) = &self.options else { return false };
        let rules = options.rules.as_ref().filter(|rules| rules.ignore != IGNORE_ALWAYS);
        options.behavior.contains(&BEHAVIOR_REQUIRED) || rules.is_some_and(|rules| rules.required)
    }
}

/// Value of `google.api.FieldBehavior`.
const BEHAVIOR_REQUIRED: i32 = 2;
/// Value of `buf.validate.Ignore`: the rules of the field do not apply.
const IGNORE_ALWAYS: i32 = 3;
