//! Descriptors of types known at run time only.

use std::{collections::HashMap, error, fmt};

use frpc::{prost::Message, shown};
use frpc_schema::{
    EncodedFiles, SchemaOptions, decode_descriptors, descriptors_of, is_entry_of_map, is_resolved_edition,
    prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet, MessageOptions},
};
use prost_reflect::DescriptorPool;

use crate::SchemaLayouts;

/// The types of proto files, read from their descriptors at run time.
///
/// Files may be of proto2, proto3, or edition 2023 or 2024. prost-reflect has no editions: in [`pool`](Self::pool), such
/// a file has the syntax proto3. Its fields keep their presence, packing and encoding.
///
/// ```
/// # fn main() -> Result<(), frpc_dynamic::DynamicSchemaError> {
/// # let encoded: &[u8] = &[];
/// let mut schema = frpc_dynamic::DynamicSchema::new();
/// // Written by `buf build -o` or `protoc --include_imports -o`.
/// schema.add_set(encoded)?;
/// assert!(schema.pool().get_message_by_name("google.protobuf.Timestamp").is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct DynamicSchema {
    pool: DescriptorPool,
    /// The added files by name, with the options and features that the types of prost lack.
    encoded: HashMap<String, Vec<u8>>,
    /// Files of an edition by name, with resolved features.
    editions: HashMap<String, FileDescriptorProto>,
}

impl DynamicSchema {
    /// Creates a schema with the well-known types.
    pub fn new() -> Self {
        Self { pool: DescriptorPool::global(), encoded: HashMap::new(), editions: HashMap::new() }
    }

    /// Adds the files of an encoded descriptor set. Skips files with a known name.
    ///
    /// # Errors
    ///
    /// The bytes are no descriptor set, an import is missing, or a file is invalid. Nothing is added.
    pub fn add_set(&mut self, encoded: &[u8]) -> Result<(), DynamicSchemaError> {
        let set = decode_descriptors(encoded).map_err(DynamicSchemaError::new)?;
        let files = EncodedFiles::decode(encoded).map_err(DynamicSchemaError::new)?;
        let mut changed = self.clone();
        let mut added = Vec::new();
        for (file, encoded) in set.file.into_iter().zip(files.file) {
            if changed.encoded.contains_key(file.name()) || self.pool.get_file_by_name(file.name()).is_some() {
                continue;
            }
            check_syntax(&file)?;
            check_map_entries(&file.message_type)?;
            changed.encoded.insert(file.name().to_owned(), encoded);
            if is_resolved_edition(file.syntax()) {
                changed.editions.insert(file.name().to_owned(), file.clone());
                added.push(without_edition(file));
            } else {
                added.push(file);
            }
        }
        changed.pool.add_file_descriptor_protos(added).map_err(DynamicSchemaError::new)?;
        *self = changed;
        Ok(())
    }

    /// Adds encoded files, such as the answers of server reflection. See [`add_set`](Self::add_set).
    pub fn add_files(&mut self, files: impl IntoIterator<Item = Vec<u8>>) -> Result<(), DynamicSchemaError> {
        self.add_set(&EncodedFiles { file: files.into_iter().collect() }.encode_to_vec())
    }

    /// Returns all files as an encoded descriptor set. Added files keep their edition, features and custom options.
    pub fn encode(&self) -> Vec<u8> {
        let files = self.pool.files();
        let files = files.map(|file| self.encoded.get(file.name()).cloned().unwrap_or_else(|| file.encode_to_vec()));
        EncodedFiles { file: files.collect() }.encode_to_vec()
    }

    /// Returns the types for prost-reflect.
    pub fn pool(&self) -> &DescriptorPool {
        &self.pool
    }

    /// Returns the polyglot layouts of a package and its imports.
    pub fn layouts(&self, package: &str, options: &SchemaOptions) -> Result<SchemaLayouts, frpc_schema::Error> {
        let files = self.pool.file_descriptor_protos();
        let files = files.map(|file| self.editions.get(file.name()).unwrap_or(file).clone());
        SchemaLayouts::read(&descriptors_of(package, &FileDescriptorSet { file: files.collect() }), options)
    }
}

impl Default for DynamicSchema {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns a file with resolved features in a syntax of prost-reflect.
///
/// In a file of proto3, prost-reflect also takes the labels, groups and defaults of proto2. But an enum has to begin with
/// 0, so that a file with another enum becomes proto2: its fields with implicit presence are printed even if they are 0.
fn without_edition(file: FileDescriptorProto) -> FileDescriptorProto {
    let has_other_enums = begins_without_zero(&file.enum_type) || file.message_type.iter().any(has_other_enum);
    let syntax = if has_other_enums { "proto2" } else { "proto3" };
    FileDescriptorProto { syntax: Some(syntax.to_owned()), ..file }
}

/// Refuses an unknown syntax, because prost-reflect panics while it makes the error.
fn check_syntax(file: &FileDescriptorProto) -> Result<(), DynamicSchemaError> {
    let is_known =
        matches!(file.syntax.as_deref(), None | Some("proto2" | "proto3")) || is_resolved_edition(file.syntax());
    let unknown = || format!("the file {} has the unknown syntax \"{}\"", shown(file.name()), shown(file.syntax()));
    if is_known { Ok(()) } else { Err(DynamicSchemaError(unknown())) }
}

/// Refuses entries of maps without a key or value. prost-reflect does not check them, and panics when it reads such a map.
fn check_map_entries(messages: &[DescriptorProto]) -> Result<(), DynamicSchemaError> {
    for message in messages {
        let is_entry = message.options.as_ref().is_some_and(MessageOptions::map_entry);
        if is_entry && !is_entry_of_map(message) {
            let name = shown(message.name());
            return Err(DynamicSchemaError(format!("the map entry {name} has no valid key and value")));
        }
        check_map_entries(&message.nested_type)?;
    }
    Ok(())
}

fn has_other_enum(message: &DescriptorProto) -> bool {
    begins_without_zero(&message.enum_type) || message.nested_type.iter().any(has_other_enum)
}

fn begins_without_zero(enums: &[EnumDescriptorProto]) -> bool {
    enums.iter().any(|declared| declared.value.first().is_some_and(|first| first.number() != 0))
}

/// The reason why a schema refused descriptors.
#[derive(Clone, Debug)]
pub struct DynamicSchemaError(String);

impl DynamicSchemaError {
    fn new(error: impl fmt::Display) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for DynamicSchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for DynamicSchemaError {}

#[cfg(test)]
mod tests {
    use frpc_schema::prost_types::{
        FieldDescriptorProto,
        field_descriptor_proto::{Label, Type},
    };
    use prost_reflect::DynamicMessage;

    use super::*;

    const VECTORS: &[u8] = include_bytes!("../../../tests/vectors/editions.binpb");

    #[test]
    fn sets_return_unchanged() {
        let mut schema = DynamicSchema::new();
        schema.add_set(VECTORS).unwrap();
        let added = EncodedFiles::decode(VECTORS).unwrap().file;
        let all = EncodedFiles::decode(&*schema.encode()).unwrap().file;
        assert!(added.iter().all(|file| all.contains(file)));
        let mut other = DynamicSchema::new();
        other.add_files(all).unwrap();
        assert_eq!(other.encode(), schema.encode());
    }

    #[test]
    fn an_unknown_syntax_is_refused() {
        for syntax in ["", "proto9", "\x1b[2J"] {
            let file = FileDescriptorProto {
                name: Some("m.proto".to_owned()),
                syntax: Some(syntax.to_owned()),
                ..FileDescriptorProto::default()
            };
            let error = DynamicSchema::new().add_files([file.encode_to_vec()]).unwrap_err().to_string();
            assert!(error.contains("unknown syntax") && !error.contains('\x1b'), "{error}");
        }
    }

    #[test]
    fn maps_without_a_key_or_value_are_refused() {
        let field = |number, of: Type, label: Label| FieldDescriptorProto {
            name: Some(if number == 1 { "key" } else { "value" }.to_owned()),
            number: Some(number),
            r#type: Some(of.into()),
            label: Some(label.into()),
            ..FieldDescriptorProto::default()
        };
        let map = |fields: Vec<FieldDescriptorProto>| {
            let entry = DescriptorProto {
                name: Some("MapEntry".to_owned()),
                field: fields,
                options: Some(MessageOptions { map_entry: Some(true), ..MessageOptions::default() }),
                ..DescriptorProto::default()
            };
            let entries = FieldDescriptorProto {
                type_name: Some(".m.M.MapEntry".to_owned()),
                ..field(1, Type::Message, Label::Repeated)
            };
            let message = DescriptorProto {
                name: Some("M".to_owned()),
                field: vec![entries],
                nested_type: vec![entry],
                ..DescriptorProto::default()
            };
            let file = FileDescriptorProto {
                name: Some("m.proto".to_owned()),
                package: Some("m".to_owned()),
                message_type: vec![message],
                ..FileDescriptorProto::default()
            };
            let mut schema = DynamicSchema::new();
            schema.add_files([file.encode_to_vec()])?;
            let message = schema.pool().get_message_by_name("m.M").unwrap();
            // Field 1 with an empty entry, which has the default key and value.
            Ok::<_, DynamicSchemaError>(DynamicMessage::decode(message, &[0x0a, 0][..]).unwrap())
        };
        let [key, value] = [1, 2].map(|number| field(number, Type::String, Label::Optional));
        assert!(map(vec![key.clone(), value.clone()]).is_ok());
        for fields in [
            vec![],
            vec![key.clone()],
            vec![value.clone()],
            vec![field(1, Type::Double, Label::Optional), value.clone()],
            vec![field(1, Type::Bytes, Label::Optional), value.clone()],
            vec![
                FieldDescriptorProto { type_name: Some(".m.M".to_owned()), r#type: None, ..key.clone() },
                value.clone(),
            ],
            vec![field(1, Type::String, Label::Repeated), value],
            vec![key, field(2, Type::String, Label::Repeated)],
        ] {
            let error = map(fields).unwrap_err();
            assert_eq!(error.to_string(), "the map entry MapEntry has no valid key and value");
        }
    }

    #[test]
    fn refused_sets_add_nothing() {
        let mut schema = DynamicSchema::new();
        schema.add_set(VECTORS).unwrap();
        let before = schema.encode();
        let good = FileDescriptorProto {
            name: Some("a.proto".to_owned()),
            package: Some("a".to_owned()),
            message_type: vec![DescriptorProto { name: Some("M".to_owned()), ..DescriptorProto::default() }],
            ..FileDescriptorProto::default()
        };
        let bad = FileDescriptorProto { name: Some("b.proto".to_owned()), ..good.clone() };
        let missing = FileDescriptorProto { dependency: vec!["none.proto".to_owned()], ..bad.clone() };
        for bad in [bad, missing] {
            assert!(schema.add_files([good.encode_to_vec(), bad.encode_to_vec()]).is_err());
            assert_eq!(schema.encode(), before);
        }
        for end in [0, 1, 20, VECTORS.len() - 1] {
            let mut cut = DynamicSchema::new();
            assert_eq!(cut.add_set(&VECTORS[..end]).is_ok(), end == 0, "{end}");
        }
        schema.add_files([good.encode_to_vec()]).unwrap();
        assert!(schema.pool().get_message_by_name("a.M").is_some());
    }
}
