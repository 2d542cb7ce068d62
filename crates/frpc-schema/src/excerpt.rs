//! Excerpts of a schema, for peers to check the compatibility of their own messages.

use std::{collections::HashSet, ptr};

use prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet, MessageOptions,
    OneofDescriptorProto, field_descriptor_proto::Type,
};

use crate::{check::is_entry, compat::Declarations};

/// Returns descriptors of the given messages and of all messages they contain.
///
/// An excerpt has everything [`find_mismatch`](crate::compat::find_mismatch) looks at. It omits enums, options and defaults. A
/// message included only because a needed one is nested in it has no fields.
pub fn excerpt(set: &FileDescriptorSet, messages: &[&str]) -> FileDescriptorSet {
    let declarations = Declarations::of(set);
    let (mut left, mut wanted) = (messages.to_vec(), NeededMessages::new());
    while let Some(name) = left.pop() {
        let Some(message) = declarations.get(name) else { continue };
        // Visit each message once, because messages may contain each other.
        if wanted.insert(ptr::from_ref(message)) {
            left.extend(
                message
                    .field
                    .iter()
                    .filter(|field| matches!(field.r#type(), Type::Message | Type::Group))
                    .map(|field| field.type_name()),
            );
        }
    }
    let files = set.file.iter().map(|file| FileDescriptorProto {
        name: file.name.clone(),
        package: file.package.clone(),
        message_type: kept(&file.message_type, &wanted),
        syntax: file.syntax.clone(),
        ..FileDescriptorProto::default()
    });
    FileDescriptorSet { file: files.filter(|file| !file.message_type.is_empty()).collect() }
}

/// The needed messages of a set, identified by address.
type NeededMessages = HashSet<*const DescriptorProto>;

/// Returns the needed messages, and those with needed messages nested in them.
fn kept(messages: &[DescriptorProto], wanted: &NeededMessages) -> Vec<DescriptorProto> {
    let kept = messages.iter().filter_map(|message| {
        let name = message.name.clone();
        let nested_type = kept(&message.nested_type, wanted);
        if !wanted.contains(&ptr::from_ref(message)) {
            let around = DescriptorProto { name, nested_type, ..DescriptorProto::default() };
            return (!around.nested_type.is_empty()).then_some(around);
        }
        let options = MessageOptions { map_entry: Some(true), ..MessageOptions::default() };
        Some(DescriptorProto {
            name,
            field: message.field.iter().map(bare).collect(),
            nested_type,
            oneof_decl: message.oneof_decl.iter().map(named).collect(),
            options: is_entry(message).then_some(options),
            ..DescriptorProto::default()
        })
    });
    kept.collect()
}

fn bare(field: &FieldDescriptorProto) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: field.name.clone(),
        number: field.number,
        label: field.label,
        r#type: field.r#type,
        type_name: field.type_name.clone(),
        oneof_index: field.oneof_index,
        proto3_optional: field.proto3_optional,
        ..FieldDescriptorProto::default()
    }
}

fn named(oneof: &OneofDescriptorProto) -> OneofDescriptorProto {
    OneofDescriptorProto { name: oneof.name.clone(), options: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        compat::{DeclaredMessage, MessageRole, PeerRole, find_mismatch},
        testing::{compiled, compiled_files},
    };

    const BODY: &str = "
        message M { N n = 1; map<string, O.P> entries = 2; oneof x { M next = 3; E mood = 4; } optional bool c = 5; }
        message N { string text = 1 [deprecated = true]; }
        message O { message P { N n = 1; } bool alone = 1; }
        message Other { M m = 1; }
        enum E { A = 0; }";

    fn names(messages: &[DescriptorProto]) -> Vec<String> {
        messages
            .iter()
            .flat_map(|message| {
                let nested =
                    names(&message.nested_type).into_iter().map(|nested| format!("{}.{nested}", message.name()));
                let own = format!("{}/{}", message.name(), message.field.len());
                std::iter::once(own).chain(nested).collect::<Vec<_>>()
            })
            .collect()
    }

    #[test]
    fn an_excerpt_contains_only_reachable_declarations() {
        let set = compiled(BODY);
        let excerpts = |name| {
            let excerpt = excerpt(&set, &[name]);
            excerpt.file.first().map_or(Vec::new(), |file| names(&file.message_type))
        };
        assert_eq!(excerpts("t.M"), ["M/5", "M.EntriesEntry/2", "N/1", "O/0", "O.P/1"]);
        assert_eq!(excerpts("t.N"), ["N/1"]);
        assert_eq!(excerpts("t.Unknown"), [""; 0]);
        let excerpt = excerpt(&set, &["t.N"]);
        assert!(excerpt.file[0].enum_type.is_empty() && excerpt.file[0].message_type[0].field[0].options.is_none());
    }

    #[test]
    fn an_excerpt_compares_like_the_whole() {
        let there = [BODY.to_owned(), BODY.replace("string text", "int32 text"), BODY.replace("E mood", "string mood")];
        let here = compiled(BODY);
        for there in there.map(|body| compiled(&body)) {
            let ask = |here: &FileDescriptorSet, there: &FileDescriptorSet| {
                let [here, there] = [here, there].map(Declarations::of);
                let [here, there] = [&here, &there].map(|declarations| DeclaredMessage { declarations, name: "t.M" });
                find_mismatch(here, there, PeerRole::Server, MessageRole::Request)
            };
            assert_eq!(ask(&here, &excerpt(&there, &["t.M"])), ask(&here, &there));
            assert_eq!(ask(&excerpt(&here, &["t.M"]), &there), ask(&here, &there));
        }
    }

    #[test]
    fn messages_stay_in_their_files() {
        let set = compiled_files(&[
            ("a.proto", "syntax = \"proto3\"; package a; import \"b.proto\"; message A { b.B b = 1; }"),
            ("b.proto", "syntax = \"proto3\"; package b; message B {} message C {}"),
        ]);
        let files = excerpt(&set, &["a.A"]).file;
        let packages: Vec<_> = files.iter().map(|file| (file.package(), names(&file.message_type).join(" "))).collect();
        assert_eq!(packages, [("b", "B/0".to_owned()), ("a", "A/1".to_owned())]);
    }
}
