//! Rules of messages, compared with the implementation of protovalidate in Go: random messages of all schemas in
//! protovalidate's conformance suite, with the same violations.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
};

use bytes::Bytes;
use conformance::protovalidate::{CaseResult, ConformanceRequest, ConformanceResponse, Outcome, answer};
use fastrand::Rng;
use frpc::prost_types::{
    Any, DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};
use frpc_schema::decode_descriptors;
use prost::{
    Message,
    encoding::{WireType, encode_key, encode_varint},
};
use support::foreign_program;

/// The number of random messages of each type.
const MESSAGES: usize = 2;

#[test]
fn violations_are_those_of_protovalidate_in_go() {
    let Some(judge) = foreign_program("protovalidate-conformance-go") else { return };
    let descriptors = compiled(&fs::canonicalize(&judge).unwrap().with_file_name("proto"));
    let set = decode_descriptors(&descriptors).unwrap();
    let cases = Cases::new(&set).random();
    let request = ConformanceRequest { descriptors, cases };
    let expected = judged(&judge, &request);
    let found = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(answer(request.clone()));
    let mut differences = BTreeMap::<_, Vec<_>>::new();
    let mut kinds = BTreeMap::<_, usize>::new();
    for (name, case) in &request.cases {
        let (expected, found) = (Summary::of(&expected.results[name]), Summary::of(&found.results[name]));
        *kinds.entry(expected.kind).or_default() += 1;
        if !expected.agrees_with(&found) {
            let message = case.type_url.rsplit('.').next().unwrap().to_owned();
            differences
                .entry(message)
                .or_default()
                .push(format!("{name} {case:?}\n  expected {expected:?}\n  found    {found:?}"));
        }
    }
    println!("{} messages: {kinds:?}", request.cases.len());
    let listed = listed();
    for (message, all) in &differences {
        println!("{message}: {} differ\n{}", all.len(), all[0]);
    }
    let unexpected: Vec<_> = differences.keys().filter(|message| !listed.contains(*message)).collect();
    let passing: Vec<_> = listed.iter().filter(|message| !differences.contains_key(*message)).collect();
    assert!(unexpected.is_empty() && passing.is_empty(), "not listed: {unexpected:?}; listed, but equal: {passing:?}");
}

/// The types with known differences.
fn listed() -> BTreeSet<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/protovalidate_failures.txt");
    let listed = fs::read_to_string(file).unwrap();
    listed.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// Compiles the schemas of the suite.
fn compiled(protos: &Path) -> Bytes {
    let includes = ["protovalidate", "protovalidate-testing"].map(|name| protos.join(name));
    let mut files = Vec::new();
    add_protos(&includes[1].join("buf/validate/conformance/cases"), &mut files);
    let out = env::temp_dir().join(format!("protovalidate-{}", process::id()));
    fs::create_dir_all(&out).unwrap();
    let set = out.join("set.binpb");
    let builder = frpc_build::configure().extern_path(".buf.validate", "::frpc_validate::types");
    builder.out_dir(&out).file_descriptor_set_path(&set).compile_protos(&files, &includes).unwrap();
    let descriptors = fs::read(set).unwrap();
    fs::remove_dir_all(&out).unwrap();
    descriptors.into()
}

fn add_protos(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_protos(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    files.sort();
}

/// Runs the judge.
fn judged(judge: &Path, request: &ConformanceRequest) -> ConformanceResponse {
    let mut child = Command::new(judge).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let bytes = request.encode_to_vec();
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    ConformanceResponse::decode(&output.stdout[..]).unwrap()
}

/// The comparable parts of a result. Texts of violations differ between the implementations.
#[derive(Debug, PartialEq)]
struct Summary {
    kind: &'static str,
    violations: Vec<(String, String, String, bool)>,
}

impl Summary {
    fn of(result: &CaseResult) -> Self {
        let kind = match result.outcome.as_ref().unwrap() {
            Outcome::Valid(_) => "valid",
            Outcome::Invalid(_) => "invalid",
            Outcome::BrokenSchema(_) => "broken schema",
            Outcome::BrokenRule(_) => "broken rule",
            Outcome::Unexpected(_) => "unexpected",
        };
        let mut violations = Vec::new();
        if let Some(Outcome::Invalid(found)) = &result.outcome {
            violations.extend(found.violations.iter().map(|one| {
                (one.rule_id().to_owned(), format!("{:?}", one.field), format!("{:?}", one.rule), one.for_key())
            }));
            violations.sort();
        }
        Self { kind, violations }
    }
}

/// The maximum number of violations in a status of frisbee-rpc-validate.
const VIOLATIONS_MAX: usize = 16;

impl Summary {
    fn agrees_with(&self, found: &Self) -> bool {
        if self.violations.len() <= VIOLATIONS_MAX {
            return self == found;
        }
        let are_some = found.violations.iter().all(|violation| self.violations.contains(violation));
        self.kind == found.kind && found.violations.len() == VIOLATIONS_MAX && are_some
    }
}

/// The types of a schema, by full name with a leading dot.
struct Cases<'a> {
    messages: BTreeMap<String, &'a DescriptorProto>,
    enums: HashMap<String, &'a EnumDescriptorProto>,
}

/// The maximum depth of a random message.
const DEPTH_MAX: usize = 3;

impl<'a> Cases<'a> {
    fn new(set: &'a FileDescriptorSet) -> Self {
        let mut cases = Self { messages: BTreeMap::new(), enums: HashMap::new() };
        for file in &set.file {
            let scope = format!(".{}", file.package());
            for declared in &file.enum_type {
                cases.enums.insert(format!("{scope}.{}", declared.name()), declared);
            }
            for message in &file.message_type {
                cases.add(&scope, message);
            }
        }
        cases
    }

    fn add(&mut self, scope: &str, message: &'a DescriptorProto) {
        let name = format!("{scope}.{}", message.name());
        for declared in &message.enum_type {
            self.enums.insert(format!("{name}.{}", declared.name()), declared);
        }
        for nested in &message.nested_type {
            self.add(&name, nested);
        }
        self.messages.insert(name, message);
    }

    /// Returns a message with its required fields and random ones of each type.
    fn random(&self) -> BTreeMap<String, Any> {
        let mut cases = BTreeMap::new();
        let is_entry = |message: &DescriptorProto| message.options.as_ref().is_some_and(|options| options.map_entry());
        for (name, message) in &self.messages {
            let Some(short) = name.strip_prefix(".buf.validate.conformance.cases.") else { continue };
            if is_entry(message) {
                continue;
            }
            let mut rng = Rng::with_seed(
                name.bytes().fold(7, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte))),
            );
            for number in 0..MESSAGES {
                let mut value = Vec::new();
                self.put_message(&mut rng, message, &mut value, if number > 0 { 0 } else { DEPTH_MAX });
                let type_url = format!("type.googleapis.com/{}", &name[1..]);
                cases.insert(format!("{short}/{number:02}"), Any { type_url, value });
            }
        }
        cases
    }

    fn put_message(&self, rng: &mut Rng, message: &DescriptorProto, out: &mut Vec<u8>, depth: usize) {
        let mut taken = BTreeSet::new();
        for field in &message.field {
            let is_taken = field.oneof_index.is_some_and(|oneof| !taken.insert(oneof));
            let is_required = field.label() == Label::Required;
            if is_taken || (!is_required && (depth == DEPTH_MAX || rng.u8(..8) == 0)) {
                continue;
            }
            let count = if field.label() == Label::Repeated { rng.usize(..5) } else { 1 };
            for _ in 0..count {
                self.put_value(rng, message, field, out, depth);
            }
        }
    }

    fn put_value(
        &self,
        rng: &mut Rng,
        within: &DescriptorProto,
        field: &FieldDescriptorProto,
        out: &mut Vec<u8>,
        depth: usize,
    ) {
        let number = u32::try_from(field.number()).unwrap();
        let integer = NUMBERS[rng.usize(..NUMBERS.len())];
        #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "any value will do")]
        match field.r#type() {
            Type::Double => fixed(out, number, &FLOATS[rng.usize(..FLOATS.len())].to_le_bytes()),
            Type::Float => fixed(out, number, &(FLOATS[rng.usize(..FLOATS.len())] as f32).to_le_bytes()),
            Type::Fixed64 | Type::Sfixed64 => fixed(out, number, &integer.to_le_bytes()),
            Type::Fixed32 | Type::Sfixed32 => fixed(out, number, &(integer as i32).to_le_bytes()),
            Type::Int64 | Type::Uint64 => varint(out, number, integer.cast_unsigned()),
            Type::Int32 => varint(out, number, i64::from(integer as i32).cast_unsigned()),
            Type::Uint32 => varint(out, number, (integer as u32).into()),
            Type::Sint64 => varint(out, number, ((integer << 1) ^ (integer >> 63)).cast_unsigned()),
            Type::Sint32 => {
                let integer = integer as i32;
                varint(out, number, u64::from(((integer << 1) ^ (integer >> 31)).cast_unsigned()));
            }
            Type::Bool => varint(out, number, rng.bool().into()),
            Type::Enum => {
                let values = &self.enums[field.type_name()].value;
                let value = if rng.u8(..4) == 0 { integer as i32 } else { values[rng.usize(..values.len())].number() };
                varint(out, number, i64::from(value).cast_unsigned());
            }
            Type::String => {
                let text = match (within.name(), field.name()) {
                    ("Any", _) => ANY_TYPES[rng.usize(..ANY_TYPES.len())],
                    ("FieldMask", _) => MASKS[rng.usize(..MASKS.len())],
                    _ => TEXTS[rng.usize(..TEXTS.len())],
                };
                content(out, number, text.as_bytes());
            }
            Type::Bytes if within.name() == "Any" => {}
            Type::Bytes => content(out, number, BLOBS[rng.usize(..BLOBS.len())]),
            Type::Message | Type::Group if depth > DEPTH_MAX => {}
            Type::Message => {
                let mut inner = Vec::new();
                match field.type_name() {
                    // Other values are out of range.
                    ".google.protobuf.Duration" | ".google.protobuf.Timestamp" => {
                        varint(&mut inner, 1, SECONDS[rng.usize(..SECONDS.len())].cast_unsigned());
                    }
                    name => self.put_message(rng, self.messages[name], &mut inner, depth + 1),
                }
                content(out, number, &inner);
            }
            Type::Group => {
                encode_key(number, WireType::StartGroup, out);
                self.put_message(rng, self.messages[field.type_name()], out, depth + 1);
                encode_key(number, WireType::EndGroup, out);
            }
        }
    }
}

fn varint(out: &mut Vec<u8>, number: u32, value: u64) {
    encode_key(number, WireType::Varint, out);
    encode_varint(value, out);
}

fn fixed(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    let wire_type = if bytes.len() == 4 { WireType::ThirtyTwoBit } else { WireType::SixtyFourBit };
    encode_key(number, wire_type, out);
    out.extend_from_slice(bytes);
}

fn content(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Numbers next to the limits in the schemas.
const NUMBERS: [i64; 30] = [
    0,
    1,
    -1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    11,
    15,
    16,
    17,
    63,
    64,
    127,
    128,
    129,
    200,
    255,
    256,
    257,
    300,
    -42,
    123,
    i64::MIN,
    i64::MAX,
];

const FLOATS: [f64; 20] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.0,
    3.0,
    5.0,
    7.0,
    9.5,
    10.0,
    16.0,
    17.0,
    128.0,
    200.0,
    256.0,
    300.0,
    456.789,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
];

const SECONDS: [i64; 12] = [0, 1, -1, 2, 3, 4, 5, 60, 3600, -62_135_596_800, 4_102_444_800, 315_576_000_000 / 1000];

const ANY_TYPES: [&str; 3] = [
    "type.googleapis.com/google.protobuf.Duration",
    "type.googleapis.com/google.protobuf.Timestamp",
    "type.googleapis.com/x.Y",
];

const MASKS: [&str; 5] = ["a", "b", "c.d", "a.b", "e"];

const BLOBS: [&[u8]; 14] = [
    b"",
    b"a",
    b"foo",
    b"bar",
    b"baz",
    b"quux",
    b"buzz",
    b"bazbuzz",
    b"\x01\x02\x03\x04",
    b"\x99",
    b"\0\x01bar",
    b"0123456789abcdef",
    b"\x7f\0\0\x01",
    b"\xff\xfe\xfd\xfc\xfb",
];

const TEXTS: [&str; 90] = [
    "",
    "a",
    "ab",
    "abc",
    "abcd",
    "abcde",
    "foo",
    "bar",
    "baz",
    "quux",
    "foobar",
    "bazquux",
    "barfoo",
    "foobaz",
    "candy bars",
    "\u{1f648}",
    "\u{1f648}\u{1f648}\u{1f648}",
    "\u{e9}t\u{e9}",
    "x\u{0}y",
    " a",
    "a ",
    "A",
    "AB",
    "1",
    "123",
    "-",
    "_",
    "foo@bar.com",
    "foo@",
    "@bar.com",
    "foo+bar@example.com",
    "a@b",
    "foo bar@example.com",
    "foo@bar..com",
    "\"a\"@b.c",
    "example.com",
    "example.com.",
    "foo-bar.com",
    "-foo.com",
    "foo-.com",
    "a.b.c.d",
    "foo_bar.com",
    "example.com:8080",
    ":80",
    "example.com:",
    "example.com:99999",
    "[::1]:80",
    "127.0.0.1:0",
    "127.0.0.1",
    "127.0.0.01",
    "256.1.1.1",
    "127.0.0",
    "::1",
    "2001:db8::1",
    "fe80::1%en0",
    "::ffff:1.2.3.4",
    ":::",
    "1::2::3",
    "2001:0db8:85a3:0000:0000:8a2e:0370:7334",
    "::",
    "127.0.0.0/8",
    "127.0.0.1/8",
    "127.0.0.1/33",
    "::1/128",
    "::1/64",
    "2001:db8::/32",
    "2001:db8::/129",
    "10.0.0.0/08",
    "http://example.com/a?b=c#d",
    "http://example.com/a b",
    "https://[::1]:80/",
    "urn:isbn:1",
    "/a/b",
    "../c",
    "?q=%zz",
    "#f",
    "http://%41.com",
    "mailto:a@b.c",
    "1http://x",
    "http://user:pw@host:80/p;x=1",
    "ab9d9ef2-0c1e-4d4d-9d3e-0f0f5b3d6d12",
    "ab9d9ef20c1e4d4d9d3e0f0f5b3d6d12",
    "AB9D9EF2-0C1E-4D4D-9D3E-0F0F5B3D6D12",
    "ab9d9ef2-0c1e-4d4d-9d3e",
    ":path",
    "x-custom",
    "X Custom",
    "a\r\nb",
    "01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "foo.bar.Baz",
];
