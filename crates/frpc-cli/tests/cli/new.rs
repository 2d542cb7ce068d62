//! `frpc new`. CI builds and tests a new project (`.ci/tutorials`).

use std::fs;

use crate::program::{Directory, frpc};

const CHECKOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

#[test]
fn new_creates_a_project_with_the_given_name() {
    let directory = Directory::new("new");
    let folder = directory.path("services/hello-world");
    let ran = frpc(&["new", &folder, "--path", CHECKOUT, "--json"]);
    let said = &ran.json()[0];
    assert_eq!(said["created"], folder);
    for file in said["files"].as_array().unwrap() {
        let text = fs::read_to_string(format!("{folder}/{}", file.as_str().unwrap())).unwrap();
        let left = ["NAME", "CRATE", "VERSION"].iter().find(|left| text.contains(**left));
        assert_eq!(left, None, "{file}: {text}");
    }
    let manifest = fs::read_to_string(format!("{folder}/Cargo.toml")).unwrap();
    assert!(manifest.contains("name = \"hello-world\""), "{manifest}");
    let client = fs::read_to_string(format!("{folder}/src/bin/client.rs")).unwrap();
    assert!(client.contains("use hello_world::greeter"), "{client}");
}

#[test]
fn dependencies_have_one_source() {
    let directory = Directory::new("new-sources");
    let manifest = |name: &str, options: &[&str]| {
        let folder = directory.path(name);
        let ran = frpc(&[&["new", &folder], options].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.out.contains("cargo test"), "{}", ran.out);
        fs::read_to_string(format!("{folder}/Cargo.toml")).unwrap()
    };
    let version = env!("CARGO_PKG_VERSION");
    let (registry, git) = (manifest("registry", &[]), manifest("git", &["--git", "https://example.org/a\"b"]));
    let checkout = manifest("checkout", &["--path", CHECKOUT]);
    for folder in ["frpc", "frpc-http", "frpc-services", "frpc-build"] {
        let library = folder.replacen("frpc", "frisbee-rpc", 1);
        assert!(registry.contains(&format!("\n{library} = \"{version}\"\n")), "{registry}");
        assert!(git.contains(&format!("\n{library} = {{ git = \"https://example.org/a\\\"b\" }}\n")), "{git}");
        assert!(checkout.contains(&format!("{library} = {{ path = \"{CHECKOUT}/crates/{folder}\" }}\n")), "{checkout}");
    }
}

#[test]
fn an_existing_folder_stays_unchanged() {
    let directory = Directory::new("new-existing");
    let folder = directory.path("hello");
    fs::create_dir(&folder).unwrap();
    let ran = frpc(&["new", &folder]);
    assert_eq!(ran.code, 1);
    assert_eq!(ran.err, format!("error: {folder} exists already\ntry: another name, or remove it first\n"));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn names_unusable_for_a_package_are_refused() {
    let directory = Directory::new("new-names");
    for (name, why) in [
        ("7up", "it has to begin with a letter"),
        ("-x", "unexpected argument"),
        ("a b", "it contains ' '"),
        ("grüße", "it contains 'ü'"),
        ("async", "it is a word of Rust"),
        ("proc-macro", "it is a word of Rust"),
        ("frisbee-rpc", "a library of the project has this name"),
        ("frpc", "a library of the project has this name"),
        ("frpc_http", "a library of the project has this name"),
        ("tokio", "a library of the project has this name"),
        (&*"a".repeat(65), "it is longer than 64 characters"),
        ("..", "it has no last part"),
    ] {
        let name = if name.starts_with('-') { name.to_owned() } else { directory.path(name) };
        let ran = frpc(&["new", &name]);
        assert_ne!(ran.code, 0, "{name}: {ran:?}");
        assert!(ran.err.contains(why), "{name}: {}", ran.err);
    }
    let ran = frpc(&["new", &directory.path("hello"), "--path", &directory.path("")]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("it has no crates/frpc"), "{}", ran.err);
    assert!(fs::read_dir(directory.path("")).unwrap().next().is_none(), "nothing was created");
}
