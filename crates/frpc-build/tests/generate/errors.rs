//! The errors reported for invalid proto files.

use std::fs;

use frpc_build::Builder;

use crate::new_dir;

#[test]
fn errors_show_the_source_line() {
    let text = error(&[("shop.proto", "syntax = \"proto3\";\n\nmessage Order {\n\tItem item = 1;\n}\n")]);
    assert_eq!(
        text,
        "\
name 'Item' is not defined
 --> shop.proto:4:2
  |
4 |     Item item = 1;
  |     ^^^^ found here"
    );
}

#[test]
fn error_columns_count_characters() {
    let text = error(&[("shop.proto", "syntax = \"proto3\";\nmessage Order { /* größer */ string name; }\n")]);
    assert_eq!(
        text,
        "\
expected '=', but found ';'
 --> shop.proto:2:41
  |
2 | message Order { /* größer */ string name; }
  |                                         ^ found here"
    );
}

#[test]
fn all_errors_are_reported_together() {
    let text = error(&[(
        "shop.proto",
        "syntax = \"proto3\";\nmessage Order {\n  string id = 1;\n  Item item = 1;\n  reserved 5;\n  string note = 5;\n}\n",
    )]);
    assert_eq!(
        text,
        "\
name 'Item' is not defined
 --> shop.proto:4:3
  |
4 |   Item item = 1;
  |   ^^^^ found here

field number '1' is already used
 --> shop.proto:3:15
  |
3 |   string id = 1;
  |               ^ first defined here
 --> shop.proto:4:15
  |
4 |   Item item = 1;
  |               ^ defined again here

field number '5' conflicts with reserved range '5 to 5'
 --> shop.proto:5:12
  |
5 |   reserved 5;
  |            ^ reserved range defined here
 --> shop.proto:6:17
  |
6 |   string note = 5;
  |                 ^ defined here"
    );
}

#[test]
fn errors_can_point_to_the_end_of_the_file() {
    let text = error(&[("shop.proto", "syntax = \"proto3\";\nmessage Order {\n  string id = 1;\n")]);
    assert_eq!(
        text,
        "\
expected a message field, oneof, reserved range, enum, message, option or '}', but reached end of file
 --> shop.proto:3:17
  |
3 |   string id = 1;
  |                 ^"
    );
}

#[test]
fn a_missing_import_lists_the_searched_directories() {
    let text = error(&[("shop.proto", "syntax = \"proto3\";\nimport \"shop/item.proto\";\n")]);
    assert_eq!(
        text,
        "\
import 'shop/item.proto' not found
 --> shop.proto:2:1
  |
2 | import \"shop/item.proto\";
  | ^^^^^^^^^^^^^^^^^^^^^^^^^ imported here
  = note: looked for shop/item.proto, more/shop/item.proto"
    );
}

#[test]
fn a_missing_file_lists_the_searched_directories() {
    let dir = new_dir();
    let result = frpc_build::configure().out_dir(&dir).compile_protos(&["shop.proto"], &["proto", "more"]);
    assert_eq!(
        result.unwrap_err().to_string(),
        "\
file 'shop.proto' is not in any include path
 = note: looked for proto/shop.proto, more/shop.proto"
    );
}

#[test]
fn a_missing_file_is_reported_once() {
    let dir = new_dir();
    let missing = |proto: &str, include: &str| {
        let options = frpc_build::configure().out_dir(&dir);
        options.compile_protos(&[dir.join(proto)], &[dir.join(include)]).unwrap_err().to_string()
    };
    let path = dir.join("proto/shop.proto");
    assert_eq!(missing("proto/shop.proto", "proto"), format!("file '{}' does not exist", path.display()));
    assert_eq!(missing("proto/shop.proto", "elsewhere"), format!("file '{}' does not exist", path.display()));
    let relative = frpc_build::compile_protos("proto/shop.proto").unwrap_err();
    assert_eq!(relative.to_string(), "file 'proto/shop.proto' does not exist");
    let relative = frpc_build::compile_protos("shop.proto").unwrap_err();
    assert_eq!(relative.to_string(), "file 'shop.proto' does not exist");
    fs::create_dir(dir.join("proto")).unwrap();
    assert!(missing("proto", "proto").ends_with("is a directory, not a proto file"));
}

#[test]
fn attributes_must_be_valid_rust() {
    let text = error_with(
        |options| options.type_attribute(".", "#[derive("),
        &[("shop.proto", "syntax = \"proto3\";\npackage shop;\nmessage Order {}\n")],
    );
    assert!(text.starts_with("the code for package 'shop' does not parse ("), "{text}");
}

#[test]
fn retained_prefixes_keep_enum_values_distinct() {
    let dir = new_dir();
    // protoc allows this too.
    let kind = "enum Kind {\n  option deprecated_legacy_json_field_conflicts = true;\n  KIND_A = 0;\n  A = 1;\n}\n";
    fs::write(dir.join("a.proto"), format!("syntax = \"proto2\";\n{kind}")).unwrap();
    let options = frpc_build::configure().out_dir(&dir).prost_config(|config| {
        config.retain_enum_prefix();
    });
    options.compile_protos(&[dir.join("a.proto")], &[&dir]).unwrap();
}

#[test]
fn methods_of_a_file_are_limited_by_the_operations() {
    let services = |methods: usize| {
        let methods: Vec<_> = (0..methods).map(|index| format!("  rpc M{index}(E) returns (E);\n")).collect();
        let (first, second) = methods.split_at(40_000);
        let head = "syntax = \"proto3\";\nmessage E {}\n";
        format!("{head}service First {{\n{}}}\nservice Second {{\n{}}}\n", first.concat(), second.concat())
    };
    let text = error(&[("many.proto", &services(65_527))]);
    assert_eq!(
        text,
        "\
this file has 65527 methods, but only 65526 are possible
     --> many.proto:65532:3
      |
65532 |   rpc M65526(E) returns (E);
      |   ^^^^^^^^^^^^^^^^^^^^^^^^^^
      = note: on the wire a method is a 16-bit number, counted from 10 over all services of its file
      = help: move some of the services to another file"
    );
}

#[test]
fn a_higher_first_operation_lowers_the_limit() {
    let text = error_with(
        |options| options.first_operation("shop.proto", 65_534),
        &[(
            "shop.proto",
            "syntax = \"proto3\";\nmessage E {}\nservice Shop {\n  rpc A(E) returns (E);\n  rpc B(E) returns (E);\n  rpc C(E) returns (E);\n}\n",
        )],
    );
    assert_eq!(
        text,
        "\
this file has 3 methods, but only 2 are possible
 --> shop.proto:6:3
  |
6 |   rpc C(E) returns (E);
  |   ^^^^^^^^^^^^^^^^^^^^^
  = note: on the wire a method is a 16-bit number, counted from 65534 over all services of its file
  = help: give the file a lower first operation"
    );
}

#[test]
fn a_first_operation_below_ten_is_rejected() {
    let shop = [("shop.proto", "syntax = \"proto3\";\n")];
    let text = error_with(|options| options.first_operation("shop.proto", 9), &shop);
    assert_eq!(text, "first operation 9 for 'shop.proto' is below 10: lower numbers belong to frisbee");
}

#[test]
fn a_first_operation_for_an_unknown_file_is_rejected() {
    let shop =
        [("shop.proto", "syntax = \"proto3\";\nimport \"item.proto\";\n"), ("item.proto", "syntax = \"proto3\";\n")];
    let text = error_with(|options| options.first_operation("proto/shop.proto", 200), &shop);
    assert_eq!(
        text,
        "first operation 200 is set for 'proto/shop.proto', but the compiled files are item.proto, shop.proto"
    );
}

#[test]
fn names_colliding_in_rust_are_rejected() {
    let text = error(&[(
        "shop.proto",
        "syntax = \"proto3\";\npackage shop;\nmessage HTTPOrder {}\nmessage HttpOrder {}\nservice Shop {\n  rpc GetIt(HTTPOrder) returns (HTTPOrder);\n  rpc get_it(HTTPOrder) returns (HTTPOrder);\n}\n",
    )]);
    assert_eq!(
        text,
        "\
shop.HTTPOrder and shop.HttpOrder are both shop::HttpOrder in Rust
 --> shop.proto:4:1
  |
4 | message HttpOrder {}
  | ^^^^^^^^^^^^^^^^^^^^
 --> shop.proto:3:1
  |
3 | message HTTPOrder {}
  | ^^^^^^^^^^^^^^^^^^^^ the other is here
  = help: rename one of them

shop.Shop.GetIt and shop.Shop.get_it are both shop.Shop::get_it in Rust
 --> shop.proto:7:3
  |
7 |   rpc get_it(HTTPOrder) returns (HTTPOrder);
  |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
 --> shop.proto:6:3
  |
6 |   rpc GetIt(HTTPOrder) returns (HTTPOrder);
  |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ the other is here
  = help: rename one of them"
    );
}

#[test]
fn a_message_must_not_collide_with_a_package_module() {
    let text = error(&[
        (
            "a.proto",
            "syntax = \"proto3\";\npackage shop;\nimport \"b.proto\";\nmessage Order {\n  message Item {}\n}\n",
        ),
        ("b.proto", "syntax = \"proto3\";\npackage shop.order;\nmessage Item {}\n"),
    ]);
    assert_eq!(
        text,
        "\
shop.order and shop.Order are both shop::order in Rust
 --> a.proto:5:3
  |
5 |   message Item {}
  |   ^^^^^^^^^^^^^^^
 --> b.proto:3:1
  |
3 | message Item {}
  | ^^^^^^^^^^^^^^^ the other is here
  = help: rename one of them

shop.order.Item and shop.Order.Item are both shop::order::Item in Rust
 --> a.proto:5:3
  |
5 |   message Item {}
  |   ^^^^^^^^^^^^^^^
 --> b.proto:3:1
  |
3 | message Item {}
  | ^^^^^^^^^^^^^^^ the other is here
  = help: rename one of them"
    );
}

#[test]
fn extern_paths_must_be_valid_rust() {
    let dir = new_dir();
    let builder = frpc_build::configure().out_dir(&dir).extern_path(".shop", "::shop protos");
    let error = builder.compile_fds(frpc_build::prost_types::FileDescriptorSet::default()).unwrap_err();
    assert_eq!(error.to_string(), "extern path '::shop protos' for '.shop' is not a path in Rust");
}

/// Returns the error of compiling the first of these files. Paths are relative to their directory.
fn error(files: &[(&str, &str)]) -> String {
    error_with(|options| options, files)
}

/// Returns the error with changed options.
fn error_with(change: impl FnOnce(Builder) -> Builder, files: &[(&str, &str)]) -> String {
    let dir = new_dir();
    for (name, text) in files {
        fs::write(dir.join(name), text).unwrap();
    }
    let protos = [dir.join(files[0].0)];
    let options = change(frpc_build::configure().out_dir(&dir));
    let result = options.compile_protos(&protos, &[&dir, &dir.join("more")]);
    let error = result.unwrap_err();
    assert_eq!(format!("{error:?}"), error.to_string(), "build scripts print the one, everybody else the other");
    error.to_string().replace(&format!("{}/", dir.display()), "")
}
