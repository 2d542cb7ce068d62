//! The lock file: some changes of a proto file update it, other changes fail the build.

use std::{
    fs,
    path::{Path, PathBuf},
};

use frpc_build::Builder;

use crate::new_dir;

#[test]
fn the_first_build_locks_all_reachable_messages() {
    let dir = Dir::new();
    dir.write(
        "shop.proto",
        "import \"units.proto\";
        message Lonely { string a = 1; }
        message Order {
            repeated Item items = 4;
            string id = 1;
            optional sint32 count = 2;
            oneof pay { bool cash = 5; Card card = 6; }
            map<fixed64, Color> colors = 3;
            message Item { Item with = 1; Units.Weight weight = 2; }
        }
        message Card {}
        enum Color { NONE = 0; RED = 7; }
        service Shop { rpc Buy(Order) returns (stream Card); rpc Chat(stream Card) returns (stream Card); }
        service Bank { rpc Pay(stream Card) returns (Card); rpc Ask(Card) returns (Card); }",
    );
    let units = "syntax = \"proto3\"; message Units { message Weight { double grams = 1; } string name = 1; }";
    fs::write(dir.path.join("units.proto"), units).unwrap();
    dir.build().unwrap();
    let expected = "\
# The layout of everything that methods send, written by frisbee-rpc-build. Commit this file and review its changes.
# A change that breaks peers fails the build. To accept it, delete the lines that the error names, and build again.
version 1

file shop.proto
  10 unary shop.Shop/Buy shop.Order -> shop.Card
";
    let expected = expected.replace("unary shop.Shop/Buy", "server_streaming shop.Shop/Buy")
        + "  11 bidirectional shop.Shop/Chat shop.Card -> shop.Card
  12 client_streaming shop.Bank/Pay shop.Card -> shop.Card
  13 unary shop.Bank/Ask shop.Card -> shop.Card

message Units.Weight
  1 double grams

message shop.Card

message shop.Order
  1 string id
  2 optional sint32 count
  5 oneof pay bool cash
  4 repeated message shop.Order.Item items
  6 oneof pay message shop.Card card
  3 map fixed64 enum shop.Color colors

message shop.Order.Item
  1 optional message shop.Order.Item with
  2 optional message Units.Weight weight

enum shop.Color
  0 NONE
  7 RED
";
    assert_eq!(dir.lock(), expected);
}

#[test]
fn an_unchanged_schema_does_not_rewrite_the_lock() {
    let dir = Dir::with(MESSAGE);
    let modified = || fs::metadata(dir.path.join("frpc.lock")).unwrap().modified().unwrap();
    let before = modified();
    dir.build().unwrap();
    assert_eq!(modified(), before);

    let with_returns = dir.lock().replace('\n', "\r\n");
    fs::write(dir.path.join("frpc.lock"), &with_returns).unwrap();
    dir.build().unwrap();
    assert_eq!(dir.lock(), with_returns);
}

#[test]
fn lock_files_round_trip_for_all_schemas() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/awkward/proto/accepted");
    let paths = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
    let protos: Vec<_> = paths.filter(|path| path.extension().is_some_and(|extension| extension == "proto")).collect();
    let out = new_dir();
    let lock = out.join("frpc.lock");
    let build = || frpc_build::configure().out_dir(&out).lock(&lock).compile_protos(&protos, &[&dir]).unwrap();
    build();
    let text = fs::read_to_string(&lock).unwrap();
    assert!(text.lines().filter(|line| line.starts_with("file ")).count() > 10, "{text}");
    build();
    assert_eq!(fs::read_to_string(&lock).unwrap(), text);
}

#[test]
fn nothing_is_locked_by_default() {
    let dir = Dir::new();
    dir.write("shop.proto", MESSAGE);
    frpc_build::configure().out_dir(dir.path.join("out")).compile_protos(&[dir.proto()], &[&dir.path]).unwrap();
    assert!(!dir.path.join("frpc.lock").exists());
}

#[test]
fn adding_a_field_breaks_plain_peers() {
    let text = change(MESSAGE, &MESSAGE.replace("string id = 1;", "string id = 1;\n  bool paid = 9;")).unwrap_err();
    let expected = "\
field 'paid' (9) was added to shop.Order
 --> shop.proto:6:3
  |
6 |   bool paid = 9;
  |   ^^^^^^^^^^^^^^
  = note: this breaks plain peers, such as those in Go: they know a field by its position
  = help: to accept it, delete 'message shop.Order' and the lines below it from frpc.lock and build again";
    assert_eq!(text, expected);
}

#[test]
fn adding_a_oneof_member_breaks_plain_peers() {
    breaks_plain(
        MESSAGE,
        &MESSAGE.replace("bool cash = 5;", "bool cash = 5; bool gift = 9;"),
        "field 'gift' (9) was added",
    );
}

#[test]
fn removing_a_field_breaks_plain_peers() {
    breaks_plain(MESSAGE, &MESSAGE.replace("int32 count = 2;", ""), "field 'count' (2) was removed from shop.Order");
}

#[test]
fn swapping_fields_breaks_plain_peers() {
    let after = MESSAGE.replace("string id = 1;", "").replace("string note = 3;", "string note = 3; string id = 1;");
    breaks_plain(MESSAGE, &after, "field 'count' (2) of shop.Order is now sent before 'id' (1), previously after it");
}

#[test]
fn reordering_declarations_outside_the_wire_order_is_safe() {
    let after = MESSAGE
        .replace("string id = 1;", "")
        .replace("repeated string tags = 4;", "repeated string tags = 4; string id = 1;");
    let moved = after.replace("int32 count = 2;", "").replace("string id = 1;", "string id = 1; int32 count = 2;");
    let moved = moved.replace("string note = 3;", "").replace("int32 count = 2;", "int32 count = 2; string note = 3;");
    let moved = moved
        .replace("oneof pay { bool cash = 5; bool card = 6; }", "")
        .replace("string note = 3;", "string note = 3; oneof pay { bool cash = 5; bool card = 6; }");
    breaks_nobody(MESSAGE, &moved);
}

#[test]
fn renaming_a_field_is_safe() {
    let lock = breaks_nobody(MESSAGE, &MESSAGE.replace("string id", "string order_id"));
    assert!(lock.contains("\n  1 string order_id\n"), "{lock}");
}

#[test]
fn renaming_and_moving_messages_enums_and_oneofs_is_safe() {
    let after = MESSAGE.replace("Order", "Purchase").replace("Color", "Colour").replace("oneof pay", "oneof payment");
    let lock = breaks_nobody(MESSAGE, &after);
    assert!(lock.contains("message shop.Purchase\n") && !lock.contains("message shop.Order\n"), "{lock}");
    let after = MESSAGE.replace("Order", "Purchase").replace("int32 count = 2;", "");
    let text = change(MESSAGE, &after).unwrap_err();
    assert!(text.starts_with("field 'count' (2) was removed from shop.Purchase\n"), "{text}");
    assert!(text.contains("delete 'message shop.Order' and the lines below it"), "{text}");
}

#[test]
fn changing_a_field_number_breaks_older_binaries() {
    breaks_older(
        MESSAGE,
        &MESSAGE.replace("note = 3", "note = 8"),
        "field 'note' of shop.Order now has number 8 (previously 3)",
    );
}

#[test]
fn swapping_field_names_is_not_a_rename() {
    let before = message("string id = 1; string note = 3;");
    let text = change(&before, &message("string note = 1; string id = 3;")).unwrap_err();
    assert!(text.contains("field 'id' of shop.Order now has number 3 (previously 1)"), "{text}");
    assert!(text.contains("is now sent before"), "{text}");
}

#[test]
fn changing_a_type_breaks_peers_with_another_encoding() {
    let table = [
        // before, now, plain peers, older binaries
        ("int32", "int64", true, true),
        ("uint32", "int32", true, true),
        ("fixed64", "sfixed64", true, true),
        ("int32", "sint32", false, true),
        ("uint32", "fixed32", false, true),
        ("string", "bytes", true, false),
        ("string", "double", true, true),
        ("string", "repeated string", true, true),
        ("int32", "Color", true, false),
        ("Color", "Tint", false, false),
        ("string", "optional string", false, false),
        ("string", "Order", true, true),
        ("map<string, int32>", "map<string, int64>", true, true),
        ("map<string, string>", "map<string, bytes>", true, false),
        ("map<string, int32>", "map<string, sint32>", false, true),
        ("map<string, int32>", "map<bytes_, int32>", true, true),
        ("map<uint32, int32>", "map<fixed32, int32>", false, true),
        ("map<string, int32>", "repeated string", true, true),
    ];
    for (before, now, plain, older) in table {
        let with = |of: &str| message(&format!("{} field = 1;", of.replace("bytes_", "bool")));
        let (before, now) = (with(before), with(now));
        let outcome = change(&before, &now);
        let has = |note| outcome.as_ref().err().is_some_and(|text| text.contains(note));
        assert_eq!((has(PLAIN), has(OLDER)), (plain, older), "{before} {now}: {outcome:?}");
        assert_eq!(outcome.is_err(), plain || older);
    }
    let text = change(&message("string price = 1;"), &message("repeated double price = 1;")).unwrap_err();
    assert!(
        text.starts_with("field 'price' (1) of shop.Order now is 'repeated double' (previously 'string')\n"),
        "{text}"
    );
}

#[test]
fn moving_several_fields_into_a_oneof_breaks_older_binaries() {
    let before = message("string a = 1; string b = 2;");
    breaks_nobody(&before, &message("oneof x { string a = 1; } string b = 2;"));
    let after = message("oneof x { string a = 1; string b = 2; }");
    breaks_older(&before, &after, "fields 'a' (1) and 'b' (2) of shop.Order now share a oneof");
    breaks_older(&after, &before, "fields 'a' (1) and 'b' (2) of shop.Order can now be set together");
    breaks_nobody(&after, &message("oneof y { string a = 1; string b = 2; }"));
}

#[test]
fn changes_in_nested_messages_are_found() {
    let before =
        message("map<string, A> a = 1;") + "message A { repeated B b = 1; } message B { Order back = 1; int32 c = 2; }";
    breaks_plain(&before, &before.replace("int32 c = 2;", ""), "field 'c' (2) was removed from shop.B");
}

#[test]
fn appending_an_enum_value_is_safe() {
    let lock = breaks_nobody(MESSAGE, &MESSAGE.replace("RED = 1;", "RED = 1; BLUE = 5;"));
    assert!(lock.ends_with("enum shop.Color\n  0 NONE\n  1 RED\n  5 BLUE\n"), "{lock}");
}

#[test]
fn renaming_an_enum_value_is_safe() {
    breaks_nobody(MESSAGE, &MESSAGE.replace("RED = 1;", "CRIMSON = 1;"));
}

#[test]
fn moving_enum_values_breaks_plain_peers() {
    let after = MESSAGE.replace("RED = 1;", "BLUE = 5; RED = 1;");
    breaks_plain(MESSAGE, &after, "value 'RED' of shop.Color now has position 2 (previously 1)");
    breaks_plain(MESSAGE, &MESSAGE.replace("RED = 1;", ""), "value 'RED' (1) was removed from shop.Color");
}

#[test]
fn changing_an_enum_number_breaks_older_binaries() {
    breaks_older(
        MESSAGE,
        &MESSAGE.replace("RED = 1;", "RED = 2;"),
        "value 'RED' of shop.Color now has number 2 (previously 1)",
    );
}

#[test]
fn appending_a_method_is_safe() {
    let after = MESSAGE.replace("// end", "rpc Last(Order) returns (Order);");
    assert!(breaks_nobody(MESSAGE, &after).contains("\n  12 unary shop.Shop/Last shop.Order -> shop.Order\n"));
    let service = format!("{MESSAGE} service Other {{ rpc Do(Order) returns (Order); }}");
    assert!(breaks_nobody(MESSAGE, &service).contains("\n  12 unary shop.Other/Do "));
}

#[test]
fn inserting_a_method_breaks_plain_peers() {
    let after = MESSAGE.replace("rpc Buy", "rpc First(Order) returns (Order); rpc Buy");
    let text = change(MESSAGE, &after).unwrap_err();
    let expected =
        "method 'shop.Shop/Buy' now has operation 11 (previously 10), and 1 more method of this file moved\n";
    assert!(text.starts_with(expected) && text.contains("they call a method by its operation"), "{text}");
    assert!(text.contains("delete the lines of these methods from frpc.lock") && !text.contains(OLDER), "{text}");
}

#[test]
fn swapping_methods_breaks_plain_peers() {
    let after =
        MESSAGE.replace("rpc Buy(", "rpc Tmp(").replace("rpc Sell(", "rpc Buy(").replace("rpc Tmp(", "rpc Sell(");
    breaks_plain(MESSAGE, &after, "method 'shop.Shop/Buy' now has operation 11 (previously 10), and 1 more method");
}

#[test]
fn renaming_a_method_breaks_older_binaries() {
    breaks_older(
        MESSAGE,
        &MESSAGE.replace("rpc Buy", "rpc Purchase"),
        "method 'shop.Shop/Buy' was renamed to 'shop.Shop/Purchase'",
    );
    let text = breaks_older(
        MESSAGE,
        &MESSAGE.replace("service Shop", "service Store"),
        "method 'shop.Shop/Buy' was renamed to",
    );
    assert!(text.contains("method 'shop.Shop/Sell' was renamed to 'shop.Store/Sell'"), "{text}");
}

#[test]
fn removing_a_method_breaks_all_peers() {
    let after = MESSAGE.replace("rpc Sell(Order) returns (Order);", "");
    let text = change(MESSAGE, &after).unwrap_err();
    assert!(text.starts_with("method 'shop.Shop/Sell' was removed\n  --> shop.proto:16:1\n"), "{text}");
    assert!(
        text.contains(PLAIN) && text.contains(OLDER) && text.contains("delete the line of 'shop.Shop/Sell'"),
        "{text}"
    );
}

#[test]
fn changing_the_streaming_of_a_method_breaks_all_peers() {
    let after = MESSAGE.replace("rpc Sell(Order)", "rpc Sell(stream Order)");
    let text = change(MESSAGE, &after).unwrap_err();
    assert!(text.starts_with("the streaming kind of method 'shop.Shop/Sell' changed\n"), "{text}");
    assert!(text.contains(PLAIN) && text.contains(OLDER), "{text}");
}

#[test]
fn a_method_may_take_a_message_of_the_same_layout() {
    let other = MESSAGE.replace("rpc Sell(Order)", "rpc Sell(Other)");
    let same = "message Other { A a = 1; } message A { string b = 1; }";
    let before = other.clone() + same;
    let twin = before.replace("rpc Sell(Other)", "rpc Sell(Twin)") + "message Twin { A c = 1; }";
    breaks_nobody(&before, &twin);
    let text = change(MESSAGE, &before).unwrap_err();
    assert!(text.contains("of shop.Other"), "{text}");
}

#[test]
fn a_file_may_be_added_and_renamed() {
    let dir = Dir::with(MESSAGE);
    dir.write("other.proto", "message Other {} service Another { rpc Do(Other) returns (Other); }");
    dir.build_with(&["shop.proto", "other.proto"], |builder| builder).unwrap();
    assert!(dir.lock().contains("\nfile other.proto\n  10 unary shop.Another/Do shop.Other -> shop.Other\n"));

    fs::rename(dir.path.join("other.proto"), dir.path.join("another.proto")).unwrap();
    dir.build_with(&["shop.proto", "another.proto"], |builder| builder).unwrap();
    assert!(dir.lock().contains("\nfile another.proto\n") && !dir.lock().contains("\nfile other.proto\n"));

    let text = dir.build().unwrap_err();
    assert!(text.starts_with("method 'shop.Another/Do' was removed\n--> another.proto\n"), "{text}");
}

#[test]
fn changing_the_first_operation_breaks_plain_peers() {
    let dir = Dir::with(MESSAGE);
    let text = dir.build_with(&["shop.proto"], |builder| builder.first_operation("shop.proto", 200)).unwrap_err();
    assert!(text.starts_with("method 'shop.Shop/Buy' now has operation 200 (previously 10), and 1 more"), "{text}");
}

#[test]
fn externally_generated_services_are_not_locked() {
    let dir = Dir::new();
    dir.write("shop.proto", MESSAGE);
    dir.build_with(&["shop.proto"], |builder| builder.extern_path(".shop", "::shop")).unwrap();
    assert!(dir.lock().ends_with("\nversion 1\n"));
}

#[test]
fn checks_for_plain_peers_can_be_disabled() {
    let dir = Dir::with(MESSAGE);
    let build = || dir.build_with(&["shop.proto"], |builder| builder.lock_plain_peers(false));
    dir.write(
        "shop.proto",
        &MESSAGE
            .replace("rpc Buy", "rpc First(Order) returns (Order); rpc Buy")
            .replace("string id", "bool new = 9; string id"),
    );
    build().unwrap();
    assert!(dir.lock().contains("  9 bool new\n") && dir.lock().contains("  11 unary shop.Shop/Buy "));

    dir.write("shop.proto", &MESSAGE.replace("string id", "bool new = 9; double id"));
    let text = build().unwrap_err();
    assert!(text.contains(OLDER) && !text.contains(PLAIN), "{text}");
}

#[test]
fn deleting_the_named_lock_lines_accepts_a_change() {
    let dir = Dir::with(MESSAGE);
    let after = MESSAGE.replace("string id = 1;", "double id = 1;").replace("RED = 1;", "RED = 2;");
    let after = after.replace("rpc Sell(Order) returns (Order);", "");
    dir.write("shop.proto", &after);
    let mistakes = || dir.build().unwrap_err().matches("= help: to accept it, delete").count();
    assert_eq!(mistakes(), 3);

    let keep = |is_kept: fn(&str) -> bool| {
        let lock = dir.lock();
        let blocks = lock.split("\n\n").filter(|block| is_kept(block)).collect::<Vec<_>>().join("\n\n");
        fs::write(dir.path.join("frpc.lock"), blocks + "\n").unwrap();
    };
    keep(|block| !block.starts_with("enum shop.Color\n"));
    assert_eq!(mistakes(), 2);
    keep(|block| !block.starts_with("message shop.Order\n"));
    assert_eq!(mistakes(), 1);
    let lines: Vec<_> = dir.lock().lines().filter(|line| !line.contains("shop.Shop/Sell")).map(str::to_owned).collect();
    fs::write(dir.path.join("frpc.lock"), lines.join("\n")).unwrap();
    dir.build().unwrap();
    let accepted = dir.lock();
    assert!(accepted.contains("  1 double id\n") && accepted.contains("  2 RED\n") && !accepted.contains("/Sell"));

    fs::remove_file(dir.path.join("frpc.lock")).unwrap();
    dir.build().unwrap();
    assert_eq!(dir.lock(), accepted);
}

#[test]
fn messages_stay_locked_after_their_methods_are_accepted() {
    let dir = Dir::with(MESSAGE);
    dir.write(
        "shop.proto",
        &MESSAGE.replace("rpc Buy", "rpc First(Order) returns (Order); rpc Buy").replace("string id", "double id"),
    );
    let lines: Vec<_> = dir.lock().lines().filter(|line| !line.contains("shop.Shop/")).map(str::to_owned).collect();
    fs::write(dir.path.join("frpc.lock"), lines.join("\n")).unwrap();
    let text = dir.build().unwrap_err();
    assert!(text.starts_with("field 'id' (1) of shop.Order now is 'double' (previously 'string')\n"), "{text}");
}

#[test]
fn a_rejected_change_writes_no_file() {
    let dir = Dir::with(MESSAGE);
    let files = || ["frpc.lock", "out/shop.rs", "out/shop.binpb"].map(|file| fs::read(dir.path.join(file)).unwrap());
    let before = files();
    dir.write("shop.proto", &MESSAGE.replace("int32 count = 2;", ""));
    dir.build().unwrap_err();
    assert_eq!(files(), before);
}

#[test]
fn an_invalid_lock_file_is_rejected_with_the_line() {
    let dir = Dir::with(MESSAGE);
    let lock = dir.lock();
    let with = |text: &str| {
        fs::write(dir.path.join("frpc.lock"), text).unwrap();
        let error = dir.build().unwrap_err();
        assert!(error.ends_with("accept the current layout"), "{error}");
        error.lines().take(2).collect::<Vec<_>>().join("")
    };
    let conflict = lock.replace("  1 string id", "<<<<<<< HEAD\n  1 string id");
    let text = dir_error(&dir, &conflict);
    let expected = "\
this is not a line of a lock file
  --> frpc.lock:10:1
   |
10 | <<<<<<< HEAD
   | ^^^^^^^^^^^^
   = help: restore the file from version control, or delete it to accept the current layout";
    assert_eq!(text, expected);
    assert_eq!(with(""), "a lock file starts with its version --> frpc.lock:1:1");
    assert_eq!(
        with(&lock.replace("version 1", "version 2")),
        "unknown version of the lock file; a newer frisbee-rpc-build may have written it --> frpc.lock:3:1"
    );
    assert_eq!(with(&format!("{lock}\nenum shop.Color\n")), "this entry is a duplicate  --> frpc.lock:22:1");
    for (line, wrong) in [
        ("  10 unary shop.Shop/Buy shop.Order -> shop.Order", "  10 unary shop.Shop/Buy shop.Order - shop.Order"),
        ("  10 unary shop.Shop/Buy shop.Order -> shop.Order", "  x unary shop.Shop/Buy shop.Order -> shop.Order"),
        ("  10 unary shop.Shop/Buy shop.Order -> shop.Order", "  70000 unary shop.Shop/Buy shop.Order -> shop.Order"),
        ("  10 unary shop.Shop/Buy shop.Order -> shop.Order", "  10 once shop.Shop/Buy shop.Order -> shop.Order"),
        ("  11 unary shop.Shop/Sell", "  10 unary shop.Shop/Sell"),
        ("  1 string id", "  1 text id"),
        ("  1 string id", "  1 group id"),
        ("  1 string id", "  1 string"),
        ("  1 string id", "  1 string id more"),
        ("  1 string id", "  one string id"),
        ("  1 RED", "  1"),
        ("  1 RED", "  1 RED GREEN"),
        ("file shop.proto", "  1 string id"),
        ("enum shop.Color", "service shop.Color"),
        ("enum shop.Color", "enum"),
    ] {
        assert!(lock.contains(line), "{line}");
        assert!(with(&lock.replace(line, wrong)).starts_with("this is not a line of a lock file"), "{wrong}");
    }
}

#[test]
fn an_unreadable_lock_file_is_an_error() {
    let dir = Dir::new();
    dir.write("shop.proto", MESSAGE);
    fs::create_dir(dir.path.join("frpc.lock")).unwrap();
    assert!(dir.build().unwrap_err().starts_with("cannot read "));
}

#[test]
fn descriptors_are_locked_like_proto_files() {
    let dir = Dir::with(MESSAGE);
    let set = || protox::compile([dir.proto()], [&dir.path]).unwrap();
    let options = || frpc_build::configure().out_dir(dir.path.join("out")).lock(dir.path.join("frpc.lock"));
    let lock = dir.lock();
    options().compile_fds(set()).unwrap();
    assert_eq!(dir.lock(), lock);
    dir.write("shop.proto", &MESSAGE.replace("int32 count = 2;", ""));
    options().compile_fds(set()).unwrap_err();
}

fn dir_error(dir: &Dir, lock: &str) -> String {
    fs::write(dir.path.join("frpc.lock"), lock).unwrap();
    dir.build().unwrap_err()
}

/// Returns the body of a file. A message with these fields is both request and response.
fn message(fields: &str) -> String {
    format!(
        "message Order {{ {fields} }} enum Color {{ NONE = 0; }} enum Tint {{ NO = 0; }}
        service Shop {{ rpc Buy(Order) returns (Order); }}"
    )
}

/// Builds two versions of a file, one after the other. Returns the lock file or the error.
fn change(before: &str, now: &str) -> Result<String, String> {
    assert_ne!(before, now);
    let dir = Dir::with(before);
    dir.write("shop.proto", now);
    let outcome = dir.build();
    outcome.map(|()| dir.lock())
}

fn breaks_nobody(before: &str, now: &str) -> String {
    let lock = change(before, now).unwrap();
    let fresh = Dir::with(now);
    assert_eq!(lock, fresh.lock(), "the file is brought up to date");
    lock
}

fn breaks_plain(before: &str, now: &str, what: &str) -> String {
    let text = change(before, now).unwrap_err();
    assert!(text.starts_with(what) && text.contains(PLAIN) && !text.contains(OLDER), "{text}");
    text
}

fn breaks_older(before: &str, now: &str, what: &str) -> String {
    let text = change(before, now).unwrap_err();
    assert!(text.starts_with(what) && text.contains(OLDER) && !text.contains(PLAIN), "{text}");
    text
}

/// A directory with proto files of the package `shop`, and their lock file.
struct Dir {
    path: PathBuf,
}

impl Dir {
    fn new() -> Self {
        Self { path: new_dir() }
    }

    /// Creates a directory and builds this file in it.
    fn with(body: &str) -> Self {
        let dir = Self::new();
        dir.write("shop.proto", body);
        dir.build().unwrap();
        dir
    }

    fn write(&self, file: &str, body: &str) {
        fs::write(self.path.join(file), format!("syntax = \"proto3\";\npackage shop;\n{body}")).unwrap();
    }

    fn proto(&self) -> PathBuf {
        self.path.join("shop.proto")
    }

    fn lock(&self) -> String {
        fs::read_to_string(self.path.join("frpc.lock")).unwrap()
    }

    fn build(&self) -> Result<(), String> {
        self.build_with(&["shop.proto"], |builder| builder)
    }

    /// Builds these files. Paths in errors are relative to the directory.
    fn build_with(&self, protos: &[&str], change: impl FnOnce(Builder) -> Builder) -> Result<(), String> {
        let builder = frpc_build::configure().out_dir(self.path.join("out")).lock(self.path.join("frpc.lock"));
        let protos: Vec<_> = protos.iter().map(|proto| self.path.join(proto)).collect();
        let outcome = change(builder).compile_protos(&protos, &[&self.path]);
        outcome.map_err(|error| error.to_string().replace(&self.prefix(), ""))
    }

    fn prefix(&self) -> String {
        format!("{}/", Path::new(&self.path).display())
    }
}

const PLAIN: &str = "this breaks plain peers, such as those in Go: ";
const OLDER: &str = "this breaks binaries built before the change: ";

const MESSAGE: &str = "
message Order {
  string id = 1;
  int32 count = 2;
  string note = 3;
  repeated string tags = 4;
  oneof pay { bool cash = 5; bool card = 6; }
  Color color = 7;
}
enum Color {
  NONE = 0;
  RED = 1;
}
service Shop {
  rpc Buy(Order) returns (Order);
  rpc Sell(Order) returns (Order);
  // end
}
";
