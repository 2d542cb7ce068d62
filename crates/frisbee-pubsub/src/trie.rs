//! A map from patterns to values, searched by subject. The cost of a search grows with the number of pattern shapes. It
//! does not grow with the number of patterns, nor with patterns unrelated to the subject.

use std::collections::{HashMap, hash_map::Entry};

use crate::Pattern;

/// A trie of patterns with their values. Patterns without values use no memory.
///
/// Each node stands for the tokens on the path from the root, so the trie is as deep as the longest pattern. From each
/// node a search visits at most two children: the child of the next token and the child of `*`. All nodes visited on
/// one level belong to different shapes. A search therefore visits at most one node per shape on each level.
#[derive(Debug)]
pub(crate) struct PatternTrie<T> {
    root: TrieNode<T>,
    shapes: PatternShapes,
}

/// Number of patterns by shape, where a shape is the set of positions with a `*`. Patterns without `*` are not counted.
#[derive(Debug, Default)]
pub(crate) struct PatternShapes(HashMap<u16, usize>);

impl PatternShapes {
    /// Returns `true` if adding this pattern leaves at most `shapes_max` shapes.
    pub(crate) fn has_room(&self, pattern: &Pattern, shapes_max: usize) -> bool {
        let shape = shape(pattern);
        shape == 0 || self.0.len() < shapes_max || self.0.contains_key(&shape)
    }

    pub(crate) fn add(&mut self, pattern: &Pattern) {
        match shape(pattern) {
            0 => {}
            shape => *self.0.entry(shape).or_default() += 1,
        }
    }

    /// Subtracts `count` patterns of this shape.
    pub(crate) fn remove(&mut self, pattern: &Pattern, count: usize) {
        if let Entry::Occupied(mut there) = self.0.entry(shape(pattern)) {
            *there.get_mut() -= count;
            if *there.get() == 0 {
                there.remove();
            }
        }
    }
}

/// Returns the positions of `*` in a pattern as a bit set.
fn shape(pattern: &Pattern) -> u16 {
    let bit = |(place, token): (usize, &str)| u16::from(token == "*") << place;
    pattern.tokens().enumerate().map(bit).fold(0, |shape, bit| shape | bit)
}

#[derive(Debug)]
struct TrieNode<T> {
    tokens: HashMap<Box<str>, TrieNode<T>>,
    star: Option<Box<TrieNode<T>>>,
    /// Values of the pattern that ends at this node.
    here: Vec<T>,
    /// Values of the pattern that continues with a final `>`.
    rest: Vec<T>,
}

impl<T> PatternTrie<T> {
    /// Returns the shapes of the stored patterns.
    pub(crate) fn shapes(&self) -> &PatternShapes {
        &self.shapes
    }

    /// Adds a value under a pattern, after the existing ones.
    pub(crate) fn insert(&mut self, pattern: &Pattern, value: T) {
        self.shapes.add(pattern);
        let mut node = &mut self.root;
        for token in pattern.tokens() {
            node = match token {
                ">" => {
                    node.rest.push(value);
                    return;
                }
                "*" => node.star.get_or_insert_default(),
                // Look up first: `entry` would allocate an owned key even for an existing token.
                token if node.tokens.contains_key(token) => node.tokens.get_mut(token).expect("the key exists"),
                token => node.tokens.entry(token.into()).or_default(),
            };
        }
        node.here.push(value);
    }

    /// Removes the values under a pattern for which `is_it` returns `true`. Returns their number.
    pub(crate) fn remove(&mut self, pattern: &Pattern, mut is_it: impl FnMut(&T) -> bool) -> usize {
        let tokens: Vec<_> = pattern.tokens().collect();
        let removed = self.root.remove(&tokens, &mut is_it);
        self.shapes.remove(pattern, removed);
        removed
    }

    /// Returns the first value under exactly this pattern for which `is_it` returns `true`.
    pub(crate) fn find(&self, pattern: &Pattern, mut is_it: impl FnMut(&T) -> bool) -> Option<&T> {
        let mut node = &self.root;
        for token in pattern.tokens() {
            node = match token {
                ">" => return node.rest.iter().find(|value| is_it(value)),
                "*" => node.star.as_deref()?,
                token => node.tokens.get(token)?,
            };
        }
        node.here.iter().find(|value| is_it(value))
    }

    /// Calls `found` with every value of every matching pattern. Returns the number of visited nodes.
    pub(crate) fn matching<'a>(&'a self, subject: &str, found: &mut impl FnMut(&'a T)) -> usize {
        self.root.matching(Some(subject), found)
    }
}

impl<T> TrieNode<T> {
    fn matching<'a>(&'a self, left: Option<&str>, found: &mut impl FnMut(&'a T)) -> usize {
        let Some(left) = left else {
            self.here.iter().for_each(found);
            return 1;
        };
        self.rest.iter().for_each(&mut *found);
        let (token, left) = match left.split_once('.') {
            Some((token, left)) => (token, Some(left)),
            None => (left, None),
        };
        let [token, star] = [self.tokens.get(token), self.star.as_deref()];
        let token = token.map_or(0, |node| node.matching(left, found));
        let star = star.map_or(0, |node| node.matching(left, found));
        1 + token + star
    }

    fn remove(&mut self, tokens: &[&str], is_it: &mut impl FnMut(&T) -> bool) -> usize {
        let mut drop_from = |values: &mut Vec<T>| {
            let before = values.len();
            values.retain(|value| !is_it(value));
            before - values.len()
        };
        match tokens {
            [] => drop_from(&mut self.here),
            [">"] => drop_from(&mut self.rest),
            ["*", left @ ..] => {
                let Some(node) = &mut self.star else { return 0 };
                let removed = node.remove(left, is_it);
                // Prune empty nodes, so removed patterns leave no memory behind.
                self.star.take_if(|node| node.is_empty());
                removed
            }
            [token, left @ ..] => {
                let Some(node) = self.tokens.get_mut(*token) else { return 0 };
                let removed = node.remove(left, is_it);
                if node.is_empty() {
                    self.tokens.remove(*token);
                }
                removed
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.star.is_none() && self.here.is_empty() && self.rest.is_empty()
    }
}

impl<T> Default for PatternTrie<T> {
    fn default() -> Self {
        Self { root: TrieNode::default(), shapes: PatternShapes::default() }
    }
}

impl<T> Default for TrieNode<T> {
    fn default() -> Self {
        Self { tokens: HashMap::new(), star: None, here: Vec::new(), rest: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::Subject;

    fn found(trie: &PatternTrie<usize>, subject: &str) -> Vec<usize> {
        let mut values = Vec::new();
        trie.matching(subject, &mut |value| values.push(*value));
        values.sort_unstable();
        values
    }

    /// Uses an alphabet of three tokens, so patterns and subjects often match.
    fn tokens(wild: bool) -> impl Strategy<Value = String> {
        let token = if wild { "a|b|c|\\*" } else { "a|b|c" };
        let tokens = vec(token, 1..5).prop_map(|tokens| tokens.join("."));
        (tokens, any::<bool>()).prop_map(move |(tokens, open)| if wild && open { tokens + ".>" } else { tokens })
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(String),
        Remove(usize),
        Look(String),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => tokens(true).prop_map(Step::Insert),
            1 => Just(Step::Insert(">".into())),
            2 => any::<usize>().prop_map(Step::Remove),
            4 => tokens(false).prop_map(Step::Look),
        ]
    }

    proptest! {
        #[test]
        fn trie_matches_like_a_linear_search(steps in vec(step(), 1..80)) {
            let mut trie = PatternTrie::default();
            let mut naive: Vec<(Pattern, usize)> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Insert(text) => {
                        let pattern = Pattern::new(&text).expect("it consists of valid tokens");
                        trie.insert(&pattern, number);
                        naive.push((pattern, number));
                    }
                    Step::Remove(_) if naive.is_empty() => {}
                    Step::Remove(index) => {
                        let (pattern, number) = naive.swap_remove(index % naive.len());
                        prop_assert_eq!(trie.find(&pattern, |value| *value == number), Some(&number));
                        prop_assert_eq!(trie.remove(&pattern, |value| *value == number), 1);
                        prop_assert_eq!(trie.find(&pattern, |value| *value == number), None);
                    }
                    Step::Look(subject) => {
                        prop_assert_eq!(Subject::check(&subject), Ok(()));
                        let mut expected: Vec<_> =
                            naive.iter().filter(|(pattern, _)| pattern.matches(&subject)).map(|(_, number)| *number).collect();
                        expected.sort_unstable();
                        prop_assert_eq!(found(&trie, &subject), expected);
                    }
                }
            }
            for (pattern, number) in naive {
                trie.remove(&pattern, |value| *value == number);
            }
            prop_assert!(trie.root.is_empty() && trie.shapes.0.is_empty(), "nothing is left of what was removed");
        }
    }

    #[test]
    fn hostile_patterns_bound_the_visited_nodes() {
        let (mut trie, mut count) = (PatternTrie::default(), 0);
        for number in 0..1 << 15 {
            let tokens: Vec<_> = (0..15).map(|place| if number >> place & 1 == 1 { "*" } else { "a" }).collect();
            let pattern = Pattern::new(&(tokens.join(".") + ".z")).expect("it is good");
            if trie.shapes().has_room(&pattern, 100) {
                trie.insert(&pattern, number);
                count += 1;
            }
        }
        assert_eq!(count, 101, "one of them has no star");
        let subject = format!("a{}", ".a".repeat(15));
        let visited = trie.matching(&subject, &mut |_| panic!("nothing stands for it"));
        assert!((100..16 * 101).contains(&visited), "{visited} nodes");
    }

    #[test]
    fn unrelated_patterns_are_not_visited() {
        let mut trie = PatternTrie::default();
        for number in 0..100_000 {
            trie.insert(&Pattern::new(&format!("other.{number}.*.>")).expect("it is good"), number);
        }
        trie.insert(&Pattern::new("orders.*").expect("it is good"), 7);
        let mut visited = 0;
        trie.matching("orders.eu", &mut |_| visited += 1);
        assert_eq!((visited, found(&trie, "other.5.x.y"), found(&trie, "orders.eu")), (1, vec![5], vec![7]));
    }
}
