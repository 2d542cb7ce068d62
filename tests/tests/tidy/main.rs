//! Checks the sources for forbidden words and imports.

mod cycles;
mod dialect;
mod floors;
mod imports;
mod installs;
mod packages;

use std::{fs, path::Path, process::Command};

/// Words forbidden in the protocol core. It only handles bytes and times passed to it, and must not know where they
/// come from.
const NOT_IN_PROTO: &[&str] = &[
    "tokio",
    "net::",
    "io::",
    "async ",
    ".await",
    "Mutex",
    "RwLock",
    "Atomic",
    "spawn",
    "thread",
    "Instant::now",
    "SystemTime",
    "channel",
    "println",
    "rpc",
    "method",
    "service",
];

#[test]
fn the_protocol_core_is_pure() {
    let places = offences(is_proto, |text| misplaced(&code(text), NOT_IN_PROTO));
    assert!(places.is_empty(), "words that the protocol core must not know:\n{}", places.join("\n"));
}

#[test]
fn libraries_do_not_sleep() {
    let places = offences(is_library, |text| misplaced(&code(text), &["thread::sleep"]));
    assert!(places.is_empty(), "sleeping blocks whoever drives the library:\n{}", places.join("\n"));
}

#[test]
fn the_sources_contain_no_leftovers() {
    let places = offences(|_| true, |text| misplaced(&lines(text), LEFTOVERS));
    assert!(places.is_empty(), "leftovers:\n{}", places.join("\n"));
}

/// Absolute paths of a development machine, and placeholders for missing code. Assembled from parts, so this file does
/// not match.
const LEFTOVERS: &[&str] = &[concat!("/wo", "rk/"), concat!("to", "do!"), concat!("unimple", "mented!")];

#[test]
fn comments_open_with_a_statement() {
    let places = offences(is_written_here, |text| questions(&lines(text)));
    assert!(places.is_empty(), "comments that open like a question, not with a verb or a noun:\n{}", places.join("\n"));
}

#[test]
fn a_comment_like_a_question_is_detected() {
    let text = "//! What it is.\n    /// Whether it is.\nlet a = 1; // Who knows?\n// Whatever it is.\n//! How.";
    assert_eq!(questions(&lines(text)), [(1, "What".to_owned()), (2, "Whether".to_owned()), (5, "How".to_owned())]);
}

#[test]
fn every_forbidden_word_is_detected() {
    for word in NOT_IN_PROTO.iter().chain(LEFTOVERS).chain(&["thread::sleep"]) {
        let planted = format!("//! Why.\nlet planted = {word} after; // why");
        for sample in [planted.to_uppercase(), planted] {
            assert_eq!(misplaced(&code(&sample), &[word]), [(2, (*word).to_owned())], "`{word}` in `{sample}`");
        }
    }
}

#[test]
fn allowed_words_are_not_reported() {
    let allowed = "//! A service.\nuse std::{io::IoSlice, mem};\nlet a = 1; // a thread\n#[cfg(test)]\nmod tokio {}";
    assert_eq!(misplaced(&code(allowed), NOT_IN_PROTO), []);
}

#[test]
fn source_files_are_found() {
    let count = |wanted: fn(&str) -> bool| sources().iter().filter(|path| wanted(path)).count();
    assert!(count(is_proto) >= 6, "{} files of the protocol core", count(is_proto));
    assert!(count(is_library) > count(is_proto));
    let functions = offences(is_proto, |text| misplaced(&code(text), &["fn "]));
    assert!(functions.iter().any(|place| place.starts_with("crates/frisbee/src/proto/connection/mod.rs:")));
}

fn is_proto(path: &str) -> bool {
    path.starts_with("crates/frisbee/src/proto/") && path.ends_with(".rs")
}

/// Generated files contain comments copied from proto files.
fn is_written_here(path: &str) -> bool {
    path.ends_with(".rs") && !path.contains("/golden/") && !path.contains("/generated/")
}

fn is_library(path: &str) -> bool {
    path.starts_with("crates/") && path.contains("/src/") && path.ends_with(".rs")
}

/// Returns every forbidden word in the selected files as `file:line: word`.
fn offences(wanted: fn(&str) -> bool, find: impl Fn(&str) -> Vec<(usize, String)>) -> Vec<String> {
    let in_file = |path: &String| {
        let text = fs::read(Path::new(ROOT).join(path)).unwrap_or_default();
        find(&String::from_utf8_lossy(&text))
            .into_iter()
            .map(move |(line, word)| format!("{path}:{line}: {word}"))
            .collect::<Vec<_>>()
    };
    sources().iter().filter(|path| wanted(path)).flat_map(in_file).collect()
}

/// Returns the text files of the repository, tracked or not yet added.
fn sources() -> Vec<String> {
    let list = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(list).current_dir(ROOT).output().expect("git lists the sources");
    assert!(output.status.success(), "the tests run in a checkout: {output:?}");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Reads the sources in a folder, named by their paths below it.
fn files_below(folder: &str, extension: &str) -> Vec<(String, String)> {
    let below = |path: String| Some((path.strip_prefix(folder)?.to_owned(), path));
    let files = sources().into_iter().filter_map(below).filter(|(name, _)| name.ends_with(extension));
    files.filter_map(|(name, path)| Some((name, fs::read_to_string(format!("{ROOT}/{path}")).ok()?))).collect()
}

fn misplaced(lines: &[(usize, String)], words: &[&str]) -> Vec<(usize, String)> {
    let hits = |(number, line): &(usize, String)| {
        let line = line.replace("io::IoSlice", "").to_lowercase();
        let found = words.iter().filter(|word| line.contains(&word.to_lowercase()));
        found.map(|word| (*number, (*word).to_owned())).collect::<Vec<_>>()
    };
    lines.iter().flat_map(hits).collect()
}

/// Returns the comment lines that begin with a question word.
fn questions(lines: &[(usize, String)]) -> Vec<(usize, String)> {
    let opening = |line: &str| {
        let comment = line.trim_start().strip_prefix("//")?.trim_start_matches(['/', '!']);
        let first = comment.split_whitespace().next()?.trim_end_matches(['.', ',', '?', ':']);
        ["What", "Who", "Whether", "How"].contains(&first).then(|| first.to_owned())
    };
    lines.iter().filter_map(|(number, line)| Some((*number, opening(line)?))).collect()
}

fn lines(text: &str) -> Vec<(usize, String)> {
    (1..).zip(text.lines().map(str::to_owned)).collect()
}

/// Returns the lines without comments, up to the unit tests at the end of a file.
fn code(text: &str) -> Vec<(usize, String)> {
    let code = lines(text).into_iter().take_while(|(_, line)| line != "#[cfg(test)]");
    code.map(|(number, line)| (number, line.split("//").next().unwrap_or_default().to_owned())).collect()
}

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
