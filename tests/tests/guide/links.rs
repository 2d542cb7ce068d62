//! Links between pages, and to files of the repository.

use std::{collections::BTreeSet, fs, path::Path};

use regex::Regex;

use crate::{
    ROOT,
    pages::{paths, read},
};

#[test]
fn links_lead_to_files_and_headings() {
    let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let mut broken = Vec::new();
    for path in paths() {
        for (_, [target]) in link.captures_iter(&prose(&read(&path))).map(|found| found.extract()) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, heading) =
                target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
            let file = match file {
                "" => path.clone(),
                file => format!("{}/{file}", Path::new(&path).parent().unwrap().display()),
            };
            let is_found = match heading {
                Some(heading) if file.ends_with(".md") => headings(&read(&file)).contains(heading),
                _ => fs::exists(format!("{ROOT}/{file}")).unwrap(),
            };
            if !is_found {
                broken.push(format!("{path}: {target}"));
            }
        }
    }
    assert!(broken.is_empty(), "links to nothing:\n{}", broken.join("\n"));
}

/// Returns a page without blocks and pieces of code.
fn prose(page: &str) -> String {
    let mut is_code = false;
    let lines = page.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    Regex::new("`[^`\n]*`").unwrap().replace_all(&lines.collect::<Vec<_>>().join("\n"), "").into_owned()
}

/// Returns the anchors of the headings of a page, as GitHub and mdBook make them.
fn headings(page: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let lines = page.lines().filter(|line| {
        is_code ^= line.starts_with("```");
        !is_code && line.starts_with('#')
    });
    let anchor = |line: &str| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'));
        kept.map(|char| if char == ' ' { '-' } else { char }).collect()
    };
    lines.map(anchor).collect()
}

#[test]
fn anchors_are_made_of_headings() {
    let page = "# Tests, without a `socket`\n```sh\n# no heading\n```\n### 2. Packets\n";
    assert_eq!(headings(page), BTreeSet::from(["tests-without-a-socket".to_owned(), "2-packets".to_owned()]));
    assert_eq!(prose("[a](b) `[c](d)`\n```\n[e](f)\n```"), "[a](b) ");
}
