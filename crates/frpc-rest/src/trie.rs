//! The search for the template of a path.
//!
//! The segments of all templates form a tree. For each verb that fits, a search visits a node once, and a node after `**`
//! once for each length of the segments after it. So its cost depends on the templates that match the start of a path, and
//! not on the number of routes.

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
    /// The largest number of segments after `**`, if a template has one.
    tail_max: Option<usize>,
}

#[derive(Clone, Debug, Default)]
struct TrieNode {
    literals: HashMap<u32, usize>,
    one: Option<usize>,
    /// The node after `**`.
    rest: Option<usize>,
    /// The routes that end here.
    here: VerbRoutes,
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
        let segments = self.0.get(template.value_range(variable, self.0.len()))?;
        match segments {
            [one] if !template.is_deep(variable) => template::decode(one),
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
            tail_max: None,
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
        for (index, segment) in template.segments.iter().enumerate() {
            let fresh = self.nodes.len();
            let next = match segment {
                TemplateSegment::Literal(text) => {
                    let literal = number(&mut self.literals, text);
                    *self.nodes[node].literals.entry(literal).or_insert(fresh)
                }
                TemplateSegment::One => *self.nodes[node].one.get_or_insert(fresh),
                TemplateSegment::Rest => {
                    self.tail_max = self.tail_max.max(Some(template.segments.len() - index - 1));
                    *self.nodes[node].rest.get_or_insert(fresh)
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
        let routes = self.nodes[node].here.entry(verb).or_default();
        if let Some(other) = routes.iter().find(|other| other.http_method == http_method) {
            return Err(other.route);
        }
        routes.push(MethodRoute { http_method: http_method.to_owned(), route });
        Ok(())
    }

    pub(crate) fn find<'t, 'p>(&'t self, http_method: &str, path: &'p str) -> PathMatch<'t, 'p> {
        let Some(rest) = path.strip_prefix('/') else { return PathMatch::NotFound };
        if self.tail_max.is_none() && rest.split('/').take(self.depth + 1).count() > self.depth.max(1) {
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
        below.or_else(|| {
            let (rest, tail_max) = (node.rest?, trie.tail_max?);
            let end = self.segments.len();
            // More segments after `**` are more specific.
            (end.saturating_sub(tail_max).max(at)..=end).find_map(|tail| self.run(rest, tail))
        })
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
        fn fits(segments: &[TemplateSegment], path: &[&str]) -> bool {
            match (segments, path) {
                ([], []) => true,
                ([TemplateSegment::Rest, rest @ ..], path) => (0..=path.len()).any(|at| fits(rest, &path[at..])),
                ([TemplateSegment::One, rest @ ..], [_, path @ ..]) => fits(rest, path),
                ([TemplateSegment::Literal(text), rest @ ..], [segment, path @ ..]) => {
                    text == segment && fits(rest, path)
                }
                _ => false,
            }
        }
        template.verb() == verb && fits(&template.segments, path)
    }

    /// Returns a value that is greater for templates that are more specific.
    fn precedence(template: &PathTemplate) -> Vec<usize> {
        let len = template.segments.len();
        let segments = template.segments.iter().enumerate().flat_map(|(index, segment)| match segment {
            TemplateSegment::Literal(_) => vec![3],
            TemplateSegment::One => vec![2],
            TemplateSegment::Rest => vec![0, len - index],
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
        let segment = select(vec!["a", "b", "*", "{x}", "{y=a/*}", "{z=*/b}", "**", "{w=**}", "{v=a/**/b}"]);
        let verb = select(vec!["", "", ":v", ":v:w", ":w"]);
        (prop::collection::vec(segment, 0..4), verb).prop_filter_map("an invalid template", |(segments, verb)| {
            PathTemplate::parse(&format!("/{}{verb}", segments.join("/"))).ok()
        })
    }

    fn path() -> impl Strategy<Value = String> {
        let segment = select(vec!["a", "b", "c", "", "a:v", "c:v:w", ":w", "b:w:v"]);
        prop::collection::vec(segment, 0..5).prop_map(|segments| format!("/{}", segments.join("/")))
    }

    #[test]
    fn segments_after_any_number_are_matched_from_the_end() {
        let values = |text: &str, path: &str| {
            let (mut trie, template) = (PathTrie::default(), PathTemplate::parse(text).unwrap());
            trie.insert("GET", &template, 0).unwrap();
            let PathMatch::Found { segments, .. } = trie.find("GET", path) else { return None };
            template.variables.iter().map(|variable| segments.value(variable, &template)).collect::<Option<Vec<_>>>()
        };
        let documents = "/v1/{parent=db/*/docs/**}/{id}:list";
        for (path, expected) in [
            ("/v1/db/1/docs/7:list", Some(["db/1/docs", "7"])),
            ("/v1/db/1/docs/a%2Fb/c/x%20y:list", Some(["db/1/docs/a%2Fb/c", "x y"])),
            ("/v1/db/1/docs:list", None),
            ("/v1/db/1/docs/a/b", None),
        ] {
            assert_eq!(values(documents, path), expected.map(|values| values.map(str::to_owned).to_vec()), "{path}");
        }
        assert_eq!(values("/{a=**}/b/{c}", "/b/b/b"), Some(vec!["b".to_owned(), "b".to_owned()]));
        assert_eq!(values("/{a=**}/b/{c}", "/b/1"), Some(vec![String::new(), "1".to_owned()]));
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
            for (index, text) in ["/a/{x}", "/{y=**}:v", "/b/*/c", "/b/{z=**}/{x}"].iter().enumerate() {
                trie.insert("GET", &PathTemplate::parse(text).unwrap(), index).unwrap();
            }
            trie.find("GET", &path);
            let _ = PathTemplate::parse(&path);
        }
    }
}
