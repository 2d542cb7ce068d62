//! The search for the template of a path.
//!
//! The segments of all templates form a tree. A search visits each node at most once for each verb that fits, so its cost
//! depends on the templates that match the start of a path, and not on the number of routes.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

use crate::template::{self, PathTemplate, TemplateSegment, TemplateVariable};

/// A tree of templates. The first node is the root.
#[derive(Clone, Debug)]
pub(crate) struct PathTrie {
    nodes: Vec<TrieNode>,
    /// The numbers of literals. A path segment is looked up once, and its number in each node.
    literals: HashMap<String, u32>,
    verbs: HashMap<String, u32>,
    /// The lengths of verbs, longest first.
    verb_lens: Vec<usize>,
    /// The number of segments of the longest template.
    depth: usize,
    has_rest: bool,
}

#[derive(Clone, Debug, Default)]
struct TrieNode {
    literals: HashMap<u32, usize>,
    one: Option<usize>,
    /// The routes that end here.
    here: VerbRoutes,
    /// The routes that end here with `**`.
    rest: VerbRoutes,
}

/// Routes with the same path, by the number of their verb.
type VerbRoutes = BTreeMap<u32, Vec<MethodRoute>>;

#[derive(Clone, Debug)]
struct MethodRoute {
    http_method: String,
    route: usize,
}

/// The result of a search.
#[derive(Debug)]
pub(crate) enum PathMatch<'t, 'p> {
    Found { route: usize, segments: PathSegments<'p> },
    OtherMethods(Vec<&'t str>),
    NotFound,
    Malformed(&'static str),
}

/// The encoded segments of a path, without the verb.
#[derive(Debug)]
pub(crate) struct PathSegments<'p>(Vec<&'p str>);

impl PathSegments<'_> {
    /// Returns the value of a variable. `None` if it is not UTF-8.
    ///
    /// A value of several segments keeps encoded slashes, so that the number of its segments does not change.
    pub(crate) fn value(&self, variable: &TemplateVariable, template: &PathTemplate) -> Option<String> {
        let is_deep = template.segments[variable.segments.clone()].last() == Some(&TemplateSegment::Rest);
        let end = if is_deep { self.0.len() } else { variable.segments.end };
        let segments = self.0.get(variable.segments.start..end)?;
        match segments {
            [one] if !is_deep => template::decode(one),
            several => template::decode_except(&several.join("/"), |byte| byte == b'/'),
        }
    }
}

impl Default for PathTrie {
    fn default() -> Self {
        Self {
            nodes: vec![TrieNode::default()],
            literals: HashMap::new(),
            verbs: HashMap::new(),
            verb_lens: Vec::new(),
            depth: 0,
            has_rest: false,
        }
    }
}

impl PathTrie {
    /// Adds a route.
    ///
    /// # Errors
    ///
    /// The route with the same path and HTTP method.
    pub(crate) fn insert(&mut self, http_method: &str, template: &PathTemplate, route: usize) -> Result<(), usize> {
        let mut node = 0;
        let mut is_deep = false;
        for segment in &template.segments {
            let fresh = self.nodes.len();
            let next = match segment {
                TemplateSegment::Literal(text) => {
                    let literal = number(&mut self.literals, text);
                    *self.nodes[node].literals.entry(literal).or_insert(fresh)
                }
                TemplateSegment::One => *self.nodes[node].one.get_or_insert(fresh),
                // Always the last one.
                TemplateSegment::Rest => {
                    is_deep = true;
                    continue;
                }
            };
            if next == fresh {
                self.nodes.push(TrieNode::default());
            }
            node = next;
        }
        let verb = template.verb().map_or(NO_VERB, |verb| {
            if !self.verb_lens.contains(&verb.len()) {
                self.verb_lens.push(verb.len());
                self.verb_lens.sort_unstable_by(|one, other| other.cmp(one));
            }
            number(&mut self.verbs, verb)
        });
        self.depth = self.depth.max(template.segments.len());
        self.has_rest |= is_deep;
        let node = &mut self.nodes[node];
        let routes = if is_deep { &mut node.rest } else { &mut node.here }.entry(verb).or_default();
        if let Some(other) = routes.iter().find(|other| other.http_method == http_method) {
            return Err(other.route);
        }
        routes.push(MethodRoute { http_method: http_method.to_owned(), route });
        Ok(())
    }

    pub(crate) fn find<'t, 'p>(&'t self, http_method: &str, path: &'p str) -> PathMatch<'t, 'p> {
        let Some(rest) = path.strip_prefix('/') else { return PathMatch::NotFound };
        if !self.has_rest && rest.split('/').take(self.depth + 1).count() > self.depth.max(1) {
            return PathMatch::NotFound;
        }
        let mut raw: Vec<&str> = if rest.is_empty() { Vec::new() } else { rest.split('/').collect() };
        let mut segments = Vec::with_capacity(raw.len());
        for text in &raw {
            match self.segment(text) {
                Ok(segment) => segments.push(segment),
                Err(found) => return found,
            }
        }
        let mut search = TrieSearch { trie: self, http_method, verb: NO_VERB, segments, others: Vec::new() };
        if let (Some(last), Some(plain)) = (raw.last().copied(), search.segments.last().copied()) {
            for (verb, len) in self.verbs_of(last) {
                let before = &last[..len];
                // An empty segment matches nothing.
                if before.is_empty() {
                    continue;
                }
                let Ok(segment) = self.segment(before) else { continue };
                search.verb = verb;
                *search.segments.last_mut().expect("there is a last segment") = segment;
                if let Some(route) = search.run(0, 0) {
                    *raw.last_mut().expect("there is a last segment") = before;
                    return PathMatch::Found { route, segments: PathSegments(raw) };
                }
            }
            *search.segments.last_mut().expect("there is a last segment") = plain;
            search.verb = NO_VERB;
        }
        if let Some(route) = search.run(0, 0) {
            return PathMatch::Found { route, segments: PathSegments(raw) };
        }
        let mut others = search.others;
        others.sort_unstable();
        others.dedup();
        if others.is_empty() { PathMatch::NotFound } else { PathMatch::OtherMethods(others) }
    }

    /// Returns the number of a segment among the literals.
    fn segment<'t, 'p>(&'t self, text: &str) -> Result<Option<u32>, PathMatch<'t, 'p>> {
        if text.is_empty() {
            return Err(PathMatch::NotFound);
        }
        let decoded = match text.contains('%') {
            false => Cow::Borrowed(text),
            true => match template::decode(text) {
                Some(decoded) => Cow::Owned(decoded),
                None => return Err(PathMatch::Malformed("the path has an invalid percent-encoding")),
            },
        };
        if matches!(&*decoded, "." | "..") {
            return Err(PathMatch::Malformed("the path has a segment `.` or `..`"));
        }
        Ok(self.literals.get(&*decoded).copied())
    }

    /// Returns the known verbs at the end of a segment, with the length of the text before their colon. The longest
    /// verb comes first.
    fn verbs_of<'a>(&'a self, segment: &'a str) -> impl Iterator<Item = (u32, usize)> + 'a {
        self.verb_lens.iter().filter_map(|len| {
            let colon = segment.len().checked_sub(len + 1)?;
            let verb = segment.get(colon..)?.strip_prefix(':')?;
            Some((*self.verbs.get(verb)?, colon))
        })
    }
}

struct TrieSearch<'a, 't> {
    trie: &'t PathTrie,
    http_method: &'a str,
    verb: u32,
    /// The numbers of the segments among the literals.
    segments: Vec<Option<u32>>,
    /// The HTTP methods of routes with the same path.
    others: Vec<&'t str>,
}

impl TrieSearch<'_, '_> {
    /// Returns the most specific route below a node for the segments from an index.
    fn run(&mut self, node: usize, at: usize) -> Option<usize> {
        let trie = self.trie;
        let node = &trie.nodes[node];
        let below = match self.segments.get(at) {
            None => self.route(&node.here),
            Some(segment) => {
                let literal = segment.and_then(|literal| node.literals.get(&literal));
                let literal = literal.and_then(|next| self.run(*next, at + 1));
                literal.or_else(|| node.one.and_then(|next| self.run(next, at + 1)))
            }
        };
        below.or_else(|| self.route(&node.rest))
    }
}

impl<'t> TrieSearch<'_, 't> {
    fn route(&mut self, routes: &'t VerbRoutes) -> Option<usize> {
        let routes = routes.get(&self.verb)?;
        let of = |name: &str| routes.iter().find(|route| route.http_method == name);
        let get = || if self.http_method == "HEAD" { of("GET") } else { None };
        let found = of(self.http_method).or_else(get).or_else(|| of("*"));
        if found.is_none() {
            self.others.extend(routes.iter().map(|route| &*route.http_method));
        }
        found.map(|found| found.route)
    }
}

/// Returns the number of a text, which is new if the text is.
fn number(numbers: &mut HashMap<String, u32>, text: &str) -> u32 {
    let fresh = u32::try_from(numbers.len()).unwrap_or(u32::MAX - 1) + 1;
    *numbers.entry(text.to_owned()).or_insert(fresh)
}

/// The number of templates without a verb.
const NO_VERB: u32 = 0;

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, sample::select};

    use super::*;

    /// Returns `true` if a template has this path. `verb` is the part of the last segment after its colon.
    fn has_path(template: &PathTemplate, path: &[&str], verb: Option<&str>) -> bool {
        let mut segments = template.segments.iter();
        let mut path = path.iter();
        template.verb() == verb
            && loop {
                match (segments.next(), path.next()) {
                    (None, None) | (Some(TemplateSegment::Rest), _) => break true,
                    (Some(TemplateSegment::One), Some(_)) => {}
                    (Some(TemplateSegment::Literal(text)), Some(segment)) if text == segment => {}
                    _ => break false,
                }
            }
    }

    /// Returns a value that is greater for templates that are more specific.
    fn precedence(template: &PathTemplate) -> Vec<u8> {
        let segments = template.segments.iter().map(|segment| match segment {
            TemplateSegment::Literal(_) => 3,
            TemplateSegment::One => 2,
            TemplateSegment::Rest => 0,
        });
        segments.chain([1]).collect()
    }

    /// Finds the route of a path by a look at each template.
    fn find_slowly(routes: &[(String, PathTemplate)], http_method: &str, path: &str) -> Option<usize> {
        let text = path.strip_prefix('/')?;
        let segments: Vec<&str> = if text.is_empty() { Vec::new() } else { text.split('/').collect() };
        if segments.iter().any(|segment| segment.is_empty()) {
            return None;
        }
        let mut ways = vec![(segments.clone(), None)];
        if let Some((last, before)) = segments.split_last() {
            for (colon, _) in last.match_indices(':').filter(|(colon, _)| *colon > 0) {
                ways.push(([before, &[&last[..colon]]].concat(), Some(&last[colon + 1..])));
            }
        }
        ways.sort_by_key(|(_, verb)| std::cmp::Reverse(verb.map_or(0, str::len)));
        ways.iter().find_map(|(segments, verb)| {
            let found = (0..routes.len()).filter(|route| has_path(&routes[*route].1, segments, *verb));
            let found = found.filter(|route| [http_method, "*"].contains(&&*routes[*route].0));
            found.max_by_key(|route| (precedence(&routes[*route].1), routes[*route].0 == http_method))
        })
    }

    fn template() -> impl Strategy<Value = PathTemplate> {
        let segment = select(vec!["a", "b", "*", "{x}", "{y=a/*}", "{z=*/b}", "**", "{w=**}"]);
        let verb = select(vec!["", "", ":v", ":v:w", ":w"]);
        (prop::collection::vec(segment, 0..4), verb).prop_filter_map("an invalid template", |(segments, verb)| {
            PathTemplate::parse(&format!("/{}{verb}", segments.join("/"))).ok()
        })
    }

    fn path() -> impl Strategy<Value = String> {
        let segment = select(vec!["a", "b", "c", "", "a:v", "c:v:w", ":w", "b:w:v"]);
        prop::collection::vec(segment, 0..5).prop_map(|segments| format!("/{}", segments.join("/")))
    }

    proptest! {
        #[test]
        fn the_tree_finds_what_a_look_at_each_template_finds(
            templates in prop::collection::vec((select(vec!["GET", "POST", "*"]), template()), 0..12),
            paths in prop::collection::vec(path(), 1..20),
        ) {
            let mut trie = PathTrie::default();
            let mut routes = Vec::new();
            for (http_method, template) in templates {
                if trie.insert(http_method, &template, routes.len()).is_ok() {
                    routes.push((http_method.to_owned(), template));
                }
            }
            for path in paths {
                let found = match trie.find("GET", &path) {
                    PathMatch::Found { route, segments } => {
                        for variable in &routes[route].1.variables {
                            prop_assert!(segments.value(variable, &routes[route].1).is_some());
                        }
                        Some(route)
                    }
                    _ => None,
                };
                prop_assert_eq!(found, find_slowly(&routes, "GET", &path), "{} in {:?}", path, routes);
            }
        }

        #[test]
        fn any_path_is_answered(path: String) {
            let mut trie = PathTrie::default();
            for (index, text) in ["/a/{x}", "/{y=**}:v", "/b/*/c"].iter().enumerate() {
                trie.insert("GET", &PathTemplate::parse(text).unwrap(), index).unwrap();
            }
            trie.find("GET", &path);
            let _ = PathTemplate::parse(&path);
        }
    }
}
