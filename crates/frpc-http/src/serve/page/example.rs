//! Example requests: the JSON of a message with all fields, built from its descriptors.

use frpc::{
    MessageType,
    prost::Message,
    prost_types::{
        DescriptorProto, FieldDescriptorProto, FileDescriptorSet,
        field_descriptor_proto::{Label, Type},
    },
};

/// Returns the JSON of a message with an empty value in each field. `{}` if the descriptors do not contain the message.
pub(super) fn request(message: &MessageType) -> String {
    let Ok(set) = FileDescriptorSet::decode(message.descriptors) else { return EMPTY.to_owned() };
    let Some(declared) = find(&set, message.name) else { return EMPTY.to_owned() };
    let fields: Vec<String> =
        declared.field.iter().map(|field| format!("  \"{}\": {}", json_name(field), value(field))).collect();
    if fields.is_empty() { EMPTY.to_owned() } else { format!("{{\n{}\n}}", fields.join(",\n")) }
}

const EMPTY: &str = "{}";

fn find<'a>(set: &'a FileDescriptorSet, full_name: &str) -> Option<&'a DescriptorProto> {
    set.file.iter().find_map(|file| {
        let name = match file.package() {
            "" => full_name,
            package => full_name.strip_prefix(package)?.strip_prefix('.')?,
        };
        let (mut messages, mut found) = (&file.message_type, None);
        for part in name.split('.') {
            let message = messages.iter().find(|message| message.name() == part)?;
            (messages, found) = (&message.nested_type, Some(message));
        }
        found
    })
}

/// Returns the JSON name of a field, escaped for a JSON string.
fn json_name(field: &FieldDescriptorProto) -> String {
    let name = if field.json_name().is_empty() { field.name() } else { field.json_name() };
    let quoted = serde_json::Value::from(name).to_string();
    quoted.trim_matches('"').to_owned()
}

/// Returns the JSON of an empty value of the field type.
fn value(field: &FieldDescriptorProto) -> &'static str {
    if field.label() == Label::Repeated {
        // The compiler generates a nested message with this suffix for a map field.
        return if field.r#type() == Type::Message && field.type_name().ends_with("Entry") { "{}" } else { "[]" };
    }
    match field.r#type() {
        Type::String | Type::Bytes => "\"\"",
        Type::Bool => "false",
        Type::Message | Type::Group => "null",
        Type::Int64 | Type::Uint64 | Type::Sint64 | Type::Fixed64 | Type::Sfixed64 => "\"0\"",
        Type::Enum
        | Type::Double
        | Type::Float
        | Type::Int32
        | Type::Uint32
        | Type::Sint32
        | Type::Fixed32
        | Type::Sfixed32 => "0",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_request_has_the_fields_of_its_message() {
        const DESCRIPTORS: &[u8] = include_bytes!("../../../../frpc-build/tests/golden/shop/shop.order.v1.binpb");
        let json = request(&MessageType::new("shop.order.v1.Order", 0, DESCRIPTORS));
        assert_eq!(
            json,
            "{\n  \"id\": \"\",\n  \"items\": [],\n  \"size\": 0,\n  \"placedAt\": null,\n  \"note\": null,\n  \"units\": null\n}"
        );
        assert_eq!(request(&MessageType::new("google.protobuf.Empty", 0, DESCRIPTORS)), "{}");
    }

    #[test]
    fn an_undescribed_message_is_empty() {
        for (name, descriptors) in [("a.A", &b""[..]), ("a.A", b"\xff"), ("", b"")] {
            assert_eq!(request(&MessageType::new(name, 0, descriptors)), "{}");
        }
    }
}
