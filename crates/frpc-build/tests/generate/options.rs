//! The effects of the options of the builder.

use std::{
    fs,
    path::{Path, PathBuf},
};

use frpc_build::{Builder, manual, prost_types::FileDescriptorSet};
use protox::prost::Message as _;

use crate::new_dir;

#[test]
fn the_server_and_the_client_are_optional() {
    let modules =
        |code: &str| ["_server", "_client", "_methods"].map(|side| code.contains(&format!("pub mod shop{side}")));
    assert_eq!(modules(&generate(|options| options)), [true, true, true]);
    assert_eq!(modules(&generate(|options| options.build_server(false))), [false, true, true]);
    assert_eq!(modules(&generate(|options| options.build_client(false))), [true, false, true]);
    assert_eq!(modules(&generate(|options| options.build_client(false).build_server(false))), [false, false, false]);
}

#[test]
fn the_first_operation_of_a_file_is_configurable() {
    let dir = dir();
    fs::write(dir.join("bank.proto"), BANK).unwrap();
    let protos = ["shop.proto", "bank.proto"].map(|proto| dir.join(proto));
    let operations = |options: Builder| {
        options.compile_protos(&protos, &[&dir]).unwrap();
        ["shop.rs", "bank.rs"].map(|file| {
            let code = fs::read_to_string(dir.join(file)).unwrap();
            let lines = code.lines().filter(|line| line.contains(": Method = Method::unary("));
            let numbers = lines.map(|line| line.trim_end_matches(')').rsplit(' ').next().unwrap());
            numbers.map(|number| number.parse().unwrap()).collect::<Vec<u16>>()
        })
    };
    assert_eq!(operations(options(&dir)), [vec![10], vec![10, 11, 12]]);
    assert_eq!(operations(options(&dir).first_operation("bank.proto", 200)), [vec![10], vec![200, 201, 202]]);
    assert_eq!(
        operations(options(&dir).first_operation("bank.proto", 65_533)),
        [vec![10], vec![65_533, 65_534, 65_535]]
    );
}

#[test]
fn messages_get_constants_of_their_topics() {
    let code = generate(|options| options.topic("shop.Order", "orders.*.created"));
    let module = code.split("pub mod topics {").nth(1).expect("there is a module");
    assert!(module.contains("pub const ORDER: Topic<super::Order> = Topic::new(\"orders.*.created\");"), "{module}");
    assert!(!generate(|options| options).contains("topics"));
    let refused = |change: fn(Builder) -> Builder| {
        let dir = dir();
        change(options(&dir)).compile_protos(&[dir.join("shop.proto")], &[&dir]).unwrap_err().to_string()
    };
    let error = refused(|options| options.topic("shop.None", "a"));
    assert_eq!(error, "the topic of 'shop.None' has no message: no proto file declares it");
    let error = refused(|options| options.topic("shop.Order", "a").topic("shop.Order", "b"));
    assert!(error.starts_with("more than one topic would have the constant for 'shop.Order'"), "{error}");
}

#[test]
fn service_items_have_the_configured_attributes() {
    let code = generate(|options| {
        let options = options.client_attribute(".", "#[must_use]").server_attribute("Shop", "#[doc(alias = \"x\")]");
        let options = options.client_mod_attribute("shop.Shop", "#[cfg(feature = \"client\")] #[allow(unused)]");
        options
            .server_mod_attribute(".shop", "#[cfg(feature = \"server\")]")
            .trait_attribute(".shop.Shop", "#[diagnostic::on_unimplemented(note = \"x\")]")
    });
    for item in [
        "#[must_use]\n    #[derive(Clone, Debug)]\n    pub struct ShopClient {",
        "#[doc(alias = \"x\")]\n    #[derive(Debug)]\n    pub struct ShopServer<T> {",
        "#[cfg(feature = \"client\")]\n#[allow(unused)]\npub mod shop_client {",
        "#[cfg(feature = \"server\")]\npub mod shop_server {",
        "#[diagnostic::on_unimplemented(note = \"x\")]\n    pub trait Shop:",
    ] {
        assert_eq!(code.matches(item).count(), 1, "{item}\n{code}");
    }
    let others = generate(|options| {
        options.trait_attribute(".shop.Order", "#[must_use]").client_attribute("shop.Others", "#[must_use]")
    });
    assert!(!others.contains("must_use"), "{others}");
    let dir = dir();
    let broken = options(&dir).server_attribute(".", "must_use").compile_protos(&[dir.join("shop.proto")], &[&dir]);
    assert_eq!(broken.unwrap_err().to_string(), "'must_use' for '.' is not a Rust attribute");
}

#[test]
fn comments_can_be_left_out() {
    let comments = ["About the shop.", "About buying.", "About orders."];
    let has = |code: &str| comments.map(|comment| code.contains(comment));
    assert_eq!(has(&generate(|options| options)), [true, true, true]);
    assert_eq!(has(&generate(|options| options.disable_comments("."))), [false, false, false]);
    assert_eq!(has(&generate(|options| options.disable_comments(".shop.Shop.Buy"))), [true, false, true]);
    assert_eq!(has(&generate(|options| options.disable_comments(".shop.Shop"))), [false, false, true]);
    assert_eq!(has(&generate(|options| options.disable_comments("Shop.Buy"))), [true, false, true]);
    assert_eq!(has(&generate(|options| options.disable_comments("Order"))), [true, true, false]);
}

#[test]
fn the_encoding_is_independent_of_the_field_types() {
    let ours = |code: &str| code[code.find("const _: () = {").unwrap()..].to_owned();
    let plain = generate(|options| options);
    let other = generate(|options| options.bytes(".").btree_map(".").boxed(".shop.Order.next_to"));
    assert_ne!(plain, other);
    assert_eq!(ours(&plain), ours(&other));
}

#[test]
fn repeated_path_options_accumulate() {
    let dir = dir();
    fs::write(dir.join("bank.proto"), BOXES).unwrap();
    let options = options(&dir).bytes("Box.first").bytes("Box.second").btree_map("Box.third").btree_map("Box.fourth");
    options.compile_protos(&[dir.join("bank.proto")], &[&dir]).unwrap();
    let code = fs::read_to_string(dir.join("boxes.rs")).unwrap();
    assert_eq!(code.matches("prost::bytes::Bytes,").count(), 2, "{code}");
    assert_eq!(code.matches("BTreeMap<").count(), 2, "{code}");
}

#[test]
fn extern_packages_are_not_generated() {
    let dir = dir();
    options(&dir).extern_path(".shop", "::shop").compile_protos(&[dir.join("shop.proto")], &[&dir]).unwrap();
    let tree = fs::read_to_string(dir.join("_includes.rs")).unwrap();
    assert!(!dir.join("shop.rs").exists() && !dir.join("shop.binpb").exists() && !tree.contains("shop"));
}

#[test]
fn other_packages_below_google_protobuf_are_generated() {
    let dir = dir();
    for package in ["google.protobuf", "google.protobuf.compiler2", "google.protobuf.compiler"] {
        let proto = dir.join(format!("{package}.proto"));
        let body = "import 'google/protobuf/timestamp.proto'; message Own { google.protobuf.Timestamp at = 1; }";
        fs::write(&proto, format!("syntax = 'proto3'; package {package}; {body}")).unwrap();
        options(&dir).compile_protos(&[proto], &[&dir]).unwrap();
        let code = fs::read_to_string(dir.join(format!("{package}.rs"))).unwrap();
        assert!(code.contains("pub struct Own {") && code.contains("impl Message for Own {"), "{code}");
        assert!(code.contains("pub at: Option<frpc::prost_types::Timestamp>") && !code.contains("struct Timestamp"));
    }
}

#[test]
fn a_descriptor_set_gives_the_same_code() {
    let dir = dir();
    let path = dir.join("shop.fds");
    options(&dir).file_descriptor_set_path(&path).compile_protos(&[dir.join("shop.proto")], &[&dir]).unwrap();
    let from_proto = fs::read_to_string(dir.join("shop.rs")).unwrap();
    fs::remove_file(dir.join("shop.rs")).unwrap();
    options(&dir).compile_descriptor_set(&path).unwrap();
    assert_eq!(fs::read_to_string(dir.join("shop.rs")).unwrap(), from_proto);
}

#[test]
fn package_descriptors_include_their_imports() {
    let dir = dir();
    fs::write(dir.join("bank.proto"), BANK.replace("message Sum {}", "import \"shop.proto\"; message Sum {}")).unwrap();
    let set_path = dir.join("all");
    let options = || options(&dir).file_descriptor_set_path(&set_path);
    let sets = || {
        ["shop", "bank"].map(|package| {
            let code = fs::read_to_string(dir.join(format!("{package}.rs"))).unwrap();
            assert!(
                code.contains(&format!("FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(\"{package}.binpb\");")),
                "{code}"
            );
            let set = FileDescriptorSet::decode(&fs::read(dir.join(format!("{package}.binpb"))).unwrap()[..]).unwrap();
            assert!(set.file.iter().all(|file| file.source_code_info.is_none()));
            set.file.iter().map(|file| file.name().to_owned()).collect::<Vec<_>>()
        })
    };
    let remove = || ["shop.binpb", "bank.binpb"].iter().for_each(|file| fs::remove_file(dir.join(file)).unwrap());
    let expected = [vec!["shop.proto"], vec!["shop.proto", "bank.proto"]];
    options().compile_protos(&[dir.join("bank.proto")], &[&dir]).unwrap();
    assert_eq!(sets(), expected);
    let set = FileDescriptorSet::decode(&fs::read(&set_path).unwrap()[..]).unwrap();
    remove();
    options().compile_fds(set).unwrap();
    assert_eq!(sets(), expected);
    remove();
    options().compile_descriptor_set(&set_path).unwrap();
    assert_eq!(sets(), expected);
}

#[test]
fn file_descriptor_set_path_must_not_collide() {
    let dir = dir();
    let options = options(&dir).file_descriptor_set_path(dir.join("shop.binpb"));
    let text = options.compile_protos(&[dir.join("shop.proto")], &[&dir]).unwrap_err().to_string();
    assert!(
        text.ends_with("shop.binpb holds the descriptors of package 'shop': choose another file_descriptor_set_path")
    );
}

#[test]
fn editions_need_encoded_descriptors() {
    let dir = dir();
    let mut set = descriptors(&dir);
    set.file[0].syntax = Some("editions".to_owned());
    let text = options(&dir).compile_fds(set).unwrap_err().to_string();
    assert!(text.starts_with("the features of this file are not resolved"), "{text}");
    assert!(text.contains("`compile_descriptor_set`"), "{text}");
}

#[test]
fn descriptors_of_an_edition_have_the_features_of_protoc() {
    let dir = dir();
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/editions.binpb");
    let all = dir.join("all.binpb");
    options(&dir).file_descriptor_set_path(&all).compile_descriptor_set(&vectors).unwrap();
    let code = fs::read_to_string(dir.join("vectors.editions.rs")).unwrap();
    let code = code.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        "#[prost(string, optional, tag = \"1\")] pub id: Option<String>,",
        "#[prost(int32, optional, tag = \"2\", default = \"7\")] pub count: Option<i32>,",
        "#[prost(bool, tag = \"3\")] pub is_paid: bool,",
        "#[prost(string, required, tag = \"4\")] pub customer: String,",
        "#[prost(int32, repeated, packed = \"false\", tag = \"5\")] pub sizes: Vec<i32>,",
        "#[prost(int32, repeated, tag = \"6\")] pub packed: Vec<i32>,",
        "#[prost(group, optional, tag = \"8\")] pub line: Option<Line>,",
        "#[prost(group, repeated, tag = \"9\")] pub lines: Vec<Line>,",
        "#[prost(map = \"string, message\", tag = \"10\")]",
        "#[prost(group, optional, boxed, tag = \"14\")]",
        "#[prost(group, tag = \"13\")] Voucher(super::Line),",
        "#[prost(map = \"int32, message\", tag = \"2\")]",
    ] {
        assert!(code.contains(expected), "{expected} is missing in {code}");
    }
    assert_eq!(fs::read(all).unwrap(), fs::read(vectors).unwrap());
    // Reflection serves the files as they were declared.
    let own = fs::read(dir.join("vectors.editions.later.binpb")).unwrap();
    let read = frpc_schema::decode_descriptors(&own).unwrap();
    let names: Vec<_> = read.file.iter().map(|file| (file.name(), file.syntax())).collect();
    assert_eq!(names, [("editions.proto", "edition 2023"), ("editions_2024.proto", "edition 2024")]);
    assert!(read.file.iter().all(|file| file.source_code_info.is_none()));
}

/// The descriptors were written by protoc, with the same comments.
#[test]
fn files_of_an_edition_become_the_code_of_their_descriptors() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors");
    let (from_text, from_descriptors) = (dir(), dir());
    let protos = ["editions.proto", "editions_2024.proto", "editions_implicit.proto"];
    let configured = |dir: &Path| options(dir).json(true).field_masks(true);
    configured(&from_text).compile_protos(&protos.map(|proto| vectors.join(proto)), &[&vectors]).unwrap();
    configured(&from_descriptors).compile_descriptor_set(vectors.join("editions.binpb")).unwrap();
    for code in ["vectors.editions.rs", "vectors.editions.later.rs"] {
        let [text, descriptors] =
            [&from_text, &from_descriptors].map(|dir| fs::read_to_string(dir.join(code)).unwrap());
        assert_eq!(text, descriptors, "{code}");
    }
    let own = fs::read(from_text.join("vectors.editions.binpb")).unwrap();
    let read = frpc_schema::decode_descriptors(&own).unwrap();
    assert!(read.file.iter().any(|file| file.syntax() == "edition 2023"));
}

#[test]
fn unchanged_files_are_not_written() {
    let dir = dir();
    let compile = || options(&dir).compile_protos(&[dir.join("shop.proto")], &[&dir]).unwrap();
    compile();
    let modified = || {
        ["shop.rs", "shop.binpb", "_includes.rs"].map(|file| fs::metadata(dir.join(file)).unwrap().modified().unwrap())
    };
    let before = modified();
    compile();
    assert_eq!(modified(), before);
}

#[test]
fn the_module_tree_file_can_be_renamed() {
    let dir = dir();
    options(&dir).include_file("mod.rs").compile_protos(&[dir.join("shop.proto")], &[&dir]).unwrap();
    let tree = fs::read_to_string(dir.join("mod.rs")).unwrap();
    assert_eq!(
        tree,
        "// This file is @generated by frisbee-rpc-build.\n\npub mod shop {\n    include!(\"shop.rs\");\n}\n"
    );
}

#[test]
fn other_options_of_prost_can_be_set() {
    let code = generate(|options| {
        options.prost_config(|config| {
            config.enable_type_names();
        })
    });
    assert!(code.contains("impl ::frpc::prost::Name for Order"));
}

#[test]
fn methods_are_renamed_if_a_function_of_clients_or_the_prelude_has_the_name() {
    let dir = dir();
    let names = ["New", "connect", "Channel", "into_raw", "Clone", "Into", "TryInto", "Reconnect"];
    let methods = names.map(|name| format!("  rpc {name}(Order) returns (Order);\n")).concat();
    fs::write(dir.join("shop.proto"), PROTO.replace("  rpc Buy(Order) returns (Order);\n", &methods)).unwrap();
    options(&dir).compile_protos(&[dir.join("shop.proto")], &[&dir]).unwrap();
    let code = fs::read_to_string(dir.join("shop.rs")).unwrap();

    let functions = |start, end| {
        let code = code.split_once(start).unwrap().1.split(end).next().unwrap();
        code.split(" fn ").skip(1).map(|rest| rest.split('(').next().unwrap()).collect::<Vec<_>>()
    };
    let methods = ["new_", "connect_", "channel_", "into_raw_", "clone_", "into_", "try_into_", "reconnect"];
    assert_eq!(functions("pub trait Shop", "pub struct"), methods);
    let own = ["new", "connect", "channel", "into_raw"];
    assert_eq!(functions("pub struct ShopClient", "const _"), [&own[..], &methods].concat());
}

/// Returns the code for the package, with changed options.
fn generate(change: impl FnOnce(Builder) -> Builder) -> String {
    let dir = dir();
    change(options(&dir)).compile_protos(&[dir.join("shop.proto")], &[&dir]).unwrap();
    fs::read_to_string(dir.join("shop.rs")).unwrap()
}

fn options(dir: &Path) -> Builder {
    frpc_build::configure().out_dir(dir)
}

fn descriptors(dir: &Path) -> FileDescriptorSet {
    protox::compile([dir.join("shop.proto")], [dir]).unwrap()
}

/// Creates a directory with a proto file.
fn dir() -> PathBuf {
    let dir = new_dir();
    fs::write(dir.join("shop.proto"), PROTO).unwrap();
    dir
}

const PROTO: &str = "\
syntax = \"proto3\";
package shop;
// About orders.
message Order {
  string id = 1;
  bytes photo = 2;
  map<string, bytes> photos = 3;
  Item next_to = 4;
}
message Item {}
// About the shop.
service Shop {
  // About buying.
  rpc Buy(Order) returns (Order);
}
";

const BANK: &str = "\
syntax = \"proto3\";
package bank;
message Sum {}
service Account {
  rpc Deposit(Sum) returns (Sum);
  rpc Withdraw(Sum) returns (Sum);
}
service Loan {
  rpc Repay(Sum) returns (Sum);
}
";

const BOXES: &str = r#"
    syntax = "proto3";
    package boxes;
    message Box {
        bytes first = 1;
        bytes second = 2;
        map<string, string> third = 3;
        map<string, string> fourth = 4;
    }
"#;

#[test]
fn services_can_use_a_custom_codec() {
    let code = generate(|options| options.codec_path("crate::JsonCodec"));
    for line in [
        "MessageType::of_codec(",
        "<crate::JsonCodec as Codec<super::super::Order>>::NAME",
        "self.channel.with_codec::<crate::JsonCodec>().unary(",
        "call.with_codec::<crate::JsonCodec>().unary(",
    ] {
        assert!(words(&code).contains(&words(line)), "{line}:\n{code}");
    }
    let dir = dir();
    let options = options(&dir).codec_path("no path");
    let error = options.compile_protos(&[dir.join("shop.proto")], &[&dir]).unwrap_err().to_string();
    assert_eq!(error, "codec path 'no path' is not a path in Rust");
}

#[test]
fn services_need_no_proto_file() {
    let dir = dir();
    let method = || {
        manual::Method::builder()
            .name("place")
            .route_name("Place")
            .input_type("crate::Order")
            .output_type("Vec<u8>")
            .codec_path("crate::JsonCodec")
            .comment("Places an order.")
    };
    let compile = |methods: &[manual::MethodBuilder]| {
        let shop = manual::Service::builder().name("Shop").package("my.shop").comment("Sells.");
        let shop = methods.iter().fold(shop, |shop, method| shop.method(method.clone().build()));
        manual::Builder::new().out_dir(&dir).compile(&[shop.build()])
    };
    compile(&[method(), method().name("place_all").route_name("PlaceAll").client_streaming()]).unwrap();
    let code = fs::read_to_string(dir.join("my.shop.Shop.rs")).unwrap();
    for line in [
        "Method::unary(\"my.shop.Shop\", \"Place\", 10)",
        "Method::client_streaming(\"my.shop.Shop\", \"PlaceAll\", 11)",
        "MessageType::of_codec(\"crate::Order\", <crate::JsonCodec as Codec<crate::Order>>::NAME)",
        "<crate::JsonCodec as Codec<Vec<u8>>>::NAME",
        "/// Sells.",
        "/// Places an order.",
        "request: Request<Streaming<crate::Order>>",
        "self.channel.with_codec::<crate::JsonCodec>().client_streaming(",
    ] {
        assert!(words(&code).contains(&words(line)), "{line}:\n{code}");
    }
    let refused = |methods: &[manual::MethodBuilder]| compile(methods).unwrap_err().to_string();
    let error = refused(&[method().name("put")]);
    assert_eq!(error, "the Rust function of my.shop.Shop/Place is named 'place', not 'put': set that name or none");
    let error = refused(&[method().input_type("")]);
    assert_eq!(error, "'' is not a Rust type: set one for each message of my.shop.Shop/Place");
    assert_eq!(refused(&[method().codec_path("")]), "codec path '' is not a path in Rust");
    assert!(refused(&[method(), method()]).contains("'Place' is declared twice"));
    assert!(refused(&[method().name("a_b").route_name("a-b")]).contains("'a-b' is not a valid name for this method"));
}

/// Returns code without its formatting.
fn words(code: &str) -> String {
    code.split_whitespace().collect::<String>().replace(",)", ")")
}
