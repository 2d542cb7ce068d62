//! Compatibility of two proto files: can one side read the other side's messages in protobuf's own encoding?
//!
//! Two sides with different [fingerprints](crate::fingerprint) of a message cannot use the encoding of frpc. Most
//! changes of a proto file are safe in protobuf's encoding, however. [`find_mismatch`] finds the first unsafe change, by these
//! rules:
//!
//! - Fields are identified by number. A field unknown to one side is compatible: that side skips it or leaves it unset.
//!   Names of fields and messages do not matter.
//! - Two types are compatible if they share an encoding. The groups are: `int32`, `int64`, `uint32`, `uint64`, `bool`
//!   and enums; `sint32` and `sint64`; `fixed32` and `sfixed32`; `fixed64` and `sfixed64`; `string` and `bytes`. Bytes
//!   with invalid UTF-8 do not decode as a `string`. The declarations cannot rule that out, so only that call fails.
//!   Every other type is compatible only with itself.
//! - Messages are compatible if their fields are. A map counts as a list of messages with the fields `key` (1) and
//!   `value` (2).
//! - The reader may have a list where the writer has a single field. The reverse would lose items, so it is
//!   incompatible.
//! - Fields the writer can set at the same time must not be members of one oneof on the reader's side, because the
//!   reader would keep only the last of them. A single field may move into a new oneof, and members may leave theirs.
//! - `optional` and `required` do not matter: the reader treats an absent field as unset.
//! - Groups are incompatible, because frpc cannot send them.
//!
//! Some compatible changes lose values without an error. [`narrowing`] finds the first such field:
//!
//! - An integer outside the range of the reader's type: `int64` read as `int32` (2^40 becomes 0), `uint32` as `int32`
//!   or the reverse, or any type except `bool` read as `bool`. Enums have the range of `int32`.
//! - A list of messages read as a map. Only one entry per key remains.
//!
//! A peer's descriptors may contain anything. A comparison always terminates, and its time and memory are proportional
//! to the descriptors' size and to [`FIELDS_MAX`].

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};

use crate::{check::is_entry, diagnostic::shown};

/// Maximum number of fields compared in one call of [`find_mismatch`]. Messages with more fields, including those of all
/// messages they contain on both sides, count as incompatible.
pub const FIELDS_MAX: usize = 1 << 18;

/// The messages declared in a set of descriptors, by name.
#[derive(Clone, Debug)]
pub struct Declarations<'a> {
    /// Packages and messages by parent node and own name. The root is node 0.
    nodes: HashMap<(usize, &'a str), usize>,
    /// The message of each node. `None` for packages.
    messages: Vec<Option<&'a DescriptorProto>>,
}

/// Role of the other side in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerRole {
    /// The other side is the caller, this side the server.
    Caller,
    /// The other side is the server, this side the caller.
    Server,
}

/// Role of a message in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageRole {
    /// Messages written by the caller and read by the server.
    Request,
    /// Messages written by the server and read by the caller.
    Response,
}

/// A message with the declarations of its side.
#[derive(Clone, Copy, Debug)]
pub struct DeclaredMessage<'a> {
    /// All declarations of the side.
    pub declarations: &'a Declarations<'a>,
    /// Full name of the message.
    pub name: &'a str,
}

/// An incompatibility between the two declarations of a message. `Display` prints a sentence without a full stop, for
/// readers on this side.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageMismatch {
    /// Path to the field or message, with the names of this side: `Order.items.price`.
    pub path: String,
    /// The violated rule.
    pub reason: MismatchReason,
    /// Role of the other side.
    pub peer: PeerRole,
}

/// Rule violated by two declarations of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MismatchReason {
    /// The types of a field are incompatible.
    Types {
        /// The field, as declared on this side.
        field: MessageField,
        /// Its type on this side, in the syntax of proto files.
        here: String,
        /// Its type on the other side.
        there: String,
    },
    /// The writer can set several fields at the same time, but the reader keeps only the last one.
    Together {
        /// The first of these fields.
        first: MessageField,
        /// Another of them.
        second: MessageField,
        /// True if this side is the writer.
        is_here: bool,
    },
    /// The field is compatible, but the reader loses some of its values. Returned only by [`narrowing`].
    Narrows {
        /// The field, as declared on this side.
        field: MessageField,
        /// Its type on this side, in the syntax of proto files.
        here: String,
        /// Its type on the other side.
        there: String,
    },
    /// One side does not declare the message.
    Undeclared {
        /// Full name of the message.
        message: String,
        /// True if the declaration is missing on this side.
        is_here: bool,
    },
    /// The comparison exceeds [`FIELDS_MAX`].
    TooLarge {
        /// Full name of the message reached last.
        message: String,
    },
}

/// A field with its message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageField {
    /// Full name of the message.
    pub message: String,
    /// Name of the field.
    pub name: String,
    /// Number of the field.
    pub number: i32,
}

/// Returns the first incompatibility between the two declarations of a message, or `None`. `peer` and `part` determine
/// which side writes the message.
///
/// ```
/// use frpc_schema::compat::{Declarations, DeclaredMessage, MessageRole, PeerRole, find_mismatch};
///
/// fn check(ours: &prost_types::FileDescriptorSet, theirs: &prost_types::FileDescriptorSet) -> Result<(), String> {
///     let (ours, theirs) = (Declarations::of(ours), Declarations::of(theirs));
///     let here = DeclaredMessage { declarations: &ours, name: "shop.Order" };
///     let there = DeclaredMessage { declarations: &theirs, name: "shop.Order" };
///     match find_mismatch(here, there, PeerRole::Server, MessageRole::Request) {
///         // For example "field `price` (3) of shop.Item is string here and double on the server".
///         Some(find_mismatch) => Err(find_mismatch.to_string()),
///         None => Ok(()),
///     }
/// }
/// ```
pub fn find_mismatch(
    here: DeclaredMessage<'_>,
    there: DeclaredMessage<'_>,
    peer: PeerRole,
    part: MessageRole,
) -> Option<MessageMismatch> {
    find(here, there, peer, part, false)
}

/// Returns the first field that loses values, or `None`. `peer` and `part` determine which side writes the message.
///
/// A field loses values if it is [incompatible](find_mismatch) or if it [narrows](MismatchReason::Narrows).
pub fn narrowing(
    here: DeclaredMessage<'_>,
    there: DeclaredMessage<'_>,
    peer: PeerRole,
    part: MessageRole,
) -> Option<MessageMismatch> {
    find(here, there, peer, part, true)
}

fn find(
    here: DeclaredMessage<'_>,
    there: DeclaredMessage<'_>,
    peer: PeerRole,
    part: MessageRole,
    keeps_values: bool,
) -> Option<MessageMismatch> {
    let undeclared = |side: DeclaredMessage<'_>, is_here| MessageMismatch {
        path: shown(side.name),
        reason: MismatchReason::Undeclared { message: shown(side.name), is_here },
        peer,
    };
    let Some(own) = here.declarations.find(here.name) else { return Some(undeclared(here, true)) };
    let Some(other) = there.declarations.find(there.name) else { return Some(undeclared(there, false)) };
    let is_writer =
        matches!((peer, part), (PeerRole::Server, MessageRole::Request) | (PeerRole::Caller, MessageRole::Response));
    let mut comparison = MessageComparison {
        here: here.declarations,
        there: there.declarations,
        is_writer,
        keeps_values,
        pairs: Vec::new(),
    };
    comparison.pairs.push(MessagePair { here: own, there: other, name: here.name, within: None });
    let (at, field, reason) = comparison.run()?;
    Some(MessageMismatch { path: comparison.path(at, field), reason, peer })
}

/// Returns `true` if two types share protobuf's own encoding, by the rules of this module.
pub fn is_same_encoding(one: Type, other: Type) -> bool {
    EncodingKind::of(one).is_some_and(|kind| EncodingKind::of(other) == Some(kind))
}

/// Returns `true` if two types share protobuf's own encoding and have the same range.
pub fn has_same_values(one: Type, other: Type) -> bool {
    is_same_encoding(one, other) && range(one) == range(other)
}

impl<'a> Declarations<'a> {
    /// Collects the messages of a set. If a name is declared twice, the first declaration counts.
    pub fn of(set: &'a FileDescriptorSet) -> Self {
        let mut declarations = Self { nodes: HashMap::new(), messages: vec![None] };
        let mut left = Vec::new();
        for file in &set.file {
            let mut package = ROOT;
            for part in file.package().split('.').filter(|part| !part.is_empty()) {
                package = declarations.node(package, part);
            }
            left.extend(file.message_type.iter().rev().map(|message| (package, message)));
            // Use a stack instead of recursion: a peer may nest its messages to any depth.
            while let Some((parent, message)) = left.pop() {
                let node = declarations.node(parent, message.name());
                declarations.messages[node].get_or_insert(message);
                left.extend(message.nested_type.iter().rev().map(|nested| (node, nested)));
            }
        }
        declarations
    }

    fn node(&mut self, parent: usize, name: &'a str) -> usize {
        *self.nodes.entry((parent, name)).or_insert_with(|| {
            self.messages.push(None);
            self.messages.len() - 1
        })
    }

    /// Returns a message by its full name, with or without a leading dot.
    pub(crate) fn get(&self, full_name: &str) -> Option<&'a DescriptorProto> {
        self.find(full_name).map(|node| self.message(node))
    }

    /// Returns the node of a message by its full name, with or without a leading dot.
    fn find(&self, full_name: &str) -> Option<usize> {
        let mut parts = full_name.strip_prefix('.').unwrap_or(full_name).split('.');
        let node = parts.try_fold(ROOT, |node, part| self.nodes.get(&(node, part)).copied())?;
        self.messages[node].map(|_| node)
    }

    fn message(&self, node: usize) -> &'a DescriptorProto {
        self.messages[node].expect("only nodes of messages are compared")
    }

    /// Returns the type of a field in the syntax of proto files.
    fn type_of(&self, field: &FieldDescriptorProto) -> String {
        let entry = (kind(field) == Some(EncodingKind::Message)).then(|| self.find(field.type_name())).flatten();
        if let Some(entry) = entry.map(|entry| self.message(entry)).filter(|entry| is_entry(entry)) {
            let part = |number| entry.field.iter().find(|field| field.number() == number).map(single_type);
            let [key, value] = [1, 2].map(|number| part(number).unwrap_or_else(|| "nothing".to_owned()));
            return format!("map<{key}, {value}>");
        }
        match is_repeated(field) {
            true => format!("repeated {}", single_type(field)),
            false => single_type(field),
        }
    }
}

/// State of a comparison.
struct MessageComparison<'a> {
    here: &'a Declarations<'a>,
    there: &'a Declarations<'a>,
    /// True if this side is the writer.
    is_writer: bool,
    /// True if narrowing fields count as incompatible.
    keeps_values: bool,
    /// Pairs of corresponding messages, in the order of discovery.
    pairs: Vec<MessagePair<'a>>,
}

/// A message of each side.
struct MessagePair<'a> {
    here: usize,
    there: usize,
    /// Full name of the message on this side.
    name: &'a str,
    /// The pair and field this pair was discovered in. `None` for the first pair.
    within: Option<(usize, &'a str)>,
}

impl<'a> MessageComparison<'a> {
    /// Compares all pairs. Returns the pair and the field of the first incompatibility, without a field if it concerns
    /// the message.
    fn run(&mut self) -> Option<(usize, Option<&'a str>, MismatchReason)> {
        let mut seen: HashSet<_> = self.pairs.iter().map(|pair| (pair.here, pair.there)).collect();
        let (mut next, mut compared) = (0, 0);
        while let Some(pair) = self.pairs.get(next) {
            let (own, other) = (self.here.message(pair.here), self.there.message(pair.there));
            let name = pair.name;
            // The 1 bounds the number of pairs without fields.
            compared += own.field.len() + other.field.len() + 1;
            if compared > FIELDS_MAX {
                return Some((next, None, MismatchReason::TooLarge { message: shown(name) }));
            }
            let others = by_number(other);
            for field in &own.field {
                let Some(other) = others.get(&field.number()) else { continue };
                match self.compare(field, other) {
                    FieldFit::Compatible => {}
                    FieldFit::DependsOn(here, there) => {
                        if seen.insert((here, there)) {
                            let within = Some((next, field.name()));
                            self.pairs.push(MessagePair { here, there, name: field.type_name(), within });
                        }
                    }
                    unfit @ (FieldFit::Narrows | FieldFit::Incompatible) => {
                        let (here, there) = (self.here.type_of(field), self.there.type_of(other));
                        let (at, of) = (Some(field.name()), member(name, field));
                        return Some(match unfit {
                            FieldFit::Narrows => (next, at, MismatchReason::Narrows { field: of, here, there }),
                            _ => (next, at, MismatchReason::Types { field: of, here, there }),
                        });
                    }
                }
            }
            if let Some((first, second)) = self.together(own, other) {
                let (field, is_here) = (second.name(), self.is_writer);
                let [first, second] = [first, second].map(|field| member(name, field));
                return Some((next, Some(field), MismatchReason::Together { first, second, is_here }));
            }
            next += 1;
        }
        None
    }

    fn compare(&self, own: &FieldDescriptorProto, other: &FieldDescriptorProto) -> FieldFit {
        let (written, read) = if self.is_writer { (own, other) } else { (other, own) };
        if is_repeated(written) && !is_repeated(read) {
            return FieldFit::Incompatible;
        }
        match (kind(own), kind(other)) {
            (Some(EncodingKind::Message), Some(EncodingKind::Message)) => {
                let (own, other) = (self.here.find(own.type_name()), self.there.find(other.type_name()));
                let Some((own, other)) = own.zip(other) else { return FieldFit::Incompatible };
                let entries = [self.here.message(own), self.there.message(other)].map(is_entry);
                let [is_written_map, is_read_map] = if self.is_writer { entries } else { [entries[1], entries[0]] };
                if self.keeps_values && is_read_map && !is_written_map && is_repeated(written) {
                    return FieldFit::Narrows;
                }
                FieldFit::DependsOn(own, other)
            }
            (Some(kind), Some(other)) if kind == other => {
                let holds_all = scalar(written).zip(scalar(read)).is_some_and(|(written, read)| holds(read, written));
                if self.keeps_values && !holds_all { FieldFit::Narrows } else { FieldFit::Compatible }
            }
            _ => FieldFit::Incompatible,
        }
    }

    /// Returns two fields of this side that the writer can set at the same time although they share a oneof on the
    /// reader's side.
    fn together(
        &self,
        own: &'a DescriptorProto,
        other: &'a DescriptorProto,
    ) -> Option<(&'a FieldDescriptorProto, &'a FieldDescriptorProto)> {
        let others = by_number(other);
        let mut firsts = HashMap::new();
        for field in &own.field {
            let Some(other) = others.get(&field.number()) else { continue };
            let (written, read) = if self.is_writer { (field, *other) } else { (*other, field) };
            let Some(choice) = oneof(read) else { continue };
            let (first, before) = *firsts.entry(choice).or_insert((field, oneof(written)));
            if !std::ptr::eq(first, field) && (before.is_none() || before != oneof(written)) {
                return Some((first, field));
            }
        }
        None
    }

    /// Returns the path from the first message to a field.
    fn path(&self, at: usize, field: Option<&'a str>) -> String {
        let mut names: Vec<_> = field.into_iter().collect();
        let mut pair = &self.pairs[at];
        while let Some((parent, field)) = pair.within {
            names.push(field);
            pair = &self.pairs[parent];
        }
        let mut path = shown(pair.name.rsplit('.').next().unwrap_or_default());
        let left_out = names.len().saturating_sub(PATH_LEN_MAX);
        // `names` starts with the innermost field, so this drops the outer ones.
        names.truncate(PATH_LEN_MAX);
        if left_out > 0 {
            path += ".…";
        }
        names.iter().rev().for_each(|name| path += &format!(".{}", shown(name)));
        path
    }
}

/// Result of comparing two fields.
enum FieldFit {
    Compatible,
    /// Compatible if this pair of messages is.
    DependsOn(usize, usize),
    /// Compatible, but the reader's type does not hold all values of the writer's.
    Narrows,
    Incompatible,
}

/// Groups of types with the same encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EncodingKind {
    Varint,
    ZigZag,
    Fixed32,
    Fixed64,
    Float,
    Double,
    Bytes,
    Message,
}

fn kind(field: &FieldDescriptorProto) -> Option<EncodingKind> {
    EncodingKind::of(scalar(field)?)
}

impl EncodingKind {
    fn of(declared: Type) -> Option<Self> {
        Some(match declared {
            Type::Int32 | Type::Int64 | Type::Uint32 | Type::Uint64 | Type::Bool | Type::Enum => Self::Varint,
            Type::Sint32 | Type::Sint64 => Self::ZigZag,
            Type::Fixed32 | Type::Sfixed32 => Self::Fixed32,
            Type::Fixed64 | Type::Sfixed64 => Self::Fixed64,
            Type::Float => Self::Float,
            Type::Double => Self::Double,
            Type::String | Type::Bytes => Self::Bytes,
            Type::Message => Self::Message,
            Type::Group => return None,
        })
    }
}

/// Returns `true` if the reader's type holds all values of the writer's type. Expects types with the same encoding.
fn holds(reader: Type, writer: Type) -> bool {
    match (range(reader), range(writer)) {
        (Some(reader), Some(writer)) => reader.0 <= writer.0 && writer.1 <= reader.1,
        _ => true,
    }
}

/// Returns the smallest and largest number of an integer type, or `None` for other types.
fn range(of: Type) -> Option<(i128, i128)> {
    Some(match of {
        Type::Bool => (0, 1),
        Type::Int32 | Type::Sint32 | Type::Sfixed32 | Type::Enum => (i32::MIN.into(), i32::MAX.into()),
        Type::Int64 | Type::Sint64 | Type::Sfixed64 => (i64::MIN.into(), i64::MAX.into()),
        Type::Uint32 | Type::Fixed32 => (0, u32::MAX.into()),
        Type::Uint64 | Type::Fixed64 => (0, u64::MAX.into()),
        Type::Float | Type::Double | Type::String | Type::Bytes | Type::Message | Type::Group => return None,
    })
}

/// Returns the type of a field, or `None` if a peer's descriptor has an invalid one.
fn scalar(field: &FieldDescriptorProto) -> Option<Type> {
    field.r#type.and_then(|of| Type::try_from(of).ok())
}

/// Returns the type of a field's single value in the syntax of proto files.
fn single_type(field: &FieldDescriptorProto) -> String {
    match scalar(field) {
        Some(Type::Message) if field.type_name().is_empty() => "untyped".to_owned(),
        Some(Type::Message) => shown(field.type_name()),
        Some(Type::Enum) => format!("enum {}", shown(field.type_name())),
        Some(Type::Group) => "a group".to_owned(),
        Some(of) => of.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
        None => "untyped".to_owned(),
    }
}

fn is_repeated(field: &FieldDescriptorProto) -> bool {
    field.label == Some(Label::Repeated as i32)
}

/// Returns the oneof of a field. Ignores the generated oneof of a proto3 `optional` field.
fn oneof(field: &FieldDescriptorProto) -> Option<i32> {
    field.oneof_index.filter(|_| !field.proto3_optional())
}

/// Returns the fields of a message by number. If a number is declared twice, the first field counts.
fn by_number(message: &DescriptorProto) -> HashMap<i32, &FieldDescriptorProto> {
    // In reverse, so the first of several duplicates is inserted last and stays.
    message.field.iter().rev().map(|field| (field.number(), field)).collect()
}

fn member(message: &str, field: &FieldDescriptorProto) -> MessageField {
    MessageField { message: shown(message), name: shown(field.name()), number: field.number() }
}

impl fmt::Display for MessageMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let there = match self.peer {
            PeerRole::Caller => "at the caller",
            PeerRole::Server => "on the server",
        };
        match &self.reason {
            MismatchReason::Types { field, here, there: type_there } => {
                write!(f, "field {field} of {} is {here} here and {type_there} {there}", field.message)
            }
            MismatchReason::Narrows { field, here, there: type_there } => {
                let of = &field.message;
                write!(f, "field {field} of {of} is {here} here and {type_there} {there}, and values would get lost")
            }
            MismatchReason::Together { first, second, is_here } => {
                let (one, other) = if *is_here { ("here", there) } else { (there, "here") };
                write!(f, "fields {first} and {second} of {} can be set together {one}, but not {other}", first.message)
            }
            MismatchReason::Undeclared { message, is_here } => {
                write!(f, "{message} is not declared {}", if *is_here { "here" } else { there })
            }
            MismatchReason::TooLarge { message } => {
                write!(f, "{message} cannot be compared: more than {FIELDS_MAX} fields were reached before it")
            }
        }
    }
}

impl fmt::Display for MessageField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ({})", self.name, self.number)
    }
}

const ROOT: usize = 0;
/// Maximum number of fields in the path of a misfit. Longer paths keep the last ones.
const PATH_LEN_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use prost_types::FileDescriptorProto;
    use protox::prost::Message as _;

    use super::*;
    use crate::testing::{compiled, compiled_files};

    #[test]
    fn changes_of_fields_and_oneofs_fit_in_some_directions() {
        let all =
            "message M { int32 a = 1; repeated string b = 2; map<string, N> c = 3; oneof x { N d = 4; bool e = 5; } }
            message N { M m = 1; E e = 2; } enum E { A = 0; }";
        let (a, ab) = ("message M { string a = 1; }", "message M { string a = 1; bool b = 2; }");
        let oneof = "message M { oneof x { string a = 1; bool b = 2; } }";
        let larger = "message M { oneof x { string a = 1; bool b = 2; string c = 3; } }";
        let beside = "message M { string c = 3; oneof x { string a = 1; bool b = 2; } }";
        let two_oneofs = "message M { oneof x { string a = 1; bool b = 2; } oneof y { string c = 3; } }";
        let optional = "message M { optional string a = 1; optional string b = 2; }";
        // Each with two files, and whether the second one reads the first, and the first one the second.
        let cases = [
            ("the same file", all, all, [true, true]),
            ("more fields", a, "message M { string a = 1; repeated bytes b = 2; M c = 3; }", [true, true]),
            (
                "other names and another order",
                "message M { string a = 1; bool b = 2; N c = 3; } message N { bool d = 1; }",
                "message M { O x = 3; bool y = 2; string z = 1; } message O { bool w = 1; }",
                [true, true],
            ),
            ("a field moved into a new oneof", a, oneof, [true, true]),
            ("two fields moved into a oneof", ab, oneof, [false, true]),
            ("a field moved into an existing oneof", beside, larger, [false, true]),
            ("a field moved between oneofs", two_oneofs, larger, [false, true]),
            ("optional fields", optional, optional, [true, true]),
            ("fields that became optional", "message M { string a = 1; string b = 2; }", optional, [true, true]),
        ];
        for (what, one, other, expected) in cases {
            assert_eq!([fits(one, other), fits(other, one)], expected, "{what}");
        }
    }

    #[test]
    fn a_mismatching_field_is_reported_with_both_types() {
        let here = "message M { Item item = 2; } message Item { string name = 1; string price = 3; }";
        let there = "message M { Item item = 2; } message Item { string name = 1; double price = 3; }";
        let found = misfits(here, there);
        let text = "field `price` (3) of t.Item is string here and double on the server";
        assert_eq!((found.to_string().as_str(), found.path.as_str()), (text, "M.item.price"));
        let found = ask(here, there, PeerRole::Caller, MessageRole::Request).unwrap();
        assert_eq!(found.to_string(), "field `price` (3) of t.Item is string here and double at the caller");
    }

    #[test]
    fn types_of_the_same_encoding_are_compatible() {
        let groups = [
            &["int32", "int64", "uint32", "uint64", "bool", "E"][..],
            &["sint32", "sint64"],
            &["fixed32", "sfixed32"],
            &["fixed64", "sfixed64"],
            &["float"],
            &["double"],
            &["string", "bytes"],
            &["N"],
        ];
        let types: Vec<_> =
            groups.iter().zip(0..).flat_map(|(group, at)| group.iter().map(move |of| (*of, at))).collect();
        for label in ["", "repeated "] {
            for (one, group) in &types {
                for (other, other_group) in &types {
                    let [one, other] = [one, other]
                        .map(|of| format!("message M {{ {label}{of} a = 1; }} message N {{}} enum E {{ A = 0; }}"));
                    assert_eq!(fits(&one, &other), group == other_group, "{one} and {other}");
                }
            }
        }
    }

    #[test]
    fn a_single_value_may_be_read_as_a_list() {
        for of in ["string", "int32", "M"] {
            let one = format!("message M {{ {of} a = 1; }}");
            let list = format!("message M {{ repeated {of} a = 1; }}");
            assert_fits(&one, &list);
            assert_fits(&format!("message M {{ optional {of} a = 1; }}"), &list);
            assert!(!fits(&list, &one), "{of}");
        }
        let text = misfits("message M { repeated string a = 1; }", "message M { string a = 1; }").to_string();
        assert_eq!(text, "field `a` (1) of t.M is repeated string here and string on the server");
    }

    #[test]
    fn the_writer_depends_on_the_role_and_the_part_of_the_call() {
        let (one, list) = ("message M { string a = 1; }", "message M { repeated string a = 1; }");
        use {MessageRole::*, PeerRole::*};
        let has_misfit = |here, there, peer, part| ask(here, there, peer, part).is_some();
        for (peer, part, is_writer) in
            [(Server, Request, true), (Server, Response, false), (Caller, Request, false), (Caller, Response, true)]
        {
            assert_eq!(has_misfit(list, one, peer, part), is_writer, "{peer:?} {part:?}");
            assert_eq!(has_misfit(one, list, peer, part), !is_writer, "{peer:?} {part:?}");
        }
    }

    #[test]
    fn a_map_is_a_list_of_entries() {
        let map = "message M { map<string, int32> a = 1; } message Entry { string key = 1; int32 value = 2; }";
        let list = "message M { repeated Entry a = 1; } message Entry { string key = 1; int64 value = 2; }";
        assert_fits(map, list);
        assert_fits(list, map);
        let other = "message M { map<string, N> a = 1; } message N {}";
        let found = misfits(map, other);
        assert_eq!((found.path.as_str(), fits(other, map)), ("M.a.value", false));
        let text = misfits("message M { bool a = 1; }", other).to_string();
        assert_eq!(text, "field `a` (1) of t.M is bool here and map<string, t.N> on the server");
    }

    #[test]
    fn reading_into_a_smaller_type_narrows() {
        // For each type, the other types it holds among those with its encoding.
        let table = [
            ("int32", &["bool", "E"][..]),
            ("int64", &["bool", "E", "int32", "uint32"]),
            ("uint32", &["bool"]),
            ("uint64", &["bool", "uint32"]),
            ("bool", &[]),
            ("E", &["bool", "int32"]),
            ("sint32", &[]),
            ("sint64", &["sint32"]),
            ("fixed32", &[]),
            ("sfixed32", &[]),
            ("fixed64", &[]),
            ("sfixed64", &[]),
            ("string", &["bytes"]),
            ("bytes", &["string"]),
            ("float", &[]),
        ];
        for (reader, held) in table {
            for (writer, _) in table {
                for (label, end) in [("", ""), ("repeated ", ""), ("map<int32, ", ">")] {
                    let [written, read] = [writer, reader]
                        .map(|of| format!("message M {{ {label}{of}{end} a = 1; }} enum E {{ A = 0; }}"));
                    let narrows = narrows(&written, &read);
                    let is_held = reader == writer || held.contains(&writer);
                    assert_eq!(narrows.is_none(), is_held, "{writer} read as {reader}");
                    if fits(&written, &read) {
                        assert!(narrows.is_none_or(|found| matches!(found.reason, MismatchReason::Narrows { .. })));
                    }
                }
            }
        }
        let text = narrows("message M { int64 a = 1; }", "message M { int32 a = 1; }").unwrap().to_string();
        assert_eq!(text, "field `a` (1) of t.M is int64 here and int32 on the server, and values would get lost");
        let found = narrows("message M { map<int64, M> a = 1; }", "message M { map<int32, M> a = 1; }").unwrap();
        assert_eq!(found.path, "M.a.key");
    }

    #[test]
    fn reading_a_list_as_a_map_narrows() {
        let map = "message M { map<string, M> a = 1; }";
        let list = "message M { repeated Entry a = 1; } message Entry { string key = 1; M value = 2; }";
        let one = "message M { Entry a = 1; } message Entry { string key = 1; M value = 2; }";
        let text = narrows(list, map).unwrap().to_string();
        assert_eq!(
            text,
            "field `a` (1) of t.M is repeated t.Entry here and map<string, t.M> on the server, and values would get lost"
        );
        assert_eq!([narrows(map, list), narrows(one, map), narrows(map, map)], [None, None, None]);
    }

    #[test]
    fn two_fields_must_not_move_into_one_oneof() {
        let (before, after) =
            ("message M { string a = 1; bool b = 2; }", "message M { oneof x { string a = 1; bool b = 2; } }");
        let found = misfits(before, after);
        let text = "fields `a` (1) and `b` (2) of t.M can be set together here, but not on the server";
        assert_eq!((found.to_string().as_str(), found.path.as_str()), (text, "M.b"));
        let found = ask(after, before, PeerRole::Server, MessageRole::Response).unwrap();
        let text = "fields `a` (1) and `b` (2) of t.M can be set together on the server, but not here";
        assert_eq!(found.to_string(), text);
    }

    #[test]
    fn required_fields_may_be_absent() {
        let old = [("t.proto", "syntax = \"proto2\"; package t; message M { required string a = 1; }")];
        let (old, new) = (compiled_files(&old), compiled("message M {}"));
        assert_eq!(ask_sets(&new, &old, PeerRole::Server, MessageRole::Request), None);
    }

    #[test]
    fn a_group_is_incompatible() {
        let old = "syntax = \"proto2\"; package t; message M { optional group A = 1 {} }";
        let old = compiled_files(&[("t.proto", old)]);
        let text = ask_sets(&old, &old, PeerRole::Server, MessageRole::Request).unwrap().to_string();
        assert_eq!(text, "field `a` (1) of t.M is a group here and a group on the server");
    }

    #[test]
    fn recursive_messages_are_compared_once() {
        let here = "message M { M m = 1; repeated N n = 2; } message N { M m = 1; repeated N n = 2; string a = 3; }";
        assert_fits(here, here);
        let there = "message M { N m = 1; repeated N n = 2; } message N { M m = 1; repeated N n = 2; bytes a = 3; bool b = 9; }";
        assert_fits(here, there);
        assert_fits(there, here);
        let found = misfits(
            here,
            "message M { M m = 1; repeated N n = 2; } message N { M m = 1; repeated N n = 2; bool a = 3; }",
        );
        assert_eq!(found.path, "M.n.a");
    }

    #[test]
    fn a_message_is_compared_with_each_counterpart() {
        let here = "message M { N a = 1; N b = 2; } message N { string c = 1; }";
        let there = "message M { N a = 1; O b = 2; } message N { string c = 1; } message O { bool c = 1; }";
        assert_eq!(misfits(here, there).path, "M.b.c");
    }

    #[test]
    fn an_undeclared_message_is_incompatible() {
        let set = compiled("message M {}");
        let declarations = Declarations::of(&set);
        let [known, unknown, enclosing] =
            ["t.M", "t.X", "t"].map(|name| DeclaredMessage { declarations: &declarations, name });
        let text = |here, there| {
            find_mismatch(here, there, PeerRole::Server, MessageRole::Request).map(|misfit| misfit.to_string())
        };
        assert_eq!(text(known, known), None);
        assert_eq!(text(unknown, known).unwrap(), "t.X is not declared here");
        assert_eq!(text(known, unknown).unwrap(), "t.X is not declared on the server");
        assert_eq!(text(known, enclosing).unwrap(), "t is not declared on the server");
    }

    #[test]
    fn names_are_found_in_packages_and_in_messages() {
        let set = compiled_files(&[
            ("a.proto", "syntax = \"proto3\"; package a; import \"b.proto\"; message M { b.c.N.O o = 1; }"),
            ("b.proto", "syntax = \"proto3\"; package a.b.c; message N { message O { bool p = 1; } }"),
        ]);
        let declarations = Declarations::of(&set);
        let found = |name| declarations.find(name).map(|node| declarations.message(node).name().to_owned());
        assert_eq!(found("a.b.c.N.O").as_deref(), Some("O"));
        assert_eq!(found(".a.M").as_deref(), Some("M"));
        assert!(["", ".", "a", "a.b.c", "a.M.", "a..M", "M"].iter().all(|name| found(name).is_none()));
        assert_eq!(ask_named(&set, &set, "a.M", PeerRole::Server, MessageRole::Request), None);
    }

    #[test]
    fn incomplete_descriptors_are_incompatible_without_panics() {
        let own = compiled("message M { N a = 1; string b = 2; } message N {}");
        let text = |change: fn(&mut FieldDescriptorProto)| {
            let mut set = own.clone();
            set.file[0].message_type[0].field.iter_mut().for_each(change);
            ask_sets(&own, &set, PeerRole::Server, MessageRole::Request).map(|misfit| misfit.to_string())
        };
        let a_is = |there: &str| Some(format!("field `a` (1) of t.M is t.N here and {there} on the server"));
        assert_eq!(text(|field| field.r#type = None), a_is("untyped"));
        assert_eq!(text(|field| field.r#type = Some(99)), a_is("untyped"));
        assert_eq!(text(|field| field.type_name = None), a_is("untyped"));
        assert_eq!(text(|field| field.type_name = Some("\n.\u{202e}".to_owned())), a_is("\\n.\\u{202e}"));
        assert_eq!(text(|field| field.label = Some(99)), None);
        assert_eq!(text(|field| field.number = None), None);
        assert!(text(|field| field.oneof_index = Some(-7)).is_some());
    }

    #[test]
    fn invalid_descriptors_cause_no_panics() {
        let body =
            "message M { map<string, N> a = 1; oneof x { N b = 2; bytes c = 3; } repeated E d = 4; optional M e = 5; }
            message N { repeated M a = 1; fixed64 b = 2; message O { N n = 1; } O o = 3; } enum E { A = 0; }";
        let own = compiled(body);
        let bytes = own.encode_to_vec();
        let (mut decoded, mut misfits) = (0, 0);
        let mut random = 1_u64;
        let mut below = |limit: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(random >> 33).unwrap() % limit
        };
        for _ in 0..20_000 {
            let mut bytes = bytes.clone();
            for _ in 0..1 + below(4) {
                let at = below(bytes.len());
                bytes[at] = u8::try_from(below(256)).unwrap();
            }
            let Ok(other) = FileDescriptorSet::decode(&bytes[..]) else { continue };
            decoded += 1;
            for (peer, part) in [(PeerRole::Server, MessageRole::Request), (PeerRole::Caller, MessageRole::Request)] {
                misfits +=
                    usize::from(ask_sets(&own, &other, peer, part).is_some_and(|found| !found.to_string().is_empty()));
                misfits += usize::from(ask_sets(&other, &own, peer, part).is_some_and(|found| !found.path.is_empty()));
            }
        }
        assert!(decoded > 1_000 && misfits > 1_000, "{decoded} of the sets decoded, with {misfits} misfits");
    }

    #[test]
    fn map_entries_without_fields_are_distinguished() {
        let own = compiled("message M { bool a = 1; }");
        let mut set = compiled("message M { map<string, string> a = 1; }");
        set.file[0].message_type[0].nested_type[0].field.clear();
        let text = ask_sets(&own, &set, PeerRole::Server, MessageRole::Request).unwrap().to_string();
        assert_eq!(text, "field `a` (1) of t.M is bool here and map<nothing, nothing> on the server");
    }

    #[test]
    fn any_nesting_depth_is_read() {
        let mut message = DescriptorProto { name: Some("M".to_owned()), ..DescriptorProto::default() };
        for _ in 0..1_000 {
            let nested_type = vec![message];
            message = DescriptorProto { name: Some("M".to_owned()), nested_type, ..DescriptorProto::default() };
        }
        let file = FileDescriptorProto { message_type: vec![message], ..FileDescriptorProto::default() };
        let set = FileDescriptorSet { file: vec![file] };
        let name = vec!["M"; 1_001].join(".");
        assert_eq!(ask_named(&set, &set, &name, PeerRole::Server, MessageRole::Request), None);
    }

    #[test]
    fn compared_pairs_of_messages_are_limited() {
        // One side is a cycle of 1,009 messages, the other a cycle of 1,013. Without a limit, all pairs would be
        // compared.
        let [here, there] = [1_009, 1_013].map(|count| {
            let message = |index| format!("message M{index} {{ M{} next = 1; }}", (index + 1) % count);
            compiled(&(0..count).map(message).collect::<String>())
        });
        let found = ask_named(&here, &there, "t.M0", PeerRole::Server, MessageRole::Request).unwrap();
        assert!(matches!(&found.reason, MismatchReason::TooLarge { .. }), "{found}");
        assert!(found.path.starts_with("M0.….next.next") && found.path.len() < 200, "{}", found.path);
        assert!(found.to_string().contains("more than 262144 fields"), "{found}");
        assert_eq!(ask_named(&here, &here, "t.M0", PeerRole::Server, MessageRole::Request), None);
    }

    #[test]
    fn the_limit_counts_the_fields_of_both_sides() {
        let with_fields = |count: usize| {
            let mut set = compiled("message M { string a = 1; }");
            let field = set.file[0].message_type[0].field[0].clone();
            set.file[0].message_type[0].field = vec![field; count];
            set
        };
        let one = with_fields(1);
        let ask = |count| ask_sets(&one, &with_fields(count), PeerRole::Server, MessageRole::Request);
        assert_eq!(ask(FIELDS_MAX - 2), None);
        assert!(matches!(ask(FIELDS_MAX - 1).unwrap().reason, MismatchReason::TooLarge { .. }));
    }

    /// Asserts that messages of one file can be read by another, from the view of either side.
    fn assert_fits(writer: &str, reader: &str) {
        assert!(fits(writer, reader), "{}", misfits(writer, reader));
    }

    fn fits(writer: &str, reader: &str) -> bool {
        let answers = [PeerRole::Server, PeerRole::Caller].map(|peer| {
            let (writes, reads) = if peer == PeerRole::Server {
                (MessageRole::Request, MessageRole::Response)
            } else {
                (MessageRole::Response, MessageRole::Request)
            };
            [ask(writer, reader, peer, writes).is_none(), ask(reader, writer, peer, reads).is_none()]
        });
        assert!(answers.iter().flatten().all(|answer| *answer == answers[0][0]), "all sides agree on the answer");
        answers[0][0]
    }

    /// Returns the misfit of a request written by this side.
    fn misfits(here: &str, there: &str) -> MessageMismatch {
        ask(here, there, PeerRole::Server, MessageRole::Request).expect("the messages do not fit")
    }

    /// Returns the narrowing of a request written by this side. A response narrows in the other direction.
    fn narrows(here: &str, there: &str) -> Option<MessageMismatch> {
        let [here, there] = [here, there].map(compiled);
        let [here, there] = [&here, &there].map(Declarations::of);
        let [here, there] = [&here, &there].map(|declarations| DeclaredMessage { declarations, name: "t.M" });
        let found = narrowing(here, there, PeerRole::Server, MessageRole::Request);
        let back = narrowing(there, here, PeerRole::Server, MessageRole::Response);
        assert_eq!(found.is_some(), back.is_some());
        found
    }

    fn ask(here: &str, there: &str, peer: PeerRole, part: MessageRole) -> Option<MessageMismatch> {
        ask_sets(&compiled(here), &compiled(there), peer, part)
    }

    fn ask_sets(
        here: &FileDescriptorSet,
        there: &FileDescriptorSet,
        peer: PeerRole,
        part: MessageRole,
    ) -> Option<MessageMismatch> {
        ask_named(here, there, "t.M", peer, part)
    }

    fn ask_named(
        here: &FileDescriptorSet,
        there: &FileDescriptorSet,
        name: &str,
        peer: PeerRole,
        part: MessageRole,
    ) -> Option<MessageMismatch> {
        let [here, there] = [here, there].map(Declarations::of);
        let [here, there] = [&here, &there].map(|declarations| DeclaredMessage { declarations, name });
        find_mismatch(here, there, peer, part)
    }
}
