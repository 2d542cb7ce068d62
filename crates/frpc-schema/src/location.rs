//! Places and comments in proto files, and the paths by which descriptors refer to them.

use std::collections::HashMap;

use prost_types::{FileDescriptorProto, SourceCodeInfo, source_code_info::Location};

/// A place in a proto file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The name of the file, as other proto files import it.
    pub file: String,
    /// The text at this place. Descriptors without source information have none.
    pub span: Option<Span>,
}

/// A stretch of text within one line. Numbers count from zero, columns in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// The line.
    pub line: usize,
    /// The first column.
    pub column: usize,
    /// The length on this line: at least 1, and possibly more than the line has.
    pub len: usize,
}

/// The comment of a declaration, as the proto file has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Comment {
    /// The lines in front of the declaration.
    pub leading: String,
    /// The lines behind it.
    pub trailing: String,
}

/// The locations of a file's declarations, found by their paths in the descriptor.
#[derive(Clone, Debug)]
pub struct Locations<'a> {
    file: &'a str,
    by_path: HashMap<&'a [i32], &'a Location>,
}

impl Place {
    /// Returns a place in a file, or the file itself if there is no span.
    pub fn new(file: impl Into<String>, span: Option<Span>) -> Self {
        Self { file: file.into(), span }
    }
}

impl Span {
    /// Returns a span of at least one byte.
    pub fn new(line: usize, column: usize, len: usize) -> Self {
        Self { line, column, len: len.max(1) }
    }

    /// Reads the span of a location in a descriptor: line, column, last line unless it is the same, last column.
    fn of_location(span: &[i32]) -> Option<Self> {
        let number = |index: usize| span.get(index).and_then(|&number| usize::try_from(number).ok());
        let (line, column) = (number(0)?, number(1)?);
        let len = match (number(2)?, number(3)) {
            (end_column, None) => end_column.saturating_sub(column),
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
    pub fn place(&self, path: &[i32]) -> Place {
        Place::new(self.file, self.by_path.get(path).and_then(|location| Span::of_location(&location.span)))
    }

    /// Returns the comment of a declaration.
    pub fn comment(&self, path: &[i32]) -> Comment {
        self.by_path.get(path).map_or_else(Comment::default, |location| Comment {
            leading: location.leading_comments().to_owned(),
            trailing: location.trailing_comments().to_owned(),
        })
    }
}

/// Returns the path of a declaration within another.
pub fn joined(path: &[i32], rest: &[i32]) -> Vec<i32> {
    [path, rest].concat()
}

// The field numbers of descriptor.proto, of which paths are made.

/// Leads from a file to its package.
pub const PACKAGE_OF_FILE: i32 = 2;
/// Leads from a file to its messages; an index follows.
pub const MESSAGES_OF_FILE: i32 = 4;
/// Leads from a file to its enums; an index follows.
pub const ENUMS_OF_FILE: i32 = 5;
/// Leads from a file to its services; an index follows.
pub const SERVICES_OF_FILE: i32 = 6;
/// Leads from a message to its fields; an index follows.
pub const FIELDS_OF_MESSAGE: i32 = 2;
/// Leads from a message to those nested in it; an index follows.
pub const MESSAGES_OF_MESSAGE: i32 = 3;
/// Leads from a message to the enums nested in it; an index follows.
pub const ENUMS_OF_MESSAGE: i32 = 4;
/// Leads from a message to its oneofs; an index follows.
pub const ONEOFS_OF_MESSAGE: i32 = 8;
/// Leads from a file to its extensions; an index follows.
pub(crate) const EXTENSIONS_OF_FILE: i32 = 7;
/// Leads from a message to its ranges of extensions; an index follows.
pub(crate) const EXTENSION_RANGES_OF_MESSAGE: i32 = 5;
/// Leads from a message to the extensions declared in it; an index follows.
pub(crate) const EXTENSIONS_OF_MESSAGE: i32 = 6;
/// Leads from a message to its reserved numbers; an index follows.
pub(crate) const RESERVED_RANGES_OF_MESSAGE: i32 = 9;
/// Leads from a message to its reserved names; an index follows.
pub(crate) const RESERVED_NAMES_OF_MESSAGE: i32 = 10;
/// Leads from an enum to its reserved numbers; an index follows.
pub(crate) const RESERVED_RANGES_OF_ENUM: i32 = 4;
/// Leads from an enum to its reserved names; an index follows.
pub(crate) const RESERVED_NAMES_OF_ENUM: i32 = 5;
/// Leads from an enum to its values; an index follows.
pub const VALUES_OF_ENUM: i32 = 2;
/// Leads from a service to its methods; an index follows.
pub const METHODS_OF_SERVICE: i32 = 2;
