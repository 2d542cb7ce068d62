//! Operations: the numbers of methods in frisbee packets.
//!
//! Every file has its own sequence over all methods of all its services, in the order of declaration. It starts at
//! [`FIRST_OPERATION`] or at the file's number in [`SchemaOptions`].

use std::{
    collections::{BTreeMap, HashSet},
    ops::RangeInclusive,
};

use prost_types::{
    FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};

use crate::{diagnostic::Diagnostic, location::SourceLocation};

/// Lowest operation of a method. frisbee reserves the lower numbers.
pub const FIRST_OPERATION: u16 = 10;

/// Options for reading a schema. Both sides of a connection need the same.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SchemaOptions {
    /// First operation of each file, by file name. Default: [`FIRST_OPERATION`].
    pub first_operations: BTreeMap<String, u16>,
    /// Full names of fields to read as required, such as `shop.Order.customer`. Names of fields that are never unset,
    /// and of members of oneofs, have no effect.
    pub required_fields: HashSet<String>,
}

impl SchemaOptions {
    /// Returns `true` if a field must be set. `message` is the full name of its message, and `has_presence` says whether
    /// scalars of its file may be unset.
    pub(crate) fn is_required(&self, message: &str, field: &FieldDescriptorProto, has_presence: bool) -> bool {
        let is_named = || {
            let name = format!("{}.{}", message.trim_start_matches('.'), field.name());
            self.required_fields.contains(&name)
        };
        field.label() == Label::Required
            || (!self.required_fields.is_empty() && may_be_unset(field, has_presence) && is_named())
    }

    /// Returns the mistakes in the options.
    pub(crate) fn mistakes(&self, set: &FileDescriptorSet) -> Vec<Diagnostic> {
        let files: Vec<_> = set.file.iter().map(FileDescriptorProto::name).collect();
        let mistake = |(file, &number): (&String, &u16)| {
            if number < FIRST_OPERATION {
                Some(format!(
                    "first operation {number} for '{file}' is below {FIRST_OPERATION}: lower numbers belong to frisbee"
                ))
            } else if !files.contains(&file.as_str()) {
                Some(format!(
                    "first operation {number} is set for '{file}', but the compiled files are {}",
                    files.join(", ")
                ))
            } else {
                None
            }
        };
        self.first_operations.iter().filter_map(mistake).map(Diagnostic::new).collect()
    }
}

fn may_be_unset(field: &FieldDescriptorProto, has_presence: bool) -> bool {
    let is_member = field.oneof_index.is_some() && !field.proto3_optional();
    let is_message = matches!(field.r#type(), Type::Message | Type::Group);
    field.label() == Label::Optional && !is_member && (is_message || has_presence || field.proto3_optional())
}

/// The operations of a file.
pub(crate) struct FileOperations<'a> {
    file: &'a FileDescriptorProto,
    first: u16,
    left: RangeInclusive<u16>,
}

impl<'a> FileOperations<'a> {
    pub(crate) fn new(file: &'a FileDescriptorProto, options: &SchemaOptions) -> Self {
        let first = options.first_operations.get(file.name()).copied().unwrap_or(FIRST_OPERATION);
        Self { file, first, left: first..=u16::MAX }
    }

    /// Returns the operation of the next method, declared at `place`.
    pub(crate) fn next(&mut self, place: &SourceLocation) -> Result<u16, Diagnostic> {
        self.left.next().ok_or_else(|| self.too_many(place.clone()))
    }

    fn too_many(&self, place: SourceLocation) -> Diagnostic {
        let methods: usize = self.file.service.iter().map(|service| service.method.len()).sum();
        let first = self.first;
        let methods_max = usize::from(u16::MAX - first) + 1;
        let help = match first {
            FIRST_OPERATION => "move some of the services to another file",
            _ => "give the file a lower first operation",
        };
        Diagnostic::new(format!("this file has {methods} methods, but only {methods_max} are possible"))
            .at(place)
            .note(format_args!(
                "on the wire a method is a 16-bit number, counted from {first} over all services of its file"
            ))
            .help(help)
    }
}
