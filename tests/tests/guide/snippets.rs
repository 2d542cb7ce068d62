//! Code in pages is compiled and run: as a part of an example, as a doctest, or in a tutorial.
//!
//! A comment names the owner of the block after it: `<!-- from examples/src/bin/tls.rs#server -->`. There, the lines are
//! between `ANCHOR: server` and `ANCHOR_END: server`.

use std::collections::BTreeMap;

use crate::pages::{paths, read, update};

/// Blocks of Rust that nothing compiles, by page. The numbers only fall.
const UNTESTED: [(&str, usize); 2] = [("docs/grpc.md", 2), ("docs/pubsub.md", 1)];

/// Blocks of commands that nothing runs, by page. The numbers only fall.
const UNTESTED_COMMANDS: [(&str, usize); 7] = [
    ("docs/benchmark/README.md", 1),
    ("docs/cli.md", 3),
    ("docs/contracts.md", 1),
    ("docs/functions.md", 3),
    ("docs/grpc.md", 6),
    ("docs/json-rpc.md", 1),
    ("docs/nats.md", 1),
];

#[test]
fn blocks_are_the_lines_of_their_examples() {
    let pages = paths().into_iter().map(|path| (read(&path), path)).filter(|(page, _)| page.contains(FROM));
    let pages: Vec<_> = pages.map(|(page, path)| (filled_in(&path, &page), path)).collect();
    update(&pages.iter().map(|(text, path)| (&**path, &**text)).collect::<Vec<_>>());
}

#[test]
fn code_without_a_test_gets_less() {
    let (doctests, tutorials) = (read("examples/src/lib.rs"), read(".ci/tutorials"));
    let (mut code, mut commands) = (BTreeMap::new(), BTreeMap::new());
    for path in paths().into_iter().filter(|path| path.starts_with("docs/") && !path.starts_with("docs/notes/")) {
        let is_doctest = doctests.contains(&format!("../../{path}\""));
        let is_tutorial = tutorials.contains(&format!("\"{path}\""));
        let page = read(&path);
        let count = untested(&page, is_doctest, is_tutorial);
        if count > 0 {
            code.insert(path.clone(), count);
        }
        let count = page.lines().filter(|line| *line == "```sh").count();
        if count > 0 && !is_tutorial {
            commands.insert(path, count);
        }
    }
    let advice = "code of pages comes from examples, is a doctest, or is followed; lower the numbers that have fallen";
    assert_eq!(code, UNTESTED.map(|(path, count)| (path.to_owned(), count)).into(), "{advice}");
    assert_eq!(commands, UNTESTED_COMMANDS.map(|(path, count)| (path.to_owned(), count)).into(), "{advice}");
}

/// The start of a comment with the owner of a block.
const FROM: &str = "<!-- from ";

/// Returns the page with the blocks of its owners.
fn filled_in(path: &str, page: &str) -> String {
    let (mut text, mut lines) = (String::new(), page.lines());
    while let Some(line) = lines.next() {
        text.push_str(line);
        text.push('\n');
        let Some(owner) = line.strip_prefix(FROM).and_then(|rest| rest.strip_suffix(" -->")) else { continue };
        let (file, anchor) = owner.split_once('#').unwrap_or_else(|| panic!("{path}: {owner} has no anchor"));
        let fence = lines.next().unwrap_or_default();
        assert!(fence.starts_with("```"), "{path}: a block follows {owner}");
        let _previous = lines.by_ref().take_while(|line| *line != "```").count();
        let code = region(&read(file), anchor).unwrap_or_else(|| panic!("{path}: there is no {owner}"));
        text.push_str(&format!("{fence}\n{code}```\n"));
    }
    text
}

/// Returns the lines of an anchor, without the indentation that all of them have and without other anchors.
fn region(source: &str, anchor: &str) -> Option<String> {
    let marks = |line: &str, mark: &str| line.trim_start().strip_prefix("// ").is_some_and(|rest| rest == mark);
    let lines = source.lines().skip_while(|line| !marks(line, &format!("ANCHOR: {anchor}"))).skip(1);
    let lines: Vec<_> = lines.take_while(|line| !marks(line, &format!("ANCHOR_END: {anchor}"))).collect();
    let lines: Vec<_> = lines.into_iter().filter(|line| !line.trim_start().starts_with("// ANCHOR")).collect();
    let indentation = |line: &&str| line.len() - line.trim_start().len();
    let least = lines.iter().filter(|line| !line.is_empty()).map(indentation).min()?;
    Some(lines.iter().map(|line| format!("{}\n", line.get(least..).unwrap_or_default())).collect())
}

/// Counts the blocks of Rust without an owner, a doctest or a place in a tutorial.
fn untested(page: &str, is_doctest: bool, is_tutorial: bool) -> usize {
    let (mut count, mut previous, mut is_open) = (0, "", false);
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(kind) = line.strip_prefix("```") {
            is_open = !is_open;
            let is_rust = is_open && kind.starts_with("rust");
            let is_compiled = is_doctest && !kind.contains("ignore");
            let is_file =
                is_tutorial && lines.peek().is_some_and(|first| first.starts_with("// ") && first.ends_with(".rs"));
            if is_rust && !is_compiled && !is_file && !previous.starts_with(FROM) {
                count += 1;
            }
        }
        previous = line;
    }
    count
}

#[test]
fn regions_lose_their_indentation_and_inner_anchors() {
    let source = "fn a() {\n    // ANCHOR: x\n    b();\n    // ANCHOR: y\n\n      c();\n    // ANCHOR_END: y\n    // ANCHOR_END: x\n}\n";
    assert_eq!(region(source, "x").unwrap(), "b();\n\n  c();\n");
    assert_eq!(region(source, "y").unwrap(), "\nc();\n");
    assert_eq!(region(source, "z"), None);
}

#[test]
fn untested_blocks_are_counted() {
    let page = "```rust\na\n```\n```rust,ignore\nb\n```\n<!-- from x#y -->\n```rust,ignore\nc\n```\n\
                ```rust,ignore\n// src/a.rs\nd\n```\n```sh\ne\n```\n";
    assert_eq!((untested(page, false, true), untested(page, true, true)), (2, 1));
}
