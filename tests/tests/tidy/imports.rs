//! Reads the modules of a crate and finds the references between them.
//!
//! Every name is traced to the file with its definition: through `use`, through re-exports in `mod.rs` and `lib.rs`,
//! and through `crate`, `self` and `super`. A name merely re-exported by a `mod.rs` or `lib.rs` adds no edge for that
//! file. Methods are ignored: only explicit paths count as references. Unit tests at the end of a file are ignored too.

use std::collections::{BTreeMap, BTreeSet};

/// Modules of one crate by path, such as `net::wire`. The path of `lib.rs` is empty.
pub(crate) struct Modules {
    modules: BTreeMap<String, Module>,
}

/// A file, or an inline module in a file.
#[derive(Default)]
struct Module {
    /// Module of the file.
    within: String,
    /// Name of the file.
    file: String,
    defines: BTreeSet<String>,
    uses: Vec<Use>,
    paths: Vec<(usize, Vec<String>)>,
    /// All identifiers outside of `use`. They distinguish used imports from mere re-exports.
    words: BTreeSet<String>,
}

/// A single name imported by a `use`.
struct Use {
    line: usize,
    /// Local name, or `*` for a glob.
    name: String,
    path: Vec<String>,
    is_public: bool,
}

/// A reference from one file to another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edge {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) file: String,
    pub(crate) line: usize,
    /// Path as written in the source.
    pub(crate) path: String,
}

impl Modules {
    /// Reads files, given as pairs of a path below `src` and a text.
    pub(crate) fn read(files: &[(&str, &str)]) -> Self {
        let mut modules = BTreeMap::new();
        for (file, text) in files {
            let path = module_of(file);
            let text: Vec<&str> = text.lines().take_while(|line| *line != "#[cfg(test)]").collect();
            scan(&path, file, &tokens(&text.join("\n")), &mut modules);
        }
        Self { modules }
    }

    /// Returns the modules with files of their own, in order. The root has an empty name.
    pub(crate) fn files(&self) -> impl Iterator<Item = &str> {
        self.modules.iter().filter(|(path, module)| **path == module.within).map(|(path, _)| &**path)
    }

    /// Returns the references between files. For each pair of files, returns the first one.
    pub(crate) fn edges(&self) -> Vec<Edge> {
        let mut edges: BTreeMap<(String, String), Edge> = BTreeMap::new();
        for (path, module) in &self.modules {
            let is_facade = module.file.ends_with("mod.rs") || module.file == "lib.rs";
            let handed_on = |leaf: &Use| is_facade && leaf.is_public && !module.words.contains(&leaf.name);
            let uses = module.uses.iter().filter(|leaf| !handed_on(leaf)).map(|leaf| (leaf.line, &leaf.path));
            for (line, written) in uses.chain(module.paths.iter().map(|(line, written)| (*line, written))) {
                let Some(target) = self.resolve(path, written, 0, &mut Lookups::new()) else { continue };
                let (from, to) = (module.within.clone(), self.modules[&target].within.clone());
                if from == to {
                    continue;
                }
                let file = module.file.clone();
                let edge = Edge { from: from.clone(), to: to.clone(), file, line, path: written.join("::") };
                let known = edges.entry((from, to)).or_insert_with(|| edge.clone());
                if edge.line < known.line {
                    *known = edge;
                }
            }
        }
        edges.into_values().collect()
    }

    /// Resolves a path written in a module to the module that defines its target. Returns `None` for paths into other
    /// crates.
    fn resolve(&self, module: &str, path: &[String], depth: usize, lookups: &mut Lookups) -> Option<String> {
        // Stop at some depth, because a name imported under its own name would recurse forever.
        if depth > 20 {
            return None;
        }
        let (mut at, mut rest) = (module.to_owned(), path);
        match rest.first().map(String::as_str) {
            Some("crate") => (at, rest) = (String::new(), &rest[1..]),
            Some("self") => rest = &rest[1..],
            Some("super") => {
                while rest.first().is_some_and(|segment| segment == "super") {
                    at = at.rsplit_once("::").map_or(String::new(), |(parent, _)| parent.to_owned());
                    rest = &rest[1..];
                }
            }
            first => {
                self.step(&at, first?, depth, lookups)?;
            }
        }
        while let Some((segment, more)) = rest.split_first() {
            match self.step(&at, segment, depth, lookups) {
                Some(Step::Module(next)) => (at, rest) = (next, more),
                Some(Step::Defined(by)) => return Some(by),
                Some(Step::Elsewhere) => return None,
                // The name comes from a macro or a glob. Attribute it to the module found so far.
                None => return Some(at),
            }
        }
        Some(at)
    }

    /// Looks up a name in a module.
    fn step(&self, at: &str, name: &str, depth: usize, lookups: &mut Lookups) -> Option<Step> {
        let child = if at.is_empty() { name.to_owned() } else { format!("{at}::{name}") };
        if self.modules.contains_key(&child) {
            return Some(Step::Module(child));
        }
        let module = self.modules.get(at)?;
        if module.defines.contains(name) {
            return Some(Step::Defined(at.to_owned()));
        }
        // Cache the lookup. Modules import from each other, and every path through them would be searched again
        // otherwise.
        let lookup = (at.to_owned(), name.to_owned());
        if let Some(known) = lookups.get(&lookup) {
            return known.clone();
        }
        lookups.insert(lookup.clone(), None);
        let found = self.imported(at, name, depth, lookups);
        lookups.insert(lookup, found.clone());
        found
    }

    /// Looks up a name among the imports of a module.
    fn imported(&self, at: &str, name: &str, depth: usize, lookups: &mut Lookups) -> Option<Step> {
        let module = self.modules.get(at)?;
        if let Some(leaf) = module.uses.iter().find(|leaf| leaf.name == name && leaf.path != [name]) {
            return Some(match self.resolve(at, &leaf.path, depth + 1, lookups) {
                Some(target) if target.rsplit("::").next() == leaf.path.last().map(String::as_str) => {
                    Step::Module(target)
                }
                Some(target) => Step::Defined(target),
                None => Step::Elsewhere,
            });
        }
        let globs = module.uses.iter().filter(|leaf| leaf.name == "*" && depth < 20);
        for glob in globs {
            if let Some(target) = self.resolve(at, &glob.path, depth + 1, lookups)
                && target != at
                && let Some(step) = self.step(&target, name, depth + 1, lookups)
            {
                return Some(step);
            }
        }
        None
    }
}

/// Results of looking up imported names during the resolution of one path: module, name, and target. Pending lookups
/// have no target.
type Lookups = BTreeMap<(String, String), Option<Step>>;

/// Target of one path segment.
#[derive(Clone)]
enum Step {
    Module(String),
    /// An item defined in this module.
    Defined(String),
    /// An item of another crate.
    Elsewhere,
}

/// Returns all cycles, each as a list of edges.
pub(crate) fn circles(edges: &[Edge]) -> Vec<Vec<Edge>> {
    let mut found: Vec<Vec<Edge>> = Vec::new();
    let modules: BTreeSet<&str> = edges.iter().map(|edge| &*edge.from).collect();
    for start in modules {
        let is_known = found.iter().flatten().any(|edge| edge.from == start);
        if !is_known && let Some(way) = way_back(edges, start) {
            found.push(way);
        }
    }
    found
}

/// Returns a shortest path from a module back to itself.
fn way_back(edges: &[Edge], start: &str) -> Option<Vec<Edge>> {
    let (mut ways, mut seen) = (vec![Vec::new()], BTreeSet::new());
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            let at = way.last().map_or(start, |edge: &&Edge| &edge.to);
            for edge in edges.iter().filter(|edge| edge.from == at) {
                let mut next = way.clone();
                next.push(edge);
                if edge.to == start {
                    return Some(next.into_iter().cloned().collect());
                }
                if seen.insert(&edge.to) {
                    longer.push(next);
                }
            }
        }
        ways = longer;
    }
    None
}

/// Returns the module of a file below `src`.
fn module_of(file: &str) -> String {
    let path = file.strip_suffix(".rs").unwrap_or(file);
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if path == "lib" { String::new() } else { path.replace('/', "::") }
}

type Token = (usize, String);

/// Collects the definitions, imports and references of the modules in one file.
fn scan(path: &str, file: &str, tokens: &[Token], modules: &mut BTreeMap<String, Module>) {
    let new = || Module { within: path.to_owned(), file: file.to_owned(), ..Module::default() };
    modules.insert(path.to_owned(), new());
    // Enclosing modules, each with the brace depth of its items.
    let mut around = vec![(path.to_owned(), 0)];
    let (mut depth, mut i) = (0, 0);
    let word = |i: usize| tokens.get(i).map_or("", |(_, word)| word.as_str());
    while i < tokens.len() {
        let (at, item_depth) = around.last().cloned().unwrap_or_default();
        let module = modules.get_mut(&at).expect("a module is known before what is in it");
        match word(i) {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                if around.len() > 1 && depth < item_depth {
                    around.pop();
                }
            }
            "mod" if word(i + 2) == "{" => {
                let child = if at.is_empty() { word(i + 1).to_owned() } else { format!("{at}::{}", word(i + 1)) };
                modules.insert(child.clone(), new());
                depth += 1;
                around.push((child, depth));
                i += 3;
                continue;
            }
            "use" if word(i + 1) != "<" => {
                let is_public = i > 0 && (word(i - 1) == "pub" || word(i - 1) == ")");
                let mut leaves = Vec::new();
                i = use_tree(tokens, i + 1, &[], is_public, &mut leaves);
                module.uses.extend(leaves);
                continue;
            }
            // A visibility refers to a module but imports nothing.
            "pub" if word(i + 1) == "(" && word(i + 2) == "in" => {
                while word(i) != ")" {
                    i += 1;
                }
            }
            "macro_rules" => {
                module.defines.insert(word(i + 2).to_owned());
            }
            "fn" | "struct" | "enum" | "trait" | "union" | "type" | "const" | "static" if depth == item_depth => {
                module.defines.insert(word(i + 1).to_owned());
            }
            name if is_name(name) && word(i + 1) == "::" && (i == 0 || word(i - 1) != "::") => {
                let (line, mut segments) = (tokens[i].0, vec![name.to_owned()]);
                while word(i + 1) == "::" && is_name(word(i + 2)) {
                    segments.push(word(i + 2).to_owned());
                    i += 2;
                }
                module.words.insert(segments[0].clone());
                module.paths.push((line, segments));
            }
            name if is_name(name) => {
                module.words.insert(name.to_owned());
            }
            _ => {}
        }
        i += 1;
    }
}

/// Parses a `use` after its keyword, or a part of one. Returns the position after it.
fn use_tree(tokens: &[Token], mut i: usize, front: &[String], is_public: bool, leaves: &mut Vec<Use>) -> usize {
    let word = |i: usize| tokens.get(i).map_or("", |(_, word)| word.as_str());
    let line = tokens.get(i).map_or(0, |(line, _)| *line);
    let mut path = front.to_vec();
    let mut name = None;
    loop {
        match word(i) {
            "{" => {
                i += 1;
                while word(i) != "}" && i < tokens.len() {
                    i = use_tree(tokens, i, &path, is_public, leaves);
                    if word(i) == "," {
                        i += 1;
                    }
                }
                return i + 1;
            }
            "as" => {
                name = Some(word(i + 1).to_owned());
                i += 1;
            }
            "*" => name = Some("*".to_owned()),
            "self" if !path.is_empty() => {}
            "::" => {}
            segment if is_name(segment) => path.push(segment.to_owned()),
            // The end of this part, or of the whole `use`.
            _ => break,
        }
        i += 1;
    }
    let name = name.or_else(|| path.last().cloned()).unwrap_or_default();
    leaves.push(Use { line, name, path, is_public });
    i
}

fn is_name(word: &str) -> bool {
    word.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Splits text into names, `::` and single characters. Skips comments, string literals and numbers.
fn tokens(text: &str) -> Vec<Token> {
    let (mut tokens, mut line) = (Vec::new(), 1);
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = match first {
            _ if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            _ if rest.starts_with("::") => 2,
            '"' => quoted_len(rest),
            'r' | 'b' if raw_len(rest).is_some() => raw_len(rest).unwrap_or(1),
            '\'' => char_len(rest),
            _ if first.is_alphanumeric() || first == '_' => {
                rest.find(|next: char| !next.is_alphanumeric() && next != '_').unwrap_or(rest.len())
            }
            _ => first.len_utf8(),
        };
        let (token, more) = rest.split_at(len);
        let is_token =
            token == "::" || is_name(token) && raw_len(rest).is_none() || len == 1 && first.is_ascii_punctuation();
        if is_token && !matches!(first, '"' | '\'') {
            tokens.push((line, token.to_owned()));
        }
        line += token.matches('\n').count();
        rest = more;
    }
    tokens
}

/// Returns the length of the string literal at the start of the text.
fn quoted_len(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text.char_indices().skip(1).find(|(_, next)| {
        let is_end = *next == '"' && !is_escaped;
        is_escaped = *next == '\\' && !is_escaped;
        is_end
    });
    end.map_or(text.len(), |(end, _)| end + 1)
}

/// Returns the length of a raw string or byte string at the start of the text.
fn raw_len(text: &str) -> Option<usize> {
    let plain = text.strip_prefix('b').unwrap_or(text);
    let Some(raw) = plain.strip_prefix('r') else {
        return (plain.len() < text.len() && plain.starts_with('"')).then(|| 1 + quoted_len(plain));
    };
    let hashes = raw.len() - raw.trim_start_matches('#').len();
    let content = raw[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let len = content.find(&end).map_or(content.len(), |len| len + end.len());
    Some(text.len() - content.len() + len)
}

/// Returns the length of a character literal, or of a lifetime's quote.
fn char_len(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some(_)) => text[3..].find('\'').map_or(1, |end| end + 4),
        (Some(_), Some((end, '\''))) => end + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let edges = Modules::read(files).edges();
        edges.iter().map(|edge| format!("{} -> {} {}:{}", edge.from, edge.to, edge.file, edge.line)).collect()
    }

    #[test]
    fn an_import_points_to_the_defining_file() {
        let files = [
            ("lib.rs", "mod low;\nmod high;"),
            ("low.rs", "pub struct Low;"),
            ("high.rs", "//! Doc.\n\nuse std::fmt;\n\nuse crate::low::Low;\n\nfn high(_: Low) {}"),
        ];
        assert_eq!(edges(&files), ["high -> low high.rs:5"]);
    }

    #[test]
    fn names_are_resolved_through_reexports() {
        let files = [
            ("lib.rs", "mod net;\nmod user;\npub use net::Wire;"),
            ("net/mod.rs", "mod wire;\npub(crate) use self::wire::{Wire, lay as put};"),
            ("net/wire.rs", "pub struct Wire;\npub fn lay() {}"),
            ("user.rs", "use crate::Wire;"),
            ("other.rs", "fn f() { crate::net::put(); }"),
        ];
        assert_eq!(edges(&files), ["other -> net::wire other.rs:1", "user -> net::wire user.rs:1"]);
    }

    #[test]
    fn a_locally_used_reexport_is_an_edge() {
        let files = [
            ("lib.rs", "mod net;"),
            ("net/mod.rs", "mod wire;\npub use self::wire::Wire;\nstruct Cable(Wire);"),
            ("net/wire.rs", "pub struct Wire;\nuse super::Cable;"),
        ];
        assert_eq!(edges(&files), ["net -> net::wire net/mod.rs:2", "net::wire -> net net/wire.rs:2"]);
    }

    #[test]
    fn all_paths_in_bodies_are_edges() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\nmod c;"),
            ("a.rs", "pub fn a() {}"),
            ("b.rs", "use crate::a;\nfn b() {\n    a::a();\n    super::c::C::new();\n}"),
            ("c/mod.rs", "mod d;\nmod inner { fn e() { super::d::d(); super::super::a::a(); } }\npub struct C;"),
            ("c/d.rs", "pub(super) fn d() { assert!(matches!(1, crate::b::B)); }"),
        ];
        let expected =
            ["b -> a b.rs:1", "b -> c b.rs:4", "c -> a c/mod.rs:2", "c -> c::d c/mod.rs:2", "c::d -> b c/d.rs:1"];
        assert_eq!(edges(&files), expected);
    }

    #[test]
    fn names_are_resolved_through_imported_modules() {
        let files = [
            ("lib.rs", "pub mod proto;\nmod user;"),
            ("proto/mod.rs", "mod core;\npub use self::core::Core;"),
            ("proto/core.rs", "pub struct Core;"),
            ("user.rs", "use crate::proto::{self};\nfn f(_: proto::Core) {}"),
        ];
        assert_eq!(edges(&files), ["user -> proto user.rs:1", "user -> proto::core user.rs:2"]);
    }

    #[test]
    fn comments_strings_tests_and_other_crates_are_ignored() {
        let text = "// crate::b::B\npub(in crate::b) struct A;\n/* crate::b */\nfn f<'a>(_: &'a str) -> impl Sized + use<'a> {\n    g(\"crate::b\", 'c', '\\'', \
                    r#\"crate::\"b\"#, b\"crate::b\");\n    tokio::b::c();\n}\n#[cfg(test)]\nmod tests { use crate::b; }";
        assert_eq!(edges(&[("lib.rs", ""), ("a.rs", text), ("b.rs", "")]), Vec::<String>::new());
    }

    #[test]
    fn cycles_are_reported_with_all_their_edges() {
        let files = [
            ("lib.rs", ""),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "pub struct B;\nuse crate::c;"),
            ("c.rs", "use crate::{d, a};"),
            ("d.rs", ""),
        ];
        let found = circles(&Modules::read(&files).edges());
        let names: Vec<Vec<_>> = found.iter().map(|way| way.iter().map(|edge| &*edge.from).collect()).collect();
        assert_eq!(names, [["a", "b", "c"]]);
    }
}
