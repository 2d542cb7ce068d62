//! Files of an edition: their features are resolved while the descriptors are decoded.
//!
//! The types of prost have neither editions nor features. [`decode_descriptors`] reads both next to them, and expresses
//! the result with the means of proto2 and proto3: required fields have the label, fields with presence are marked as
//! `proto3_optional` without a generated oneof, lists say if they are packed, and delimited messages are groups.

use prost::Message;
use prost_types::{
    DescriptorProto, FieldDescriptorProto, FieldOptions, FileDescriptorProto, FileDescriptorSet, SourceCodeInfo,
    field_descriptor_proto::{Label, Type},
};

use crate::{
    check::is_entry,
    descriptors::{EncodedFiles, without_fields},
    diagnostic::{Diagnostic, Error},
    location::{FIELDS_OF_MESSAGE, Locations, MESSAGES_OF_FILE, MESSAGES_OF_MESSAGE, joined},
    rules::is_packable,
    syntax::{RESOLVED, UNRESOLVED},
};

/// Decodes descriptors, and resolves the features of files with an edition, 2023 or 2024.
///
/// Use it instead of the `decode` of prost, which drops editions and features. [`Schema::read`](crate::Schema::read)
/// refuses files of an edition decoded in any other way.
///
/// Extensions of features, such as `(pb.go)`, concern other languages and are ignored. So are `utf8_validation`, because
/// every string is checked, and `enum_type`, because enums keep unknown numbers.
///
/// ```
/// # fn main() -> Result<(), frpc_schema::Error> {
/// # let encoded: &[u8] = &[];
/// // Written by `buf build -o` or `protoc --include_imports --descriptor_set_out`.
/// let descriptors = frpc_schema::decode_descriptors(encoded)?;
/// assert!(descriptors.file.is_empty());
/// # Ok(())
/// # }
/// ```
pub fn decode_descriptors(encoded: &[u8]) -> Result<FileDescriptorSet, Error> {
    let malformed = |error| Diagnostic::new(format!("the bytes are not a set of descriptors: {error}"));
    let mut set = FileDescriptorSet::decode(encoded).map_err(malformed)?;
    if set.file.iter().any(|file| file.syntax() == UNRESOLVED) {
        let features = FeatureFiles::decode(encoded).map_err(malformed)?;
        let files = set.file.iter_mut().zip(&features.file).filter(|(file, _)| file.syntax() == UNRESOLVED);
        let mistakes: Vec<_> = files.filter_map(|(file, features)| resolve(file, features).err()).collect();
        if !mistakes.is_empty() {
            return Err(Error { diagnostics: mistakes });
        }
    }
    Ok(set)
}

/// The edition of a file, and the locations of its declarations.
#[derive(Clone, Debug)]
pub struct FileEdition {
    number: i32,
    source_code_info: Option<SourceCodeInfo>,
}

impl FileEdition {
    /// Creates an edition by its name, such as `2023`.
    pub fn new(name: &str, source_code_info: Option<SourceCodeInfo>) -> Self {
        let known = EDITIONS.iter().find(|(_, own)| *own == name).map(|(number, _)| *number);
        // An unknown edition is refused by this number.
        Self { number: known.or(name.parse().ok()).unwrap_or_default(), source_code_info }
    }
}

/// Returns encoded descriptors with editions for some files, one element for each file of the set. Compilers without
/// editions read such files in another syntax.
pub fn with_editions(encoded: &[u8], editions: impl IntoIterator<Item = Option<FileEdition>>) -> Vec<u8> {
    let mut files = EncodedFiles::decode(encoded).unwrap_or_default();
    for (file, edition) in files.file.iter_mut().zip(editions) {
        if let Some(FileEdition { number, source_code_info }) = edition {
            *file = without_fields(file, &EDITION_FIELDS);
            let own = EditionFields { source_code_info, syntax: UNRESOLVED.to_owned(), edition: number };
            file.extend(own.encode_to_vec());
        }
    }
    files.encode_to_vec()
}

/// The numbers of [`EditionFields`] in `FileDescriptorProto`.
const EDITION_FIELDS: [u32; 3] = [9, 12, 14];

#[derive(Clone, PartialEq, Message)]
struct EditionFields {
    #[prost(message, optional, tag = "9")]
    source_code_info: Option<SourceCodeInfo>,
    #[prost(string, tag = "12")]
    syntax: String,
    #[prost(int32, tag = "14")]
    edition: i32,
}

/// Resolves the features of a file.
fn resolve(file: &mut FileDescriptorProto, features: &FeatureFile) -> Result<(), Diagnostic> {
    let Some((_, name)) = EDITIONS.iter().find(|(number, _)| *number == features.edition) else {
        let (number, place) = (features.edition, Locations::new(file).place(&[]));
        let message = match number {
            0 => "the file has the syntax of editions, but no edition".to_owned(),
            number => format!("edition {number} is not known"),
        };
        return Err(Diagnostic::new(message).at(place).help("use edition 2023 or 2024"));
    };
    let defaults = ResolvedFeatures { presence: FieldPresence::Explicit, is_packed: true, is_delimited: false };
    let inherited = defaults.with(features.options.as_ref().and_then(|options| options.features.as_ref()));
    let original = file.clone();
    let resolver = FeatureResolver { inherited, locations: Locations::new(&original) };
    for (index, (message, features)) in (0..).zip(file.message_type.iter_mut().zip(&features.message_type)) {
        resolver.message(message, features, &[MESSAGES_OF_FILE, index])?;
    }
    file.syntax = Some(format!("{RESOLVED}{name}"));
    Ok(())
}

/// Applies the features of a file and of its fields. No feature of messages or oneofs changes the encoding.
struct FeatureResolver<'a> {
    inherited: ResolvedFeatures,
    locations: Locations<'a>,
}

impl FeatureResolver<'_> {
    fn message(
        &self,
        message: &mut DescriptorProto,
        features: &FeatureMessage,
        path: &[i32],
    ) -> Result<(), Diagnostic> {
        // Entries of maps are as in proto3, whatever the features say.
        if is_entry(message) {
            return Ok(());
        }
        let own = features.options.as_ref().and_then(|options| options.features.as_ref());
        if own.is_some_and(|own| *own != FeatureSet::default()) {
            let message = "presence, packing and encoding are features of fields, not of messages".to_owned();
            let help = "set the feature for the file or for each field";
            return Err(Diagnostic::new(message).at(self.locations.place(path)).help(help));
        }
        let entries: Vec<String> =
            message.nested_type.iter().filter(|nested| is_entry(nested)).map(|entry| entry.name().to_owned()).collect();
        for (index, (field, own)) in (0..).zip(message.field.iter_mut().zip(&features.field)) {
            let own = own.options.as_ref().and_then(|options| options.features.as_ref());
            let is_map = field.label() == Label::Repeated
                && entries.iter().any(|entry| field.type_name().rsplit('.').next() == Some(entry));
            if !is_map {
                self.inherited.with(own).apply(field).map_err(|message| {
                    Diagnostic::new(message).at(self.locations.place(&joined(path, &[FIELDS_OF_MESSAGE, index])))
                })?;
            }
        }
        for (index, (nested, own)) in (0..).zip(message.nested_type.iter_mut().zip(&features.nested_type)) {
            self.message(nested, own, &joined(path, &[MESSAGES_OF_MESSAGE, index]))?;
        }
        Ok(())
    }
}

/// The features with an effect on messages, after inheritance.
#[derive(Clone, Copy, Debug)]
struct ResolvedFeatures {
    presence: FieldPresence,
    is_packed: bool,
    is_delimited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldPresence {
    Explicit,
    Implicit,
    Required,
}

impl ResolvedFeatures {
    /// Returns the features, changed by the features of an inner declaration.
    fn with(self, own: Option<&FeatureSet>) -> Self {
        let Some(own) = own else { return self };
        Self {
            presence: match own.field_presence {
                Some(1) => FieldPresence::Explicit,
                Some(2) => FieldPresence::Implicit,
                Some(3) => FieldPresence::Required,
                _ => self.presence,
            },
            is_packed: own.repeated_field_encoding.map_or(self.is_packed, |encoding| encoding != EXPANDED),
            is_delimited: own.message_encoding.map_or(self.is_delimited, |encoding| encoding == DELIMITED),
        }
    }

    fn apply(self, field: &mut FieldDescriptorProto) -> Result<(), String> {
        let is_message = matches!(field.r#type(), Type::Message | Type::Group);
        if is_message && self.is_delimited {
            field.set_type(Type::Group);
        }
        match field.label() {
            Label::Repeated if is_packable(field.r#type()) => {
                let options = field.options.get_or_insert_with(FieldOptions::default);
                options.packed = Some(self.is_packed);
            }
            Label::Repeated => {}
            Label::Required => return Err("fields of an edition have no label `required`".to_owned()),
            Label::Optional if field.oneof_index.is_some() => {}
            Label::Optional => match self.presence {
                FieldPresence::Required => field.set_label(Label::Required),
                // Messages always have presence.
                FieldPresence::Implicit if !is_message => {
                    if field.default_value.is_some() {
                        return Err("a field with implicit presence cannot have a default".to_owned());
                    }
                }
                FieldPresence::Implicit | FieldPresence::Explicit => field.proto3_optional = Some(true),
            },
        }
        Ok(())
    }
}

/// The parts of descriptors with editions and features, which the types of prost lack.
#[derive(Clone, PartialEq, Message)]
struct FeatureFiles {
    #[prost(message, repeated, tag = "1")]
    file: Vec<FeatureFile>,
}

#[derive(Clone, PartialEq, Message)]
struct FeatureFile {
    #[prost(message, repeated, tag = "4")]
    message_type: Vec<FeatureMessage>,
    #[prost(message, optional, tag = "8")]
    options: Option<FileFeatures>,
    #[prost(int32, tag = "14")]
    edition: i32,
}

#[derive(Clone, PartialEq, Message)]
struct FeatureMessage {
    #[prost(message, repeated, tag = "2")]
    field: Vec<FeatureField>,
    #[prost(message, repeated, tag = "3")]
    nested_type: Vec<FeatureMessage>,
    #[prost(message, optional, tag = "7")]
    options: Option<MessageFeatures>,
}

#[derive(Clone, PartialEq, Message)]
struct FeatureField {
    #[prost(message, optional, tag = "8")]
    options: Option<FieldFeatures>,
}

#[derive(Clone, PartialEq, Message)]
struct FileFeatures {
    #[prost(message, optional, tag = "50")]
    features: Option<FeatureSet>,
}

#[derive(Clone, PartialEq, Message)]
struct MessageFeatures {
    #[prost(message, optional, tag = "12")]
    features: Option<FeatureSet>,
}

#[derive(Clone, PartialEq, Message)]
struct FieldFeatures {
    #[prost(message, optional, tag = "21")]
    features: Option<FeatureSet>,
}

#[derive(Clone, PartialEq, Message)]
struct FeatureSet {
    #[prost(int32, optional, tag = "1")]
    field_presence: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    repeated_field_encoding: Option<i32>,
    #[prost(int32, optional, tag = "5")]
    message_encoding: Option<i32>,
}

/// The known editions: the number in `google.protobuf.Edition`, and the name.
const EDITIONS: [(i32, &str); 2] = [(1000, "2023"), (1001, "2024")];
/// `google.protobuf.FeatureSet.RepeatedFieldEncoding.EXPANDED`.
const EXPANDED: i32 = 2;
/// `google.protobuf.FeatureSet.MessageEncoding.DELIMITED`.
const DELIMITED: i32 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FieldShape, Schema, SchemaOptions, ValueType};

    const VECTORS: &[u8] = include_bytes!("../../../tests/vectors/editions.binpb");

    fn message(full_name: &str) -> Vec<(String, FieldShape)> {
        let schema = Schema::read(&decode_descriptors(VECTORS).unwrap(), &SchemaOptions::default()).unwrap();
        let mut messages = schema.packages.into_iter().flat_map(|package| package.messages);
        let found = messages.find(|message| message.full_name == full_name).unwrap();
        found.fields.into_iter().map(|field| (field.name, field.shape)).collect()
    }

    #[test]
    fn presence_is_inherited_from_the_file() {
        let shapes = message("vectors.editions.Order");
        let shape = |name: &str| shapes.iter().find(|(own, _)| own == name).unwrap().1.clone();
        assert_eq!(shape("id"), FieldShape::Optional(ValueType::String));
        assert_eq!(shape("is_paid"), FieldShape::Always(ValueType::Bool));
        assert_eq!(shape("customer"), FieldShape::Always(ValueType::String));
        assert_eq!(shape("card"), FieldShape::Member(0, ValueType::String));
        let line = ValueType::Message("vectors.editions.Line".to_owned());
        assert_eq!(shape("line"), FieldShape::Optional(line.clone()));
        assert_eq!(shape("by_name"), FieldShape::Map(ValueType::String, line));
        let state = ValueType::Enum("vectors.editions.State".to_owned());
        let shapes = message("vectors.editions.Groups");
        let shape = |name: &str| shapes.iter().find(|(own, _)| own == name).unwrap().1.clone();
        assert_eq!(shape("number"), FieldShape::Always(ValueType::I64));
        assert_eq!(shape("price"), FieldShape::Optional(ValueType::F64));
        assert_eq!(shape("state"), FieldShape::Always(state));
    }

    #[test]
    fn messages_are_groups_except_in_maps() {
        let set = decode_descriptors(VECTORS).unwrap();
        let file = set.file.iter().find(|file| file.name() == "editions_implicit.proto").unwrap();
        let groups = file.message_type.iter().find(|message| message.name() == "Groups").unwrap();
        assert_eq!([0, 1, 6].map(|index| groups.field[index].r#type()), [Type::Group, Type::Message, Type::Message]);
        assert_eq!(groups.nested_type[0].field[1].r#type(), Type::Message);
        // Messages have presence, even with this feature.
        assert_eq!([0, 2].map(|index| groups.field[index].proto3_optional()), [true, false]);
    }

    #[test]
    fn lists_say_if_they_are_packed() {
        let set = decode_descriptors(VECTORS).unwrap();
        let packed = |file: &str, message: &str, field: &str| {
            let file = set.file.iter().find(|own| own.name() == file).unwrap();
            let message = file.message_type.iter().find(|own| own.name() == message).unwrap();
            let field = message.field.iter().find(|own| own.name() == field).unwrap();
            field.options.as_ref().and_then(|options| options.packed)
        };
        assert_eq!(packed("editions.proto", "Order", "sizes"), Some(false));
        assert_eq!(packed("editions.proto", "Order", "packed"), Some(true));
        assert_eq!(packed("editions.proto", "Order", "tags"), None);
        assert_eq!(packed("editions_2024.proto", "Shipment", "sizes"), Some(true));
    }

    #[test]
    fn unknown_editions_and_undecoded_features_are_refused() {
        let file = |edition| {
            let file = FeatureFile { edition, ..FeatureFile::default() }.encode_to_vec();
            let name = FileDescriptorProto {
                name: Some("new.proto".to_owned()),
                syntax: Some(UNRESOLVED.to_owned()),
                ..FileDescriptorProto::default()
            };
            let file = [name.encode_to_vec(), file].concat();
            [&[10, u8::try_from(file.len()).unwrap()], &file[..]].concat()
        };
        let text = decode_descriptors(&file(1002)).unwrap_err().to_string();
        assert_eq!(text, "edition 1002 is not known\n--> new.proto\n = help: use edition 2023 or 2024");
        let text = decode_descriptors(&file(0)).unwrap_err().to_string();
        assert!(text.starts_with("the file has the syntax of editions, but no edition"), "{text}");
        let undecoded = FileDescriptorSet::decode(&file(1000)[..]).unwrap();
        let text = Schema::read(&undecoded, &SchemaOptions::default()).unwrap_err().to_string();
        assert!(text.contains("decode the descriptors with `frpc_schema::decode_descriptors`"), "{text}");
        assert!(Schema::read(&decode_descriptors(&file(1001)).unwrap(), &SchemaOptions::default()).is_ok());
    }

    #[test]
    fn bytes_cut_anywhere_are_refused_or_read() {
        for len in (0..VECTORS.len()).step_by(7) {
            let _ = decode_descriptors(&VECTORS[..len]).map(|set| Schema::read(&set, &SchemaOptions::default()));
        }
    }
}
