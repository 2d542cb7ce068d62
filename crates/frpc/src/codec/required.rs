//! Required fields of protobuf messages, checked after decoding.
//!
//! prost gives an absent field its default value, so the check reads the encoded bytes again. It visits only messages
//! that can lack a required field.

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::{
    formats::CodecError,
    json::SeenFields,
    polyglot::{DecodeError, DecodeErrorKind, Result},
};

/// The required fields of a message, and its fields with messages that have some.
///
/// Generated code declares them for `required_fields(true)` of frisbee-rpc-build. A decoded message without a required
/// field is an error in every format.
///
/// ```
/// use frpc::codec::{CheckedField, Formats, Message, RequiredFields};
/// # use frpc::{codec::{At, DecodeError, Reader, Sink, Writer}, prost};
///
/// #[derive(Clone, PartialEq, prost::Message)]
/// struct Node {
///     #[prost(string, required, tag = "1")]
///     name: String,
///     #[prost(message, repeated, tag = "2")]
///     children: Vec<Node>,
/// }
///
/// impl Message for Node {
///     const NAME: &'static str = "Node";
///     const FORMATS: Option<&'static Formats<Self>> = Some(&Formats::prost());
///
///     fn required() -> Option<&'static RequiredFields> {
///         static REQUIRED: RequiredFields = RequiredFields::new(&[
///             CheckedField::value(1, "name").required(),
///             CheckedField::list::<Node>(2, "children"),
///         ]);
///         Some(&REQUIRED)
///     }
///
/// #   fn encode_fields<S: Sink>(&self, out: &mut Writer<S>) { let _ = out; }
/// #   fn decode_fields(&mut self, input: &mut Reader<'_>) -> Result<(), DecodeError> { let _ = input; Ok(()) }
///     // The other items are unchanged.
/// }
///
/// let content = prost::bytes::Bytes::from_static(b"\x0a\x01a\x12\x00");
/// let error = frpc::codec::Format::Proto.decode::<Node>(&content).unwrap_err();
/// assert_eq!(error.to_string(), "Node.children[0].name is required");
/// ```
#[derive(Debug)]
pub struct RequiredFields {
    /// Sorted by number.
    fields: &'static [CheckedField],
}

/// A field of [`RequiredFields`]: required, or with messages that have required fields.
#[derive(Clone, Copy, Debug)]
pub struct CheckedField {
    pub(super) number: u32,
    pub(super) name: &'static str,
    pub(super) is_required: bool,
    pub(super) holds: FieldContent,
}

/// A function returning the required fields of a message, or `None` if it has none.
pub(super) type FindRequired = fn() -> Option<&'static RequiredFields>;

#[derive(Clone, Copy, Debug)]
pub(super) enum FieldContent {
    Value,
    Message(FindRequired),
    Member(FindRequired),
    List(FindRequired),
    Map(FindRequired),
}

/// A part of a message: the index of its field, and encoded bytes. protobuf may split a message into several parts.
type Part<'a> = (usize, &'a [u8]);

impl RequiredFields {
    /// Creates the table of a message. `fields` must be sorted by number.
    pub const fn new(fields: &'static [CheckedField]) -> Self {
        Self { fields }
    }

    /// Returns an error if the message must not be absent.
    #[cold]
    pub(super) fn check_absent(&self) -> Result<()> {
        self.fields.iter().find(|field| field.is_required).map_or(Ok(()), |field| Err(missing(field.name)))
    }

    /// Checks an encoded message of this name. prost has decoded it before, so its bytes are well-formed and its depth
    /// is limited.
    pub(super) fn check(&self, message: &str, encoded: &[u8]) -> Result<(), CodecError> {
        self.check_parts(&[(0, encoded)])
            .map_err(|error| CodecError::Missing { path: error.in_message(message).path().to_owned() })
    }

    fn check_parts(&self, parts: &[Part<'_>]) -> Result<()> {
        let mut seen = SeenFields::new(self.fields.len());
        let mut messages: Vec<Part<'_>> = Vec::new();
        for (number, value) in fields(parts) {
            let Some(index) = self.index_of(number) else { continue };
            let field = &self.fields[index];
            let is_first = seen.add(index).is_some();
            let Some(value) = value else { continue };
            let checked = match field.holds {
                FieldContent::Value => continue,
                FieldContent::Message(_) => {
                    // Other parts of the same message may follow. Empty ones contain nothing, and there could be many.
                    if is_first || !value.is_empty() {
                        messages.push((index, value));
                    }
                    continue;
                }
                // prost merges parts of the same member only if no other member lies between them. Such parts are rare
                // enough to require each to be complete.
                FieldContent::Member(find) => check_inner(find, &[(0, value)]),
                FieldContent::List(find) => {
                    check_inner(find, &[(0, value)]).map_err(|error| error.at_index(position(parts, number, value)))
                }
                FieldContent::Map(find) => {
                    let values: Vec<_> = fields(&[(0, value)])
                        .filter_map(|(number, value)| Some((0, value.filter(|_| number == VALUE_OF_ENTRY)?)))
                        .collect();
                    check_inner(find, &values).map_err(|error| error.at_index(position(parts, number, value)))
                }
            };
            checked.map_err(|error| error.in_message(field.name))?;
        }
        // Stable, so the parts of a message keep their order.
        messages.sort_by_key(|(index, _)| *index);
        for parts in messages.chunk_by(|(left, _), (right, _)| left == right) {
            let field = &self.fields[parts[0].0];
            if let FieldContent::Message(find) = field.holds {
                check_inner(find, parts).map_err(|error| error.in_message(field.name))?;
            }
        }
        let missing_field = (0..).zip(self.fields).find(|(index, field)| field.is_required && !seen.has(*index));
        missing_field.map_or(Ok(()), |(_, field)| Err(missing(field.name)))
    }

    fn index_of(&self, number: u32) -> Option<usize> {
        self.fields.binary_search_by_key(&number, |field| field.number).ok()
    }
}

fn check_inner(find: FindRequired, parts: &[Part<'_>]) -> Result<()> {
    find().map_or(Ok(()), |required| required.check_parts(parts))
}

#[cold]
fn missing(field: &str) -> DecodeError {
    DecodeError::from(DecodeErrorKind::Missing).in_message(field)
}

/// Returns the fields of a message: their numbers, and the bytes of values with a length.
fn fields<'a>(parts: &[Part<'a>]) -> impl Iterator<Item = (u32, Option<&'a [u8]>)> {
    parts.iter().flat_map(|(_, part)| {
        let mut rest = *part;
        std::iter::from_fn(move || next_field(&mut rest))
    })
}

fn next_field<'a>(rest: &mut &'a [u8]) -> Option<(u32, Option<&'a [u8]>)> {
    let (number, wire_type) = decode_key(rest).ok()?;
    if wire_type != WireType::LengthDelimited {
        skip_field(wire_type, number, rest, DecodeContext::default()).ok()?;
        return Some((number, None));
    }
    let len = usize::try_from(decode_varint(rest).ok()?).ok()?;
    let (value, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some((number, Some(value)))
}

/// Returns the index of a list element or map entry.
#[cold]
fn position(parts: &[Part<'_>], number: u32, value: &[u8]) -> usize {
    let values = fields(parts).filter(|(other, _)| *other == number);
    values.take_while(|(_, other)| !other.is_some_and(|other| std::ptr::eq(other, value))).count()
}

const VALUE_OF_ENTRY: u32 = 2;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use bytes::Bytes;
    use prost::Message as _;

    use super::*;
    use crate::codec::{Format, Formats, Message, Reader, Sink, Writer};

    #[derive(Clone, PartialEq, prost::Message)]
    struct Tree {
        #[prost(string, required, tag = "1")]
        name: String,
        #[prost(message, optional, boxed, tag = "2")]
        left: Option<Box<Tree>>,
        #[prost(message, repeated, tag = "3")]
        others: Vec<Tree>,
        #[prost(map = "string, message", tag = "4")]
        by_name: HashMap<String, Tree>,
        #[prost(message, required, tag = "200")]
        leaf: Leaf,
        #[prost(oneof = "Choice", tags = "6, 7")]
        choice: Option<Choice>,
    }

    #[derive(Clone, PartialEq, prost::Oneof)]
    enum Choice {
        #[prost(message, tag = "6")]
        Leaf(Leaf),
        #[prost(string, tag = "7")]
        Text(String),
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct Leaf {
        #[prost(int32, required, tag = "1")]
        x: i32,
        #[prost(int32, required, tag = "2")]
        y: i32,
    }

    macro_rules! message {
        ($message:ty, $name:literal, [$($field:expr),*]) => {
            impl Message for $message {
                const NAME: &'static str = $name;
                const FORMATS: Option<&'static Formats<Self>> = Some(&Formats::prost());

                fn required() -> Option<&'static RequiredFields> {
                    static REQUIRED: RequiredFields = RequiredFields::new(&[$($field),*]);
                    Some(&REQUIRED)
                }

                fn encode_fields<S: Sink>(&self, _: &mut Writer<S>) {}

                fn decode_fields(&mut self, _: &mut Reader<'_>) -> Result<()> {
                    Ok(())
                }
            }
        };
    }

    message!(
        Tree,
        "Tree",
        [
            CheckedField::value(1, "name").required(),
            CheckedField::message::<Tree>(2, "left"),
            CheckedField::list::<Tree>(3, "others"),
            CheckedField::map::<Tree>(4, "by_name"),
            CheckedField::member::<Leaf>(6, "leaf_choice"),
            CheckedField::message::<Leaf>(200, "leaf").required()
        ]
    );
    message!(Leaf, "Leaf", [CheckedField::value(1, "x").required(), CheckedField::value(2, "y").required()]);

    fn tree() -> Tree {
        Tree { name: "a".to_owned(), ..Tree::default() }
    }

    fn decode(bytes: Vec<u8>) -> Result<Tree, String> {
        Format::Proto.decode(&Bytes::from(bytes)).map_err(|error| error.to_string())
    }

    /// Encodes a field with a length.
    fn field(number: u32, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        prost::encoding::encode_key(number, WireType::LengthDelimited, &mut bytes);
        prost::encoding::encode_varint(value.len() as u64, &mut bytes);
        [bytes, value.to_vec()].concat()
    }

    const X: &[u8] = &[0x08, 1];
    const Y: &[u8] = &[0x10, 2];
    const LEAF: &[u8] = &[0x08, 1, 0x10, 2];

    #[test]
    fn complete_messages_are_accepted() {
        let left = Some(Box::new(Tree { choice: Some(Choice::Leaf(Leaf::default())), ..tree() }));
        let whole = Tree { left, others: vec![tree(), tree()], by_name: [("k".to_owned(), tree())].into(), ..tree() };
        assert_eq!(decode(whole.encode_to_vec()), Ok(whole));
    }

    #[test]
    fn the_path_of_a_missing_field_is_reported() {
        let whole = [field(1, b"a"), field(200, LEAF)].concat();
        for (inner, path) in [
            (vec![], "Tree.name is required"),
            (field(1, b"a"), "Tree.leaf is required"),
            ([field(1, b"a"), field(200, X)].concat(), "Tree.leaf.y is required"),
            ([whole.clone(), field(2, &field(1, b""))].concat(), "Tree.left.leaf is required"),
            ([whole.clone(), field(6, Y)].concat(), "Tree.leaf_choice.x is required"),
            ([field(3, &whole), whole.clone(), field(3, &whole[..3])].concat(), "Tree.others[1].leaf is required"),
            ([whole.clone(), field(4, &field(1, b"key"))].concat(), "Tree.by_name[0].name is required"),
            ([whole.clone(), field(4, &field(2, &field(200, LEAF)))].concat(), "Tree.by_name[0].name is required"),
        ] {
            assert_eq!(decode(inner), Err(path.to_owned()));
        }
    }

    #[test]
    fn a_message_in_several_parts_is_checked_as_a_whole() {
        let parts = [field(200, X), field(1, b"a"), field(200, Y)].concat();
        assert_eq!(decode(parts).unwrap().leaf, Leaf { x: 1, y: 2 });
        let (name, leaf) = (field(2, &field(1, b"b")), field(2, &field(200, LEAF)));
        let whole = [field(1, b"a"), field(200, LEAF)].concat();
        assert!(decode([name.clone(), whole.clone(), leaf].concat()).is_ok());
        assert_eq!(decode([name.clone(), whole, name].concat()), Err("Tree.left.leaf is required".to_owned()));
    }

    #[test]
    fn unknown_groups_contain_no_required_fields() {
        let mut group = vec![0x9b, 0x06]; // Starts group 99.
        group.extend(field(1, b"a"));
        group.extend([0x9c, 0x06]);
        assert_eq!(decode([group, field(200, LEAF)].concat()), Err("Tree.name is required".to_owned()));
    }

    #[test]
    fn malformed_bytes_are_errors_of_protobuf() {
        for bytes in [vec![0x0a, 5, b'a'], vec![0x08, 1], vec![0xff]] {
            assert!(matches!(Format::Proto.decode::<Tree>(&Bytes::from(bytes)), Err(CodecError::Proto(_))));
        }
    }
}
