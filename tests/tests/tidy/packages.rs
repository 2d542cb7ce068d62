//! Checks the names of our packages, and the page that lists them.

use std::{fmt::Write as _, fs, path::Path};

use regex::Regex;

use crate::{ROOT, lines, offences};

/// Returns the package of a folder. The names `frisbee` and `frpc` belong to others on crates.io.
fn package(folder: &str) -> String {
    match folder.strip_prefix("frpc") {
        Some(rest) => format!("frisbee-rpc{rest}"),
        None if folder == "frisbee" => "frisbee-net".to_owned(),
        None => folder.to_owned(),
    }
}

#[test]
fn packages_have_the_common_prefix_and_libraries_the_name_of_their_folder() {
    for folder in folders() {
        let manifest = manifest(&folder);
        assert_eq!(value(&manifest, "[package]", "name"), Some(&*package(&folder)), "crates/{folder}/Cargo.toml");
        if Path::new(ROOT).join("crates").join(&folder).join("src/lib.rs").exists() {
            let library = value(&manifest, "[lib]", "name").map_or(package(&folder).replace('-', "_"), str::to_owned);
            assert_eq!(library, folder.replace('-', "_"), "crates/{folder}/Cargo.toml");
        }
        assert!(package(&folder).starts_with("frisbee-"), "{folder}: our packages start with `frisbee-`");
    }
}

#[test]
fn the_client_on_npm_has_the_name_of_the_package() {
    let manifest = fs::read_to_string(format!("{ROOT}/clients/typescript/package.json")).expect("a manifest");
    assert!(manifest.contains(&format!("\"name\": \"{}\"", package("frpc"))), "clients/typescript/package.json");
}

#[test]
fn commands_and_links_name_packages() {
    let pattern = folder_as_package();
    let places = offences(|_| true, |text| misnamed(&pattern, text));
    assert!(places.is_empty(), "folders where cargo expects packages:\n{}", places.join("\n"));
}

#[test]
fn a_folder_in_place_of_a_package_is_detected() {
    let pattern = folder_as_package();
    for before in
        ["cargo test -p ", "--package=", "cargo add --build ", "cargo install ", "https://docs.rs/", "\"-p\", \""]
    {
        for folder in ["frisbee", "frpc", "frpc-http", "frpc-http2"] {
            for after in ["", " --lib", "\")"] {
                let line = format!("{before}{folder}{after}");
                assert_eq!(misnamed(&pattern, &line), [(1, folder.to_owned())], "{line}");
            }
        }
    }
    for allowed in ["-p frisbee-net", "-p frpc-campaign", "mkdir -p frpc/src", "cargo install --path crates/frpc-cli"] {
        assert_eq!(misnamed(&pattern, allowed), [], "{allowed}");
    }
}

/// Matches a folder whose package has another name, in a command of cargo or a link.
fn folder_as_package() -> Regex {
    let renamed: Vec<_> = folders().into_iter().filter(|folder| package(folder) != *folder).collect();
    let folder = format!("({})", renamed.join("|"));
    let option = r#"(?:-p|--package)(?:[ =]|", ")"#;
    Regex::new(&format!(
        r#"(?:{option}|cargo (?:add|install|info) (?:--[a-z]+ )*){folder}(?:[^\w/-]|$)|(?:docs\.rs|crates\.io/crates)/{folder}(?:[^\w-]|$)"#
    ))
    .expect("a regular expression")
}

fn misnamed(pattern: &Regex, text: &str) -> Vec<(usize, String)> {
    let in_line = |(number, line): (usize, String)| {
        let found = pattern.captures_iter(&line).filter_map(|found| found.get(1).or(found.get(2)));
        found.map(|folder| (number, folder.as_str().to_owned())).collect::<Vec<_>>()
    };
    lines(text).into_iter().flat_map(in_line).collect()
}

#[test]
fn the_page_lists_every_package() {
    let path = format!("{ROOT}/docs/reference/packages.md");
    let page = fs::read_to_string(&path).expect("the page exists");
    let (before, rest) = page.split_once(BEGIN).expect("the page has the first marker");
    let (_, after) = rest.split_once(END).expect("the page has the second marker");
    let expected = format!("{before}{BEGIN}\n{}{END}{after}", table());
    if page != expected {
        fs::write(&path, expected).expect("the page can be written");
        panic!(
            "docs/reference/packages.md had another list than the manifests: its table was rewritten, review and commit it"
        );
    }
}

const BEGIN: &str = "<!-- packages: generated -->";
const END: &str = "<!-- packages: end -->";

fn table() -> String {
    let mut table = "| package | in code | contents |\n|---|---|---|\n".to_owned();
    for folder in folders() {
        let manifest = manifest(&folder);
        let contents = value(&manifest, "[package]", "description").expect("a package has a description");
        let is_library = Path::new(ROOT).join("crates").join(&folder).join("src/lib.rs").exists()
            && value(&manifest, "[lib]", "doc") != Some("false");
        let code = if is_library { format!("`{}`", folder.replace('-', "_")) } else { "–".to_owned() };
        writeln!(table, "| [{}](../../crates/{folder}/README.md) | {code} | {contents} |", package(&folder))
            .expect("text grows");
    }
    table
}

/// Returns the published folders in `crates`, sorted.
fn folders() -> Vec<String> {
    let entries = fs::read_dir(Path::new(ROOT).join("crates")).expect("the crates exist");
    let names = entries.map(|entry| entry.expect("a readable entry").file_name().to_string_lossy().into_owned());
    let is_published = |name: &String| {
        let path = Path::new(ROOT).join("crates").join(name).join("Cargo.toml");
        path.exists() && value(&manifest(name), "[package]", "publish") != Some("false")
    };
    let mut names: Vec<_> = names.filter(is_published).collect();
    names.sort();
    names
}

fn manifest(folder: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join("crates").join(folder).join("Cargo.toml")).expect("a manifest")
}

/// Returns the value of a key in a section of a manifest, without quotes.
fn value<'a>(manifest: &'a str, section: &str, key: &str) -> Option<&'a str> {
    let lines = manifest.lines().skip_while(|line| *line != section).skip(1).take_while(|line| !line.starts_with('['));
    let values = lines.filter_map(|line| line.split_once(" = ")).filter(|(name, _)| *name == key);
    values.map(|(_, value)| value.trim_matches('"')).next()
}

#[test]
fn values_are_read_from_their_section() {
    let manifest = "[package]\nname = \"frisbee-net\"\npublish = false\n\n[lib]\nname = \"frisbee\"\n";
    assert_eq!(value(manifest, "[package]", "name"), Some("frisbee-net"));
    assert_eq!(value(manifest, "[lib]", "name"), Some("frisbee"));
    assert_eq!(value(manifest, "[package]", "publish"), Some("false"));
    assert_eq!(value(manifest, "[lib]", "publish"), None);
}
