//! Fields that options mark as required.

use std::{
    fs,
    path::{Path, PathBuf},
};

use frpc_build::{Builder, prost_types::FileDescriptorSet};
use protox::prost::Message as _;

use crate::new_dir;

/// Returns the directory with the files that declare the options.
fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/required")
}

fn options(dir: &Path) -> Builder {
    let options = frpc_build::configure().out_dir(dir).emit_rerun_if_changed(false).required_fields(true);
    options.extern_path(".buf.validate", "::none").extern_path(".google.api", "::none")
}

fn error(text: &str) -> String {
    let dir = new_dir();
    fs::write(dir.join("shop.proto"), text).unwrap();
    let error = options(&dir).compile_protos(&[dir.join("shop.proto")], &[&dir, &golden()]).unwrap_err();
    error.to_string().replace(&format!("{}/", dir.display()), "")
}

#[test]
fn descriptor_sets_keep_the_marks() {
    let dir = new_dir();
    let set = dir.join("set.binpb");
    let proto = golden().join("required.proto");
    options(&dir).file_descriptor_set_path(&set).compile_protos(&[proto], &[golden()]).unwrap();
    let expected = fs::read_to_string(dir.join("required.rs")).unwrap();
    assert!(expected.contains("pub customer: Customer,"));

    fs::remove_file(dir.join("required.rs")).unwrap();
    options(&dir).compile_descriptor_set(&set).unwrap();
    assert_eq!(fs::read_to_string(dir.join("required.rs")).unwrap(), expected);

    let decoded = FileDescriptorSet::decode(&fs::read(&set).unwrap()[..]).unwrap();
    let error = options(&dir).compile_fds(decoded).unwrap_err().to_string();
    assert_eq!(error, "the types of prost drop the options that mark required fields: use `compile_descriptor_set`");
}

#[test]
fn fields_of_an_edition_are_required_only_with_presence() {
    let dir = new_dir();
    let text = r#"
        edition = "2023";
        package shop;
        import "google/api/field_behavior.proto";
        option features.field_presence = IMPLICIT;
        message Order {
            int32 count = 1 [(google.api.field_behavior) = REQUIRED];
            string name = 2 [features.field_presence = EXPLICIT, (google.api.field_behavior) = REQUIRED];
            Order next = 3;
        }"#;
    fs::write(dir.join("shop.proto"), text).unwrap();
    options(&dir).compile_protos(&[dir.join("shop.proto")], &[&dir, &golden()]).unwrap();
    let code = fs::read_to_string(dir.join("shop.rs")).unwrap();
    let lines = |part: &str| code.lines().map(str::trim).filter(|line| line.contains(part)).collect::<Vec<_>>();
    assert_eq!(lines("#[prost(int32"), ["#[prost(int32, tag = \"1\")]"]);
    assert_eq!(lines("#[prost(string"), ["#[prost(string, required, tag = \"2\")]"]);
    assert_eq!(lines(").required()"), ["CheckedField::value(2, \"name\").required(),"]);
}

#[test]
fn descriptors_of_a_package_keep_options() {
    let dir = new_dir();
    options(&dir).compile_protos(&[golden().join("required.proto")], &[golden()]).unwrap();
    let set = fs::read(dir.join("required.binpb")).unwrap();
    assert!(FileDescriptorSet::decode(&set[..]).unwrap().file.iter().all(|file| file.source_code_info.is_none()));
    // `[(buf.validate.field).required = true]`: extension 1159 with field 25.
    let mark = [0xba, 0x48, 3, 0xc8, 1, 1];
    assert!(set.windows(mark.len()).any(|window| window == mark));

    // A set of descriptors in a file has the same options.
    fs::write(dir.join("set.binpb"), &set).unwrap();
    options(&dir).compile_descriptor_set(dir.join("set.binpb")).unwrap();
    assert_eq!(fs::read(dir.join("required.binpb")).unwrap(), set);
}

#[test]
fn marks_change_neither_fingerprints_nor_lock_files() {
    let files = |has_required_fields| {
        let dir = new_dir();
        let options = options(&dir).required_fields(has_required_fields).lock(dir.join("frpc.lock"));
        options.compile_protos(&[golden().join("required.proto")], &[golden()]).unwrap();
        let code = fs::read_to_string(dir.join("required.rs")).unwrap();
        let methods = code.split_once("pub mod orders_methods").unwrap().1;
        let methods = methods.split_once("pub mod ").unwrap().0.to_owned();
        assert!(methods.contains("0x"), "{methods}");
        (methods, fs::read_to_string(dir.join("frpc.lock")).unwrap())
    };
    assert_eq!(files(true), files(false));
}

#[test]
fn a_message_that_requires_itself_is_refused() {
    let text = "\
syntax = \"proto3\";
package shop;
import \"google/api/field_behavior.proto\";
import \"buf/validate/validate.proto\";
message Order {
  Customer customer = 1 [(google.api.field_behavior) = REQUIRED];
}
message Customer {
  string name = 1;
  optional Order last = 2 [(buf.validate.field).required = true];
  Customer parent = 3;
}
";
    assert_eq!(
        error(text),
        "\
message shop.Order requires itself, so no value of it can be complete
 --> shop.proto:5:1
  |
5 | message Order {
  | ^^^^^^^^^^^^^^^
  = note: shop.Order.customer.last is required
  = help: make one of the required fields of this cycle optional

message shop.Customer requires itself, so no value of it can be complete
 --> shop.proto:8:1
  |
8 | message Customer {
  | ^^^^^^^^^^^^^^^^^^
  = note: shop.Customer.last.customer is required
  = help: make one of the required fields of this cycle optional"
    );
}

#[test]
fn a_malformed_mark_is_an_error_with_its_line() {
    let field = |options: &str| {
        error(&format!(
            "syntax = \"proto3\";\nimport \"google/api/field_behavior.proto\";\nimport \"buf/validate/validate.proto\";\n\
             message A {{ A a = 1 [{options}]; }}\n"
        ))
    };
    for options in
        ["(google.api.field_behavior) = NEEDED", "(buf.validate.field).required = 1", "(buf.validate.fields).x = 1"]
    {
        let error = field(options);
        assert!(error.contains(" --> shop.proto:4:") && error.contains('^'), "{error}");
    }
}
