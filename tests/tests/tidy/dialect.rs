//! A budget for turns of phrase that make prose hard to read, per crate and page.
//!
//! The figures are occurrences per 1,000 words of comments or of a page, and the percentage of types with a name of one
//! word. [`ANCHORS`] holds the figures of well-kept crates of our field. A place within them passes. `dialect.txt` lists
//! the budgets of other places, and a budget only falls: the test lowers it and then asks for a commit of the file.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use regex::Regex;

use crate::{ROOT, sources};

const PATTERNS: [&str; 6] = [
    r"(?-u:\b)(that|which|whose|whom)(?-u:\b)",
    r"(?-u:\b)[Ww]hat (is|was|are|were|has|had|it|they|this|the|a|comes|came|waits|goes|one|each|others|there|may|can|no|nobody|only)(?-u:\b)",
    r"(?-u:\b)([Tt]hose|[Oo]thers|[Nn]obody|[Ww]hoever|[Ee]verybody|[Ss]omebody|anybody|[Ww]ho)(?-u:\b)",
    r"(?-u:\b)(behind|beside|besides|ahead of|in front of)(?-u:\b)",
    r"(?-u:\b)as (far|long|soon|good|much|many) as(?-u:\b)",
    r"(?-u:\b)(at once|by (itself|themselves|oneself)|all the same|in any case|on (its|their|this|that|one) (own )?side|of (its|one's|yours|their) own)(?-u:\b)",
];

/// The highest figures among quinn, h2, tonic, rustls, async-nats and connect-rust.
const ANCHORS: Figures = [17.0, 0.4, 0.7, 0.4, 0.3, 0.2, 52.0];

/// One figure per pattern, then the share of types with a name of one word.
type Figures = [f64; PATTERNS.len() + 1];

/// A figure lowers its budget if it is below by more than this, or within the anchors.
const SLACK: f64 = 1.0;

#[test]
fn prose_stays_within_its_budget() {
    let file = Path::new(ROOT).join("tests/tests/tidy/dialect.txt");
    let text = fs::read_to_string(&file).expect("the budget is checked in");
    let budget = parse(&text);
    let measured = measure();
    let (mut lowered, mut offences) = (BTreeMap::new(), Vec::new());
    for (place, figures) in measured {
        let allowed = budget.get(&place).copied().unwrap_or(ANCHORS);
        let mut next = allowed;
        for (i, &figure) in figures.iter().enumerate() {
            if figure > allowed[i] {
                offences
                    .push(format!("{place}: {figure:.1} where {:.1} are allowed, of all: {figures:.1?}", allowed[i]));
            } else if allowed[i] - figure > SLACK || figure <= ANCHORS[i] {
                next[i] = figure.max(ANCHORS[i]);
            }
        }
        if next != ANCHORS {
            lowered.insert(place, next);
        }
    }
    assert!(offences.is_empty(), "prose that is harder to read than before:\n{}", offences.join("\n"));
    let lowered = print(&lowered);
    if lowered != text {
        fs::write(&file, lowered).expect("the budget can be written");
        panic!("figures have fallen: commit {}", file.display());
    }
}

/// Returns the figures of each crate and page.
fn measure() -> BTreeMap<String, Figures> {
    let mut texts = BTreeMap::<String, Vec<(String, bool)>>::new();
    for path in sources() {
        let is_page = is_page(&path);
        let place = match path.strip_prefix("crates/").and_then(|below| below.split_once("/src/")) {
            Some((krate, file)) if file.ends_with(".rs") && !is_skipped(file) => format!("crates/{krate}/src"),
            _ if is_page => path.clone(),
            _ => continue,
        };
        let text = fs::read_to_string(Path::new(ROOT).join(&path)).unwrap_or_default();
        texts.entry(place).or_default().push((text, is_page));
    }
    let patterns = PATTERNS.map(|pattern| Regex::new(pattern).expect("patterns are valid"));
    texts.into_iter().map(|(place, texts)| (place, figures(&patterns, &texts))).collect()
}

fn is_page(path: &str) -> bool {
    let is_ours = path.starts_with("docs/") && !path.starts_with("docs/notes/") || !path.contains('/');
    is_ours && path.ends_with(".md")
}

/// Tests and generated code are not counted.
fn is_skipped(file: &str) -> bool {
    let is_test = |name: &str| matches!(name, "test" | "tests" | "fixtures" | "generated" | "golden");
    file.strip_suffix(".rs")
        .unwrap_or(file)
        .split('/')
        .any(|name| is_test(name) || name.ends_with("_test") || name.ends_with("_tests"))
}

fn figures(patterns: &[Regex; PATTERNS.len()], texts: &[(String, bool)]) -> Figures {
    let prose: Vec<_> =
        texts.iter().map(|(text, is_page)| if *is_page { page(text) } else { comments(text) }).collect();
    let prose = prose.join(" ");
    let words = prose.split_whitespace().count().max(1) as f64;
    let mut figures = [0.0; PATTERNS.len() + 1];
    for (figure, pattern) in figures.iter_mut().zip(patterns) {
        *figure = rounded_up(1000.0 * pattern.find_iter(&prose).count() as f64 / words);
    }
    let types: Vec<_> = texts.iter().filter(|(_, is_page)| !is_page).flat_map(|(text, _)| type_names(text)).collect();
    let of_one_word = types.iter().filter(|name| words_of(name) <= 1).count();
    figures[PATTERNS.len()] = rounded_up(100.0 * of_one_word as f64 / types.len().max(1) as f64);
    figures
}

fn rounded_up(figure: f64) -> f64 {
    (figure * 10.0).ceil() / 10.0
}

/// Returns the text of comments, without code blocks. Comments on neighbouring lines join to one text.
fn comments(text: &str) -> String {
    let (mut out, mut in_code) = (String::new(), false);
    for line in text.lines() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            in_code = false;
            continue;
        };
        let comment = comment.strip_prefix(['/', '!']).unwrap_or(comment);
        if comment.trim().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            out.push_str(comment);
            out.push(' ');
        }
    }
    out
}

/// Returns the prose of a page, without code blocks and tables.
fn page(text: &str) -> String {
    let mut in_code = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence && !line.trim_start().starts_with('|')
    });
    lines.collect::<Vec<_>>().join(" ")
}

fn type_names(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let line = line.trim_start();
        let line = match line.strip_prefix("pub") {
            Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
            Some(rest) => rest.trim_start(),
            None => line,
        };
        let (keyword, rest) = line.split_once(' ')?;
        let is_type = ["struct", "enum", "trait", "union"].contains(&keyword);
        let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
        (is_type && name.starts_with(|c: char| c.is_ascii_uppercase())).then_some(name)
    })
}

fn words_of(name: &str) -> usize {
    name.chars().filter(char::is_ascii_uppercase).count()
}

fn parse(text: &str) -> BTreeMap<String, Figures> {
    let line = |line: &str| {
        let (place, figures) = line.split_once(' ')?;
        let figures: Vec<f64> =
            figures.split_whitespace().map(|figure| figure.parse().expect("figures are numbers")).collect();
        Some((place.to_owned(), figures.try_into().expect("a figure for each pattern and one for types")))
    };
    text.lines().filter(|text| !text.starts_with('#')).filter_map(line).collect()
}

fn print(budget: &BTreeMap<String, Figures>) -> String {
    let mut text =
        "# that/which, what is, those/nobody, behind/beside, as far as, at once, types of one word (%)\n".to_owned();
    for (place, figures) in budget {
        let figures: String = figures.iter().map(|figure| format!(" {figure:5.1}")).collect();
        writeln!(text, "{place:32}{figures}").expect("a string takes everything");
    }
    text
}

#[test]
fn patterns_are_counted_only_in_comments() {
    let patterns = PATTERNS.map(|pattern| Regex::new(pattern).unwrap());
    let text = "/// The one that waits, what is left, those behind it, as far as at once.\nstruct One;\nfn that() {}\n";
    let counted = figures(&patterns, &[(text.to_owned(), false)]);
    assert!(counted.iter().all(|figure| *figure > 0.0), "{counted:?}");
    let code = "/// ```\n/// // that\n/// ```\nfn which() {}\nstruct TwoWords;\n";
    assert_eq!(figures(&patterns, &[(code.to_owned(), false)]), [0.0; PATTERNS.len() + 1]);
    let table = "| that | which |\n```\nthose\n```\n";
    assert_eq!(figures(&patterns, &[(table.to_owned(), true)]), [0.0; PATTERNS.len() + 1]);
}
