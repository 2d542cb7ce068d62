//! Code in pages is compiled and run: as a part of an example, as a doctest, or in a tutorial.
//!
//! A comment names the owner of the block after it: `<!-- from examples/src/bin/tls.rs#server -->`. There, the lines are
//! between `ANCHOR: server` and `ANCHOR_END: server`.

use std::collections::BTreeMap;

use regex::Regex;

use crate::pages::{paths, read, update};

/// Blocks of Rust that nothing compiles, by page. The numbers only fall.
const UNTESTED: [(&str, usize); 2] = [("docs/grpc.md", 2), ("docs/pubsub.md", 1)];

/// Blocks of commands that `.ci/tutorials` does not run: the page, the first line, and the reason. The list only gets shorter.
const NOT_RUN: [(&str, &str, &str); 27] = [
    (
        "CONTRIBUTING.md",
        "cargo test                       # with Rust alone; tests that need more skip themselves and name the script that installs it",
        "the commands are the steps of .ci/run",
    ),
    ("README.md", "cargo run --bin echo      # a server and a client in one process", ".ci/examples runs the examples"),
    ("benches/README.md", "benches/published", "takes 40 minutes"),
    ("benches/README.md", "cargo build --release -p benches -p examples", "the step `report` runs it with fewer rows"),
    (
        "clients/typescript/README.md",
        "npm init -y && npm pkg set type=module",
        "needs a package that is not published yet",
    ),
    (
        "clients/typescript/README.md",
        "npx tsc --strict --module nodenext --target es2022 --outDir build main.ts",
        "compiles the project of the block before",
    ),
    (
        "crates/frpc-cli/README.md",
        "cargo install --path crates/frpc-cli                       # with --features full: --proto, lock, openapi, NATS",
        "needs servers that the reader has; the tests of the command make such calls",
    ),
    ("crates/frpc-cli/template/README.md", "cargo test", "crates/frpc-cli/tests/cli/new.rs tests the template"),
    (
        "crates/frpc-jsonrpc/README.md",
        "$ echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"sum\",\"params\":[1,2]}' | nc -q1 127.0.0.1 8545",
        "needs nc, which is not installed everywhere",
    ),
    (
        "crates/frpc-sim/README.md",
        "FLEET_SEEDS=10000 cargo test --release -p frisbee-rpc-sim --test fleet -- --nocapture",
        "takes minutes; CI runs the test with fewer seeds",
    ),
    ("docs/benchmark/README.md", "benches/published", "takes 40 minutes"),
    (
        "docs/cli.md",
        "frpc call :7300 Greet text=hello --proto greeter.proto",
        "needs a server in Go; crates/frpc-cli/tests/cli/plain_go.rs has one",
    ),
    ("docs/contracts.md", "$ buf build -o shop.binpb", "needs buf"),
    (
        "docs/contracts.md",
        "frpc replay calls.frec --to :7300 --diff",
        "needs a recording; crates/frpc-cli/tests/cli/replay.rs makes one",
    ),
    ("docs/functions.md", "cargo run --bin functions &", "needs NumPy"),
    (
        "docs/functions.md",
        "echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"sum\",\"params\":[1,2]}' | nc -q1 127.0.0.1 8545",
        "needs nc, which is not installed everywhere",
    ),
    (
        "docs/grpc.md",
        "buf curl --http2-prior-knowledge --protocol grpc -d '{\"text\": \"hello\"}' http://localhost:7300/frpc.echo.v1.Echo/Say",
        "needs buf",
    ),
    (
        "docs/grpc.md",
        "curl -G http://127.0.0.1:7300/helloworld.Greeter/SayHello -d connect=v1 -d encoding=json --data-urlencode 'message={\"name\": \"Ada\"}'",
        "needs a method without side effects; crates/frpc-http/tests/serving/connect.rs has one",
    ),
    ("docs/guide/browsers.md", "$ examples/browser/start", "needs packages of npm"),
    (
        "docs/json-rpc.md",
        "echo '{\"jsonrpc\": \"2.0\", \"method\": \"sum\", \"params\": [1, 2], \"id\": 1}' | nc -q1 localhost 8545",
        "needs nc, which is not installed everywhere",
    ),
    ("docs/nats.md", "nats micro list", "needs the command nats and a cluster"),
    ("docs/notes/campaign.md", "cargo build --release -p frpc-campaign", "takes an hour"),
    (
        "docs/notes/performance.md",
        "load_server 127.0.0.1:9000 --layer frpc --engine tokio &",
        "measures for minutes; .ci/load runs both programs",
    ),
    (
        "docs/pubsub.md",
        "FRISBEE_MESSAGES=1000000 cargo test -p frisbee-pubsub-nats --test nats arrives -- --nocapture",
        "takes minutes; the test runs with fewer messages",
    ),
    (
        "fuzz/README.md",
        "fuzz/build                              # all targets, or the named one",
        "the step `fuzz` runs each target",
    ),
    (
        "tests/conformance/proto/protobuf/README.md",
        "$ protoc -I include --include_imports -o test_messages.binpb include/google/protobuf/*.proto include/conformance/*.proto",
        "renews a file of the repository",
    ),
    (
        "tests/foreign/proto/gateway/README.md",
        "$ tests/foreign/build.sh gateway-tests",
        "renews files of the repository",
    ),
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
    let mut code = BTreeMap::new();
    for path in paths().into_iter().filter(|path| path.starts_with("docs/") && !path.starts_with("docs/notes/")) {
        let is_doctest = doctests.contains(&format!("../../{path}\""));
        let is_tutorial = tutorials.contains(&format!("\"{path}\""));
        let page = read(&path);
        let count = untested(&page, is_doctest, is_tutorial);
        if count > 0 {
            code.insert(path, count);
        }
    }
    let advice = "code of pages comes from examples, is a doctest, or is followed; lower the numbers that have fallen";
    assert_eq!(code, UNTESTED.map(|(path, count)| (path.to_owned(), count)).into(), "{advice}");
}

#[test]
fn commands_are_run_or_have_a_reason() {
    let followed = Regex::new(r#"\("([^"]+\.md)", (?:None|"([^"]+)")\)"#).unwrap();
    let tutorials = read(".ci/tutorials");
    let followed: Vec<_> = followed.captures_iter(&tutorials).collect();
    assert!(!followed.is_empty(), ".ci/tutorials has a list of pages");
    let is_followed = |path: &str, heading: &str| {
        followed.iter().any(|page| &page[1] == path && page.get(2).is_none_or(|section| section.as_str() == heading))
    };
    let mut left = Vec::new();
    for path in paths() {
        let page = read(&path);
        let blocks = commands(&page).into_iter().filter(|(heading, _)| !is_followed(&path, heading));
        left.extend(blocks.map(|(_, first)| (path.clone(), first.to_owned())));
    }
    let mut listed = NOT_RUN.map(|(path, first, _)| (path.to_owned(), first.to_owned())).to_vec();
    left.sort();
    listed.sort();
    assert_eq!(left, listed, "name the server of a block (see .ci/tutorials), or give a reason in NOT_RUN");
}

/// Returns the heading and the first line of each block of commands that does not name its server.
fn commands(page: &str) -> Vec<(&str, &str)> {
    let (mut heading, mut previous, mut is_open, mut found) = ("", "", false, Vec::new());
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(kind) = line.strip_prefix("```") {
            is_open = !is_open;
            let is_command = is_open && matches!(kind, "sh" | "console" | "bash" | "shell");
            if is_command && !previous.starts_with("<!-- server: ") {
                found.push((heading, *lines.peek().unwrap_or(&"")));
            }
        } else if !is_open && let Some(title) = line.strip_prefix("## ") {
            heading = title;
        }
        previous = line;
    }
    found
}

#[test]
fn blocks_of_commands_have_their_heading() {
    let page = "## A\n```sh\n## not a heading\n```\n<!-- server: a b -->\n```sh\nc\n```\n## B\n```console\n$ d\n```\n```text\ne\n```\n";
    assert_eq!(commands(page), [("A", "## not a heading"), ("B", "$ d")]);
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
