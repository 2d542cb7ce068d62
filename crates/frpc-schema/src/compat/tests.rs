//! Tests of compatibility.

use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet};
use protox::prost::Message as _;

use super::*;
use crate::testing::{compiled, compiled_files};

#[test]
fn changes_of_fields_and_oneofs_fit_in_some_directions() {
    let all = "message M { int32 a = 1; repeated string b = 2; map<string, N> c = 3; oneof x { N d = 4; bool e = 5; } }
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
    let types: Vec<_> = groups.iter().zip(0..).flat_map(|(group, at)| group.iter().map(move |of| (*of, at))).collect();
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
                let [written, read] =
                    [writer, reader].map(|of| format!("message M {{ {label}{of}{end} a = 1; }} enum E {{ A = 0; }}"));
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
fn a_group_fits_groups_only() {
    let file =
        |body: &str| compiled_files(&[("t.proto", &format!("syntax = \"proto2\"; package t; message M {{ {body} }}"))]);
    let ask = |old: &str, new: &str| {
        let (old, new) = (file(old), file(new));
        ask_sets(&old, &new, PeerRole::Server, MessageRole::Request).map(|found| found.to_string())
    };
    let group = "optional group A = 1 { optional string b = 2; }";
    assert_eq!(ask(group, group), None);
    assert_eq!(ask(group, "optional group Other = 1 { optional bytes c = 2; }"), None);
    assert_eq!(
        ask(group, "optional group A = 1 { optional bool b = 2; }").unwrap(),
        "field `b` (2) of t.M.A is string here and bool on the server"
    );
    assert_eq!(
        ask(group, "optional M a = 1;").unwrap(),
        "field `a` (1) of t.M is group t.M.A here and t.M on the server"
    );
}

#[test]
fn recursive_messages_are_compared_once() {
    let here = "message M { M m = 1; repeated N n = 2; } message N { M m = 1; repeated N n = 2; string a = 3; }";
    assert_fits(here, here);
    let there =
        "message M { N m = 1; repeated N n = 2; } message N { M m = 1; repeated N n = 2; bytes a = 3; bool b = 9; }";
    assert_fits(here, there);
    assert_fits(there, here);
    let found =
        misfits(here, "message M { M m = 1; repeated N n = 2; } message N { M m = 1; repeated N n = 2; bool a = 3; }");
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
