//! Descriptors of types known at run time only.

use std::{collections::HashMap, error, fmt};

use frpc::prost::Message;
use frpc_schema::{
    EncodedFiles, SchemaOptions, decode_descriptors, descriptors_of, is_resolved_edition,
    prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet},
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
