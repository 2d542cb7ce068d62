//! Fingerprints of messages: 128 bits for two peers to verify that they encode a message in the same way.
//!
//! Two messages have the same fingerprint if each side can read the other side's encoding in frpc and assigns the
//! values to the same field numbers. Names of messages, fields, enums, values and oneofs do not matter. Neither do
//! comments, options and files. The numbers of fields and enum values matter, and so does their order.
//!
//! # The canonical form
//!
//! A fingerprint is computed from the *canonical form* of a message. The form describes the message and every message
//! and enum reachable from it. All its integers have 32 bits and are big-endian, and tags have one byte.
//!
//! ```text
//! form    = "frpc-schema-1" message* enum*     13 bytes of ASCII; the first message is the one in question
//! message = count field*                       count: how many fields, members of oneofs among them
//! field   = number shape                       number: that of the field in protobuf
//! shape   = 0x00 type                          always there
//!         | 0x01 type                          optional
//!         | 0x02 oneof type                    a member of a oneof
//!         | 0x03 type                          a list
//!         | 0x04 type type                     a map: the type of its keys, then that of its values
//! type    = 0x00                               bool
//!         | 0x01                               int32, sint32, sfixed32
//!         | 0x02                               int64, sint64, sfixed64
//!         | 0x03                               uint32, fixed32
//!         | 0x04                               uint64, fixed64
//!         | 0x05                               float
//!         | 0x06                               double
//!         | 0x07                               string
//!         | 0x08                               bytes
//!         | 0x09 index                         an enum
//!         | 0x0a index                         a message
//! enum    = count number*                      count: how many values, aliases among them
//! ```
//!
//! - The fields of a message are in wire order: first all fields that are neither lists, maps nor messages, then lists,
//!   then messages and maps. Each group is in the order of declaration. A oneof's members belong to the groups of their
//!   types.
//! - A proto3 field is *optional* if it is declared `optional` or has a message type; otherwise it is *always there*.
//!   In proto2 and editions, `required` fields are always there, and other single fields are optional. The oneof
//!   generated for an `optional` field does not count as a oneof.
//! - The oneofs of a message are numbered from 0, in the order of their first member in the list of fields.
//! - Messages are numbered from 0, beginning with the message in question. Every other message gets the next number at
//!   its first mention as a type, with messages read in the order of their numbers. Messages are written once each, in
//!   this order. A recursive message refers to its own number. Map entries are not messages.
//! - Enums are numbered from 0 in the same way and written after the messages.
//! - The values of an enum are in the order of declaration. Their numbers are those of the proto file, in two's
//!   complement.
//!
//! The fingerprint consists of the first 16 bytes of the form's SHA-256, as a big-endian integer.
//!
//! # Example
//!
//! ```text
//! message Node {
//!   repeated Node children = 3;
//!   string text = 1;
//! }
//! ```
//!
//! has the form `"frpc-schema-1" 00000002 00000001 00 07 00000003 03 0a 00000000` and the fingerprint
//! `0x703e_0dae_c17a_2e7a_99a7_b64f_df90_90b8`.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

use crate::model::{EnumSchema, FieldSchema, FieldShape, MessageSchema, Schema, ValueType};

/// Messages and enums of a schema, indexed to compute fingerprints.
#[derive(Clone, Debug)]
pub struct Fingerprints<'a> {
    messages: HashMap<&'a str, &'a MessageSchema>,
    enums: HashMap<&'a str, &'a EnumSchema>,
}

impl Schema {
    /// Returns the index to compute fingerprints of this schema's messages.
    pub fn fingerprints(&self) -> Fingerprints<'_> {
        let messages = self.packages.iter().flat_map(|package| &package.messages);
        let enums = self.packages.iter().flat_map(|package| &package.enums);
        Fingerprints {
            messages: messages.map(|message| (message.full_name.as_str(), message)).collect(),
            enums: enums.map(|declared| (declared.full_name.as_str(), declared)).collect(),
        }
    }
}

impl Fingerprints<'_> {
    /// Returns the fingerprint of a message, or `None` if the schema lacks the message or a type reachable from it.
    pub fn of(&self, full_name: &str) -> Option<u128> {
        let digest = Sha256::digest(self.form(full_name)?);
        let (first, _) = digest.split_first_chunk().expect("SHA-256 has 32 bytes");
        Some(u128::from_be_bytes(*first))
    }

    /// Returns the canonical form of a message.
    fn form(&self, full_name: &str) -> Option<Vec<u8>> {
        let mut form =
            CanonicalForm { bytes: VERSION.to_vec(), messages: NameNumbers::default(), enums: NameNumbers::default() };
        form.messages.number(full_name);
        let mut next = 0;
        while let Some(&name) = form.messages.names.get(next) {
            form.message(self.messages.get(name)?);
            next += 1;
        }
        // Enums come last, when the messages have numbered all of them.
        for name in std::mem::take(&mut form.enums.names) {
            form.enumeration(self.enums.get(name)?);
        }
        Some(form.bytes)
    }
}

/// A canonical form under construction.
struct CanonicalForm<'a> {
    bytes: Vec<u8>,
    messages: NameNumbers<'a>,
    enums: NameNumbers<'a>,
}

impl<'a> CanonicalForm<'a> {
    fn message(&mut self, message: &'a MessageSchema) {
        self.count(message.fields.len());
        let mut oneofs = Vec::new();
        for field in &message.fields {
            self.field(field, &mut oneofs);
        }
    }

    /// Writes a field. `oneofs` holds the oneofs of its message in the order of their numbers.
    fn field(&mut self, field: &'a FieldSchema, oneofs: &mut Vec<usize>) {
        self.bytes.extend(field.number.to_be_bytes());
        match &field.shape {
            FieldShape::Always(of) => self.tagged(0, &[of]),
            FieldShape::Optional(of) => self.tagged(1, &[of]),
            FieldShape::Member(oneof, of) => {
                let number = oneofs.iter().position(|named| named == oneof).unwrap_or_else(|| {
                    oneofs.push(*oneof);
                    oneofs.len() - 1
                });
                self.bytes.push(2);
                self.count(number);
                self.type_of(of);
            }
            FieldShape::List(of) => self.tagged(3, &[of]),
            FieldShape::Map(key, value) => self.tagged(4, &[key, value]),
        }
    }

    fn tagged(&mut self, tag: u8, types: &[&'a ValueType]) {
        self.bytes.push(tag);
        types.iter().for_each(|of| self.type_of(of));
    }

    fn type_of(&mut self, of: &'a ValueType) {
        let tag = match of {
            ValueType::Bool => 0,
            ValueType::I32 => 1,
            ValueType::I64 => 2,
            ValueType::U32 => 3,
            ValueType::U64 => 4,
            ValueType::F32 => 5,
            ValueType::F64 => 6,
            ValueType::String => 7,
            ValueType::Bytes => 8,
            ValueType::Enum(_) => 9,
            ValueType::Message(_) => 10,
        };
        self.bytes.push(tag);
        let index = match of {
            ValueType::Enum(name) => self.enums.number(name),
            ValueType::Message(name) => self.messages.number(name),
            _ => return,
        };
        self.count(index);
    }

    fn enumeration(&mut self, declared: &EnumSchema) {
        self.count(declared.values.len());
        declared.values.iter().for_each(|value| self.bytes.extend(value.number.to_be_bytes()));
    }

    fn count(&mut self, count: usize) {
        let count = u32::try_from(count).expect("descriptors are shorter than 4 GiB");
        self.bytes.extend(count.to_be_bytes());
    }
}

/// Names numbered in the order of their first use.
#[derive(Default)]
struct NameNumbers<'a> {
    names: Vec<&'a str>,
    numbers: HashMap<&'a str, usize>,
}

impl<'a> NameNumbers<'a> {
    /// Returns the number of a name. A new name gets the next number.
    fn number(&mut self, name: &'a str) -> usize {
        *self.numbers.entry(name).or_insert_with(|| {
            self.names.push(name);
            self.names.len() - 1
        })
    }
}

const VERSION: &[u8] = b"frpc-schema-1";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        SchemaOptions,
        testing::{compiled_files, schema},
    };

    #[test]
    fn form_and_fingerprint_match_the_documentation() {
        let schema = schema("message Node { repeated Node children = 3; string text = 1; }");
        let fields = [&b"\0\0\0\x01\x00\x07"[..], b"\0\0\0\x03\x03\x0a\0\0\0\0"].concat();
        let form = [&b"frpc-schema-1"[..], b"\0\0\0\x02", &fields].concat();
        assert_eq!(schema.fingerprints().form("t.Node").unwrap(), form);
        assert_eq!(schema.fingerprints().of("t.Node"), Some(0x703e_0dae_c17a_2e7a_99a7_b64f_df90_90b8));
    }

    #[test]
    fn the_form_has_every_shape_and_type() {
        let schema = schema(
            "message M { bool a = 1; optional sint32 b = 2; uint64 c = 3; float d = 4; double e = 5; bytes f = 6;
                oneof x { fixed32 g = 7; Inner h = 8; } oneof y { sfixed64 i = 9; }
                repeated Color j = 10; map<string, Inner> k = 11; Empty l = 12; map<int32, Late> m = 13; }
            message Empty {} message Inner { Late late = 300000000; } enum Color { NO = 0; RED = -1; }
            enum Late { NEVER = 0; }",
        );
        let fields = [
            "00000001 00 00",
            "00000002 01 01",
            "00000003 00 04",
            "00000004 00 05",
            "00000005 00 06",
            "00000006 00 08",
            "00000007 02 00000000 03",
            "00000009 02 00000001 02",
            "0000000a 03 09 00000000",
            "00000008 02 00000000 0a 00000001",
            "0000000b 04 07 0a 00000001",
            "0000000c 01 0a 00000002",
            "0000000d 04 01 09 00000001",
        ];
        let inner = "00000001 11e1a300 00 09 00000001";
        let enums = "00000002 00000000 ffffffff 00000001 00000000";
        let expected = format!("0000000d {} {inner} 00000000 {enums}", fields.join(" "));
        let form = schema.fingerprints().form("t.M").unwrap();
        let hex: String = form[VERSION.len()..].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected.replace(' ', ""));
    }

    #[test]
    fn some_changes_keep_the_fingerprint() {
        let cases = [
            (
                "names of fields, oneofs, messages and enums",
                "message M { string a = 1; oneof x { E b = 2; N c = 3; } map<string, N> d = 4; optional bool e = 5; }
                message N {} enum E { A = 0; B = 1; }",
                "message M { string q = 1; oneof r { F s = 2; M.O t = 3; } map<string, M.O> u = 4; optional bool v = 5;
                message O {} } enum F { C = 0; D = 1; }",
            ),
            (
                "comments, options and reserved numbers",
                "message M { repeated int32 a = 1; }",
                "// Old.\nmessage M { option deprecated = true; reserved 7; repeated int32 a = 1 [packed = false]; }",
            ),
            (
                "unreachable declarations",
                "message M { N n = 1; } message N {}",
                "message Before { M m = 1; } message M { N n = 1; } message N {} enum E { A = 0; }",
            ),
            (
                "the order of fields in different groups",
                "message M { repeated string list = 1; string text = 2; M next = 3; }",
                "message M { M next = 3; string text = 2; repeated string list = 1; }",
            ),
            (
                "the order of oneofs whose fields are in different groups",
                "message M { oneof x { M a = 1; } oneof y { string b = 2; } }",
                "message M { oneof y { string b = 2; } oneof x { M a = 1; } }",
            ),
            ("nothing in a recursive message", "message M { M next = 1; }", "message M { M next = 1; }"),
        ];
        for (what, before, after) in cases {
            assert_eq!(of_m(before), of_m(after), "{what}");
        }
    }

    #[test]
    fn other_changes_change_the_fingerprint() {
        let nested = "message M { N n = 1; } message N { map<string, O> o = 1; } message O { repeated P p = 1; }";
        let deep = [format!("{nested} message P {{}}"), format!("{nested} message P {{ bool a = 1; }}")];
        let cases = [
            ("two fields", "message M { string a = 1; string b = 2; }", "message M { string b = 2; string a = 1; }"),
            ("a number", "message M { string a = 1; }", "message M { string a = 2; }"),
            ("a second field", "message M { string a = 1; }", "message M { string a = 1; string b = 2; }"),
            ("a first field", "message M {}", "message M { string a = 1; }"),
            (
                "a map and a list",
                "message M { map<string, string> a = 1; }",
                "message M { repeated Entry a = 1; } message Entry { string key = 1; string value = 2; }",
            ),
            ("a message at any depth", &deep[0], &deep[1]),
            ("a cycle", "message M { M next = 1; }", "message M { N next = 1; } message N { M next = 1; }"),
            ("another cycle", "message M { M next = 1; }", "message M { N next = 1; } message N { N next = 1; }"),
            ("no cycle", "message M { M next = 1; }", "message M { N next = 1; } message N {}"),
            (
                "one message used twice",
                "message M { N a = 1; N b = 2; } message N { string a = 1; }",
                "message M { N a = 1; O b = 2; } message N { string a = 1; } message O { string a = 1; }",
            ),
        ];
        for (what, before, after) in cases {
            assert_ne!(of_m(before), of_m(after), "{what}");
        }
    }

    #[test]
    fn the_file_and_package_of_a_message_are_ignored() {
        let inner = "message Inner { string a = 1; }";
        let one = schema(&format!("message M {{ Inner inner = 1; }} {inner}"));
        let set = compiled_files(&[
            ("m.proto", "syntax = \"proto3\"; import \"inner.proto\"; message M { other.Inner inner = 1; }"),
            ("inner.proto", &format!("syntax = \"proto3\"; package other; {inner}")),
        ]);
        let two = Schema::read(&set, &SchemaOptions::default()).unwrap();
        assert_eq!(one.fingerprints().of("t.M").unwrap(), two.fingerprints().of("M").unwrap());
    }

    #[test]
    fn integers_with_equal_encoding_are_the_same() {
        for types in [["int32", "sint32", "sfixed32"], ["int64", "sint64", "sfixed64"]] {
            let [plain, other, fixed] = types.map(|of| format!("message M {{ {of} a = 1; }}"));
            assert_same(&plain, &other);
            assert_same(&plain, &fixed);
        }
        for [plain, fixed] in [["uint32", "fixed32"], ["uint64", "fixed64"]] {
            assert_same(&format!("message M {{ {plain} a = 1; }}"), &format!("message M {{ {fixed} a = 1; }}"));
        }
    }

    #[test]
    fn types_with_different_encodings_differ() {
        let types = "bool int32 int64 uint32 uint64 float double string bytes E M N".split(' ');
        let rest = "message N { string a = 1; } enum E { A = 0; }";
        let fingerprints = types.map(|of| of_m(&format!("message M {{ optional {of} a = 1; }} {rest}")));
        assert_all_differ(fingerprints.collect());
    }

    #[test]
    fn shapes_are_all_different() {
        let shapes = [
            "string a = 1;",
            "optional string a = 1;",
            "oneof x { string a = 1; }",
            "repeated string a = 1;",
            "map<string, string> a = 1;",
            "map<string, bytes> a = 1;",
            "map<bool, string> a = 1;",
        ];
        assert_all_differ(shapes.map(|shape| of_m(&format!("message M {{ {shape} }}"))).to_vec());
    }

    #[test]
    fn oneof_membership_is_significant() {
        let one = "message M { oneof x { string a = 1; string b = 2; string c = 3; } }";
        let two = "message M { oneof x { string a = 1; string b = 2; } oneof y { string c = 3; } }";
        let other = "message M { oneof x { string a = 1; } oneof y { string b = 2; string c = 3; } }";
        assert_all_differ([one, two, other].map(of_m).to_vec());
    }

    #[test]
    fn enum_numbers_and_order_matter_and_names_do_not() {
        assert_differs(&with_enum("A = 0;"), &with_enum("A = 0; B = 1;"));
        let before = with_enum("A = 0; B = 1; C = 2;");
        assert_same(&before, &with_enum("A = 0; X = 1; C = 2;"));
        assert_differs(&before, &with_enum("A = 0; C = 2; B = 1;"));
        assert_differs(&before, &with_enum("A = 0; B = 1; C = 3;"));
        assert_differs(&before, &with_enum("option allow_alias = true; A = 0; B = 1; D = 1; C = 2;"));
    }

    #[test]
    fn mutually_recursive_messages_have_distinct_fingerprints() {
        let schema = schema("message M { N n = 1; bool a = 2; } message N { M m = 1; }");
        let fingerprints = schema.fingerprints();
        assert_ne!(fingerprints.of("t.M").unwrap(), fingerprints.of("t.N").unwrap());
        let other = "message N { M m = 1; } message M { N n = 1; bool a = 2; }";
        assert_eq!(fingerprints.of("t.M").unwrap(), of_m(other));
    }

    #[test]
    fn long_chains_and_wide_messages_have_a_fingerprint() {
        let chain: String = (0..5_000).map(|index| format!("message N{index} {{ N{} n = 1; }}", index + 1)).collect();
        of_m(&format!("message M {{ N0 n = 1; }} {chain} message N5000 {{}}"));
    }

    #[test]
    fn an_undeclared_message_has_no_fingerprint() {
        let mut schema = schema("message M { N n = 1; E e = 2; } message N {} enum E { A = 0; }");
        assert_eq!(schema.fingerprints().of("t.X"), None);
        assert_eq!(schema.fingerprints().of("t.E"), None);
        assert!(schema.fingerprints().of("t.M").is_some());
        let enums = std::mem::take(&mut schema.packages[0].enums);
        assert_eq!(schema.fingerprints().of("t.M"), None);
        schema.packages[0].enums = enums;
        schema.packages[0].messages.retain(|message| message.full_name != "t.N");
        assert_eq!(schema.fingerprints().of("t.M"), None);
    }

    fn with_enum(values: &str) -> String {
        format!("message M {{ E e = 1; }} enum E {{ {values} }}")
    }

    fn assert_same(before: &str, after: &str) {
        assert_eq!(of_m(before), of_m(after), "{before} and {after}");
    }

    fn assert_differs(before: &str, after: &str) {
        assert_ne!(of_m(before), of_m(after), "{before} and {after}");
    }

    fn assert_all_differ(mut fingerprints: Vec<u128>) {
        let count = fingerprints.len();
        fingerprints.sort_unstable();
        fingerprints.dedup();
        assert_eq!(fingerprints.len(), count);
    }

    /// Returns the fingerprint of message `M` in the body of a file.
    fn of_m(body: &str) -> u128 {
        schema(body).fingerprints().of("t.M").unwrap()
    }
}
