//! Descriptors from any source become valid Rust code or an error. Files are written into the output directory only.

use std::{fs, panic, path::Path};

use frpc_build::prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    FileDescriptorSet, MessageOptions, MethodDescriptorProto, OneofDescriptorProto, ServiceDescriptorProto,
    SourceCodeInfo,
    field_descriptor_proto::{Label, Type},
    source_code_info::Location,
};
use protox::prost::Message as _;

use crate::new_dir;

#[test]
fn invalid_names_are_refused_everywhere() {
    type Place = (&'static str, fn(&mut FileDescriptorProto, String));
    let places: [Place; 9] = [
        ("part of a package", |file, name| file.package = Some(name)),
        ("message", |file, name| file.message_type[0].name = Some(name)),
        ("field", |file, name| file.message_type[0].field[0].name = Some(name)),
        ("oneof", |file, name| file.message_type[0].oneof_decl[0].name = Some(name)),
        ("enum", |file, name| file.enum_type[0].name = Some(name)),
        ("value of an enum", |file, name| file.enum_type[0].value[0].name = Some(name)),
        ("service", |file, name| file.service[0].name = Some(name)),
        ("method", |file, name| file.service[0].method[0].name = Some(name)),
        ("message", |file, name| {
            file.message_type[0].nested_type.push(DescriptorProto { name: Some(name), ..DescriptorProto::default() });
        }),
    ];
    let names = [
        "../../x",
        "/tmp/x",
        "a b",
        "a\nb",
        "a\"b",
        "a}",
        "a; fn x() {}",
        "a\0b",
        "größe",
        "1a",
        "a-b",
        "a/b",
        "a\\b",
        "r#a",
        "a::b",
        "'a",
        "a.",
        ".a",
        "a..b",
        "...",
        "\u{202e}a",
        "a\u{301}",
    ];
    for (what, set_name) in places {
        for name in names.iter().chain(if what == "part of a package" { &[][..] } else { &["", "a.b"] }) {
            let mut file = file();
            set_name(&mut file, (*name).to_owned());
            let text = refusal(vec![file]);
            assert!(text.contains(&format!("is not a valid name for this {what}")), "{what} {name:?}: {text}");
            assert!(!text.contains(['\0', '\u{202e}']), "{text}");
        }
    }
}

#[test]
fn package_names_cannot_escape_the_output_directory() {
    let dir = new_dir();
    let out_dir = dir.join("out");
    let package = format!("{}/escaped", dir.display());
    for package in ["../escaped", &package, "a/../../escaped", "\"); } fn injected() { (\""] {
        let file = FileDescriptorProto { package: Some(package.to_owned()), ..file() };
        compile(&out_dir, vec![file]).unwrap_err();
    }
    assert!(fs::read_dir(&dir).unwrap().next().is_none(), "nothing is written");
}

#[test]
fn referenced_types_must_exist_with_the_right_kind() {
    for (of, name) in [
        (Type::Message, ".a.Missing"),
        (Type::Message, "M"),
        (Type::Message, ""),
        (Type::Message, "."),
        (Type::Message, ".a.E"),
        (Type::Enum, ".a.M"),
        (Type::Enum, ".a.M.nothing"),
        (Type::Message, ".google.protobuf.Timestamp"),
        (Type::Message, ".a.M; fn x() {}"),
    ] {
        let mut file = file();
        file.message_type[0].field[0] = FieldDescriptorProto { type_name: Some(name.to_owned()), ..field("x", 1, of) };
        let text = refusal(vec![file]);
        assert!(
            text.contains("is not declared in any of the files")
                || text.contains("is declared, but it is not of the kind required here"),
            "{text}"
        );
    }
    for name in ["", ".a.E", ".a.Missing"] {
        let mut file = file();
        file.service[0].method[0].output_type = Some(name.to_owned());
        refusal(vec![file]);
    }
    for (of, label) in [(None, Some(1)), (Some(99), Some(1)), (Some(5), Some(9)), (Some(-1), None)] {
        let mut file = file();
        let field = FieldDescriptorProto { r#type: of, label, ..field("x", 1, Type::Int32) };
        file.message_type[0].field[0] = field;
        refusal(vec![file]);
    }
}

#[test]
fn numbers_and_indices_must_be_valid() {
    for number in [0, -1, i32::MIN, i32::MAX, 536_870_912, 2] {
        let mut file = file();
        file.message_type[0].field[0].number = Some(number);
        refusal(vec![file]);
    }
    for oneof in [-1, 1, i32::MAX, i32::MIN] {
        let mut file = file();
        file.message_type[0].field[0].oneof_index = Some(oneof);
        assert!(refusal(vec![file]).contains(&format!("oneof {oneof} is not declared")));
    }
    let mut file = file();
    file.enum_type[0].value.clear();
    assert!(refusal(vec![file]).contains("has no values"));
}

#[test]
fn duplicates_are_refused() {
    let twice = |change: fn(&mut FileDescriptorProto)| {
        let mut file = file();
        change(&mut file);
        refusal(vec![file])
    };
    twice(|file| file.message_type.extend_from_within(..));
    twice(|file| file.enum_type.extend_from_within(..));
    twice(|file| file.service.extend_from_within(..));
    twice(|file| file.service[0].method.extend_from_within(..));
    twice(|file| file.enum_type[0].value.extend_from_within(..));
    twice(|file| file.message_type[0].field[1].name = Some("x".to_owned()));
    twice(|file| file.message_type[0].field[1].number = Some(1));
    twice(|file| file.enum_type[0].name = Some("M".to_owned()));
    assert!(refusal(vec![file(), file()]).contains("two files named 'a.proto'"));
    let other = FileDescriptorProto { name: Some("b.proto".to_owned()), ..file() };
    assert!(refusal(vec![file(), other]).contains("'M' is declared twice"));
}

#[test]
fn map_entries_must_have_a_key_and_a_value() {
    let entry = |fields: Vec<FieldDescriptorProto>| DescriptorProto {
        name: Some("XEntry".to_owned()),
        field: fields,
        options: Some(MessageOptions { map_entry: Some(true), ..MessageOptions::default() }),
        ..DescriptorProto::default()
    };
    let (key, value) = (|| field("key", 1, Type::String), || field("value", 2, Type::Int32));
    let repeated = |of: &str| FieldDescriptorProto {
        type_name: Some(of.to_owned()),
        label: Some(Label::Repeated as i32),
        ..field("x", 1, Type::Message)
    };
    let with = |entry: DescriptorProto, field: FieldDescriptorProto| {
        let mut file = file();
        file.message_type[0].nested_type.push(entry);
        file.message_type[0].field[0] = field;
        vec![file]
    };
    compile(&new_dir(), with(entry(vec![key(), value()]), repeated(".a.M.XEntry"))).unwrap();
    for fields in [
        vec![],
        vec![key()],
        vec![key(), value(), field("more", 3, Type::Int32)],
        vec![value(), key()],
        vec![field("kye", 1, Type::String), value()],
        vec![field("key", 1, Type::Double), value()],
        vec![FieldDescriptorProto { label: Some(Label::Repeated as i32), ..key() }, value()],
    ] {
        let text = refusal(with(entry(fields), repeated(".a.M.XEntry")));
        assert!(text.contains("marked as a map entry"), "{text}");
    }
    let single = FieldDescriptorProto { label: Some(Label::Optional as i32), ..repeated(".a.M.XEntry") };
    refusal(with(entry(vec![key(), value()]), single));
    let mut file = file();
    file.message_type.push(entry(vec![key(), value()]));
    refusal(vec![file]);
}

#[test]
fn defaults_are_validated_as_literals() {
    let with = |of, type_name: Option<&str>, default: &str| {
        let mut file = FileDescriptorProto { syntax: None, ..file() };
        file.message_type[0].field[0] = FieldDescriptorProto {
            default_value: Some(default.to_owned()),
            type_name: type_name.map(str::to_owned),
            ..field("x", 1, of)
        };
        vec![file]
    };
    for (of, type_name, default) in [
        (Type::Int32, None, "x"),
        (Type::Int32, None, "2147483648"),
        (Type::Uint64, None, "-1"),
        (Type::Bool, None, "yes"),
        (Type::Float, None, "1.5; fn x() {}"),
        (Type::Double, None, ""),
        (Type::Bytes, None, "\\"),
        (Type::Bytes, None, "\\777"),
        (Type::Bytes, None, "\\xzz"),
        (Type::Bytes, None, "\\q"),
        (Type::Enum, Some(".a.E"), "A, x = \"1\""),
        (Type::Message, Some(".a.M"), "{}"),
    ] {
        let text = refusal(with(of, type_name, default));
        assert!(text.contains("is not a valid default for this field"), "{text}");
    }
    for (of, type_name, default) in [
        (Type::String, None, "\", tag = \"7\")] evil: (), #[x(\""),
        (Type::Bytes, None, "\\\"\\\\\\000\\x7f}\")"),
        (Type::Float, None, "1e39"),
        (Type::Double, None, "-NaN"),
        (Type::Double, None, ".5"),
        (Type::Enum, Some(".a.E"), "A"),
    ] {
        let mut files = with(of, type_name, default);
        compile(&new_dir(), files.clone()).unwrap();
        let message = &mut files[0].message_type[0];
        message.field[0].oneof_index = Some(0);
        message.oneof_decl = vec![OneofDescriptorProto { name: Some("o".to_owned()), ..Default::default() }];
        compile(&new_dir(), files).unwrap();
    }
}

#[test]
fn unusual_descriptors_generate_code_or_an_error() {
    let odd: Vec<fn(&mut FileDescriptorProto)> = vec![
        |file| file.name = None,
        |file| file.name = Some("a\nb\"../../c".to_owned()),
        |file| file.package = None,
        |file| file.package = Some(String::new()),
        |file| file.syntax = Some("proto9".to_owned()),
        |file| file.syntax = None,
        |file| file.dependency = vec!["a.proto".to_owned(), "nowhere.proto".to_owned()],
        |file| file.source_code_info = Some(SourceCodeInfo::default()),
        |file| {
            let location = |path: Vec<i32>, span: Vec<i32>| Location {
                path,
                span,
                leading_comments: Some("*/ \u{0}\r }\n```\n\u{202e}".to_owned()),
                ..Location::default()
            };
            let locations = [
                location(vec![4, 0], vec![-1, i32::MAX]),
                location(vec![4, 0], vec![]),
                location(vec![4, 0, 2, 0], vec![i32::MAX, i32::MAX, i32::MAX, i32::MAX]),
                location(vec![], vec![1]),
            ];
            file.source_code_info = Some(SourceCodeInfo { location: locations.to_vec() });
        },
        |file| file.message_type[0].field[0].proto3_optional = Some(true),
        |file| file.message_type[0].field[0].label = None,
        |file| file.message_type[0].field[0].label = Some(Label::Required as i32),
        |file| file.message_type[0].field[0].json_name = Some("\"}\n".to_owned()),
        |file| file.message_type[0].field[0].default_value = Some("7".to_owned()),
        |file| file.message_type[0].oneof_decl.clear(),
        |file| file.message_type[0].field[1].label = Some(Label::Repeated as i32),
        |file| file.enum_type[0].value.push(value("B", 0)),
        |file| file.enum_type[0].value[0].number = Some(i32::MIN),
        |file| {
            let mut nested = DescriptorProto { name: Some("N".to_owned()), ..DescriptorProto::default() };
            for _ in 0..300 {
                nested = DescriptorProto {
                    name: Some("N".to_owned()),
                    nested_type: vec![nested],
                    ..DescriptorProto::default()
                };
            }
            file.message_type.push(nested);
        },
        |file| file.message_type[0].name = Some("M".repeat(100_000)),
        |file| file.package = Some("p".repeat(100_000)),
    ];
    for (index, change) in odd.into_iter().enumerate() {
        let mut changed = file();
        change(&mut changed);
        let dir = new_dir();
        panic::catch_unwind(|| compile(&dir, vec![changed]))
            .unwrap_or_else(|_| panic!("number {index} is neither code nor an error"))
            .unwrap_or_default();
    }
}

/// Returns a file `a.proto` with one declaration of each kind.
fn file() -> FileDescriptorProto {
    let of_oneof = |field| FieldDescriptorProto { oneof_index: Some(0), ..field };
    let message = DescriptorProto {
        name: Some("M".to_owned()),
        field: vec![field("x", 1, Type::Int32), of_oneof(field("y", 2, Type::String))],
        oneof_decl: vec![OneofDescriptorProto { name: Some("o".to_owned()), options: None }],
        ..DescriptorProto::default()
    };
    let method = MethodDescriptorProto {
        name: Some("Call".to_owned()),
        input_type: Some(".a.M".to_owned()),
        output_type: Some(".a.M".to_owned()),
        ..MethodDescriptorProto::default()
    };
    FileDescriptorProto {
        name: Some("a.proto".to_owned()),
        package: Some("a".to_owned()),
        message_type: vec![message],
        enum_type: vec![EnumDescriptorProto {
            name: Some("E".to_owned()),
            value: vec![value("A", 0)],
            ..EnumDescriptorProto::default()
        }],
        service: vec![ServiceDescriptorProto {
            name: Some("S".to_owned()),
            method: vec![method],
            ..ServiceDescriptorProto::default()
        }],
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    }
}

fn field(name: &str, number: i32, of: Type) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(Label::Optional as i32),
        r#type: Some(of as i32),
        ..FieldDescriptorProto::default()
    }
}

fn value(name: &str, number: i32) -> EnumValueDescriptorProto {
    EnumValueDescriptorProto { name: Some(name.to_owned()), number: Some(number), options: None }
}

/// Returns the error for these files, and checks that nothing was written.
fn refusal(files: Vec<FileDescriptorProto>) -> String {
    let out_dir = new_dir();
    let error = compile(&out_dir, files).unwrap_err();
    assert!(fs::read_dir(&out_dir).unwrap().next().is_none(), "nothing is written");
    error
}

fn compile(out_dir: &Path, files: Vec<FileDescriptorProto>) -> Result<(), String> {
    let options = frpc_build::configure().out_dir(out_dir).emit_rerun_if_changed(false);
    options.compile_fds(FileDescriptorSet { file: files }).map_err(|error| error.to_string())
}

#[test]
fn chains_of_public_imports_are_followed() {
    let dir = new_dir();
    let main = "import \"first.proto\";\nmessage Main { Third third = 1; Fourth fourth = 2; }\n// End.";
    let write = |name: &str, text: &str| fs::write(dir.join(name), format!("syntax = \"proto3\";\n{text}")).unwrap();
    let descriptor = || {
        let protos = [dir.join("main.proto")];
        let set = frpc_build::configure().emit_rerun_if_changed(false).descriptor_set(&protos, &[&dir]).unwrap();
        let set = FileDescriptorSet::decode(&*set).unwrap();
        set.file.into_iter().find(|file| file.name() == "main.proto").unwrap()
    };
    write("second.proto", "import public \"third.proto\";\n");
    write("third.proto", "import public \"fourth.proto\";\nmessage Third {}\n");
    write("fourth.proto", "message Fourth {}\n");
    for syntax in ["syntax = \"proto3\"", "edition = \"2023\""] {
        fs::write(dir.join("main.proto"), format!("{syntax};\n{main}")).unwrap();
        write("first.proto", "import public \"third.proto\";\nimport public \"fourth.proto\";\n");
        let direct = descriptor();
        write("first.proto", "import public \"second.proto\";\n");
        // The added imports leave no trace, neither in the imports nor in the locations.
        assert_eq!(descriptor(), direct, "{syntax}");
    }
}
