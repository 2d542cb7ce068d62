//! Places and comments in proto files, and the paths used for them in descriptors.

use std::collections::HashMap;

use prost_types::{FileDescriptorProto, SourceCodeInfo, source_code_info::Location};

/// A place in a proto file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceLocation {
    /// File name, as written in imports.
    pub file: String,
    /// Position of the text. `None` for descriptors without source information.
    pub span: Option<Span>,
}

/// A stretch of text within one line. Lines and columns count from zero, and columns count bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// Line number.
    pub line: usize,
    /// First column.
    pub column: usize,
    /// Length in bytes, at least 1. May exceed the end of the line.
    pub len: usize,
}

/// The comment of a declaration, as written in the proto file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Comment {
    /// Lines before the declaration.
    pub leading: String,
    /// Lines after the declaration.
    pub trailing: String,
}

/// Source locations of a file's declarations, by their path in the descriptor.
#[derive(Clone, Debug)]
pub struct Locations<'a> {
    file: &'a str,
    by_path: HashMap<&'a [i32], &'a Location>,
}

impl SourceLocation {
    /// Creates a place. Without a span it refers to the whole file.
    pub fn new(file: impl Into<String>, span: Option<Span>) -> Self {
        Self { file: file.into(), span }
    }
}

impl Span {
    /// Creates a span of at least one byte.
    pub fn new(line: usize, column: usize, len: usize) -> Self {
        Self { line, column, len: len.max(1) }
    }

    /// Decodes a span in a descriptor: first line, first column, last line (omitted if equal to the first), last
    /// column.
    fn of_location(span: &[i32]) -> Option<Self> {
        let number = |index: usize| span.get(index).and_then(|&number| usize::try_from(number).ok());
        let (line, column) = (number(0)?, number(1)?);
        let len = match (number(2)?, number(3)) {
            (end_column, None) => end_column.saturating_sub(column),
            // The text ends on a later line, so its length on this line is not known.
            (_, Some(_)) => usize::MAX,
        };
        Some(Self::new(line, column, len))
    }
}

impl<'a> Locations<'a> {
    /// Reads the source information of a file.
    pub fn new(file: &'a FileDescriptorProto) -> Self {
        let locations = file.source_code_info.iter().flat_map(|SourceCodeInfo { location }| location);
        let by_path = locations.map(|location| (&location.path[..], location)).collect();
        Self { file: file.name(), by_path }
    }

    /// Returns the place of a declaration.
    pub fn place(&self, path: &[i32]) -> SourceLocation {
        SourceLocation::new(self.file, self.by_path.get(path).and_then(|location| Span::of_location(&location.span)))
    }

    /// Returns the comment of a declaration.
    pub fn comment(&self, path: &[i32]) -> Comment {
        self.by_path.get(path).map_or_else(Comment::default, |location| Comment {
            leading: location.leading_comments().to_owned(),
            trailing: location.trailing_comments().to_owned(),
        })
    }
}

/// Appends the rest of a path to the path of an enclosing declaration.
pub fn joined(path: &[i32], rest: &[i32]) -> Vec<i32> {
    [path, rest].concat()
}

// Field numbers of descriptor.proto. Paths consist of these and of indices.

/// Path element from a file to its package.
pub const PACKAGE_OF_FILE: i32 = 2;
/// Path element from a file to its messages, followed by an index.
pub const MESSAGES_OF_FILE: i32 = 4;
/// Path element from a file to its enums, followed by an index.
pub const ENUMS_OF_FILE: i32 = 5;
/// Path element from a file to its services, followed by an index.
pub const SERVICES_OF_FILE: i32 = 6;
/// Path element from a message to its fields, followed by an index.
pub const FIELDS_OF_MESSAGE: i32 = 2;
/// Path element from a message to its nested messages, followed by an index.
pub const MESSAGES_OF_MESSAGE: i32 = 3;
/// Path element from a message to its nested enums, followed by an index.
pub const ENUMS_OF_MESSAGE: i32 = 4;
/// Path element from a message to its oneofs, followed by an index.
pub const ONEOFS_OF_MESSAGE: i32 = 8;
/// Path element from a file to its extensions, followed by an index.
pub const EXTENSIONS_OF_FILE: i32 = 7;
/// Path element from a message to its extension ranges, followed by an index.
pub const EXTENSION_RANGES_OF_MESSAGE: i32 = 5;
/// Path element from a message to the extensions declared in it, followed by an index.
pub const EXTENSIONS_OF_MESSAGE: i32 = 6;
/// Path element from a message to its reserved numbers, followed by an index.
pub(crate) const RESERVED_RANGES_OF_MESSAGE: i32 = 9;
/// Path element from a message to its reserved names, followed by an index.
pub(crate) const RESERVED_NAMES_OF_MESSAGE: i32 = 10;
/// Path element from an enum to its reserved numbers, followed by an index.
pub(crate) const RESERVED_RANGES_OF_ENUM: i32 = 4;
/// Path element from an enum to its reserved names, followed by an index.
pub(crate) const RESERVED_NAMES_OF_ENUM: i32 = 5;
/// Path element from an enum to its values, followed by an index.
pub const VALUES_OF_ENUM: i32 = 2;
/// Path element from a service to its methods, followed by an index.
pub const METHODS_OF_SERVICE: i32 = 2;
