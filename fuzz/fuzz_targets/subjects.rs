//! Matches any texts as subjects and patterns. The result equals a comparison with each pattern, and invalid subjects
//! are rejected.
#![no_main]

use arbitrary::Arbitrary;
use frisbee_fuzz::fuzz_target;
use frisbee_pubsub::{Pattern, SUBJECT_LEN_MAX, Subject, fuzzing::Patterns};

#[derive(Arbitrary, Debug)]
enum Step<'a> {
    Insert(Text<'a>),
    Remove(u8),
    Look(Text<'a>),
}

#[derive(Arbitrary, Debug)]
enum Text<'a> {
    Any(&'a str),
    /// A text of only a few distinct tokens, so patterns often match subjects.
    Tokens(Vec<Token>),
}

#[derive(Arbitrary, Debug)]
enum Token {
    A,
    B,
    Star,
    Rest,
}

impl Text<'_> {
    fn text(&self) -> String {
        match self {
            Self::Any(text) => (*text).to_owned(),
            Self::Tokens(tokens) => {
                let token = |token: &Token| match token {
                    Token::A => "a",
                    Token::B => "b",
                    Token::Star => "*",
                    Token::Rest => ">",
                };
                tokens.iter().map(token).collect::<Vec<_>>().join(".")
            }
        }
    }
}

fuzz_target!(|steps: Vec<Step<'_>>| {
    let (mut patterns, mut naive) = (Patterns::default(), Vec::<(Pattern, usize)>::new());
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Insert(text) => {
                if let Ok(pattern) = Pattern::new(&text.text()) {
                    assert!(pattern.len() <= SUBJECT_LEN_MAX);
                    patterns.insert(&pattern, number);
                    naive.push((pattern, number));
                }
            }
            Step::Remove(index) if !naive.is_empty() => {
                let (pattern, number) = naive.swap_remove(usize::from(*index) % naive.len());
                assert_eq!(patterns.remove(&pattern, number), 1);
            }
            Step::Remove(_) => {}
            Step::Look(text) => {
                let text = text.text();
                if Subject::check(&text).is_err() {
                    continue;
                }
                assert!(Pattern::new(&text).expect("every subject is a pattern").matches(&text));
                let is_for = |(pattern, number): &(Pattern, usize)| pattern.matches(&text).then_some(*number);
                let mut expected: Vec<_> = naive.iter().filter_map(is_for).collect();
                expected.sort_unstable();
                assert_eq!(patterns.matching(&text), expected);
            }
        }
    }
});
