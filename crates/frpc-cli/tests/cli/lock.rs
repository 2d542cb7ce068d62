//! `frpc lock`.

use crate::program::{Directory, frpc};

const FIRST: &str = "syntax = \"proto3\";
package a;
service A { rpc Do(M) returns (M); }
message M { string text = 1; }
";

#[test]
fn lock_writes_a_file_and_rejects_breaking_changes() {
    let directory = Directory::new("lock");
    let (proto, lock) = (directory.write("a.proto", FIRST), directory.path("frpc.lock"));
    let ran = frpc(&["lock", &lock, &proto, "--check"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let ran = frpc(&["lock", &lock, &proto]);
    assert_eq!((ran.code, &*ran.out), (0, &*format!("{lock}: written\n")), "{ran:?}");
    let ran = frpc(&["lock", &lock, &proto, "--check"]);
    assert_eq!((ran.code, &*ran.out), (0, &*format!("{lock}: unchanged\n")), "{ran:?}");

    directory.write("a.proto", FIRST.replace("string text = 1;", "int32 text = 1;"));
    let before = std::fs::read_to_string(&lock).unwrap();
    for options in [&[][..], &["--check"]] {
        let ran = frpc(&[&["lock", &lock, &proto], options].concat());
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.err.contains("a.proto"), "{}", ran.err);
    }
    assert_eq!(std::fs::read_to_string(&lock).unwrap(), before);
}

#[test]
fn checks_for_plain_peers_can_be_disabled() {
    let directory = Directory::new("plain");
    let (proto, lock) = (directory.write("a.proto", FIRST), directory.path("frpc.lock"));
    assert_eq!(frpc(&["lock", &lock, &proto]).code, 0);
    directory.write("a.proto", FIRST.replace("string text = 1;", "string text = 1; string more = 2;"));
    assert_eq!(frpc(&["lock", &lock, &proto]).code, 1);
    let ran = frpc(&["lock", &lock, &proto, "--no-plain-peers", "--json"]);
    assert_eq!(ran.json()[0]["changed"], true);
}
