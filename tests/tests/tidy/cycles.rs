//! Import cycles outside of the published crates: the programs of the benches and the client in TypeScript.

use crate::{
    files_below,
    imports::{Edge, Modules, circles},
};

#[test]
fn programs_have_no_import_cycles() {
    for program in ["benches/src/report/", "benches/pubsub/src/"] {
        let files = files_below(program, ".rs");
        assert!(files.len() > 1, "{program} has modules");
        // A program has the names of its modules in `main.rs`, a library in `lib.rs`.
        let as_library = |name: &str| if name == "main.rs" { "lib.rs".to_owned() } else { name.to_owned() };
        let files: Vec<_> = files.iter().map(|(name, text)| (as_library(name), &**text)).collect();
        let edges = Modules::read(&files.iter().map(|(name, text)| (&**name, *text)).collect::<Vec<_>>()).edges();
        assert!(!edges.is_empty(), "{program} has imports");
        assert_eq!(circles(&edges), Vec::<Vec<Edge>>::new(), "{program}");
    }
}

#[test]
fn the_typescript_client_has_no_import_cycles() {
    let files = files_below("clients/typescript/src/", ".ts");
    let edges: Vec<_> = files.iter().flat_map(|(name, text)| typescript_edges(name, text)).collect();
    assert!(edges.iter().any(|edge| edge.from == "wire/control.ts" && edge.to == "wire/hello.ts"));
    assert_eq!(circles(&edges), Vec::<Vec<Edge>>::new());
}

#[test]
fn a_typescript_import_cycle_is_detected() {
    let files = [
        ("a.ts", "import type { B } from \"./wire/b.js\";"),
        ("wire/b.ts", "export * from \"./c.js\";\nimport assert from \"node:assert\";"),
        ("wire/c.ts", "import {\n  a,\n} from \"../a.js\";"),
    ];
    let edges: Vec<_> = files.iter().flat_map(|(name, text)| typescript_edges(name, text)).collect();
    let [cycle] = &circles(&edges)[..] else { panic!("{edges:?}") };
    let names: Vec<_> = cycle.iter().map(|edge| (&*edge.from, &*edge.to, edge.line)).collect();
    assert_eq!(names, [("a.ts", "wire/b.ts", 1), ("wire/b.ts", "wire/c.ts", 1), ("wire/c.ts", "a.ts", 3)]);
}

/// Returns the imports and re-exports of a file from other files of the client.
fn typescript_edges(name: &str, text: &str) -> Vec<Edge> {
    let imported = |line: &str| Some(line.split_once(" from \"")?.1.split_once(".js\"")?.0.to_owned());
    let edge = |(line, path): (usize, String)| {
        let mut folders: Vec<_> = name.split('/').collect();
        folders.pop();
        for step in path.split('/') {
            match step {
                "." => {}
                ".." => drop(folders.pop()),
                step => folders.push(step),
            }
        }
        let to = format!("{}.ts", folders.join("/"));
        Edge { from: name.to_owned(), to, file: name.to_owned(), line, path }
    };
    (1..).zip(text.lines()).filter_map(|(number, line)| Some((number, imported(line)?))).map(edge).collect()
}
