//! Suggestions for misspelled names.

/// Returns up to three names similar to `wrong`, the most similar first.
pub(crate) fn closest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let last = |name: &'a str| name.rsplit(['.', '/']).next().unwrap_or(name);
    let wrong_last = wrong.rsplit(['.', '/']).next().unwrap_or(wrong).to_lowercase();
    let mut found: Vec<(usize, &str)> = names
        .into_iter()
        .filter_map(|name| {
            let apart = distance(&wrong_last, &last(name).to_lowercase()).min(distance(wrong, name));
            let is_part = !wrong_last.is_empty() && last(name).to_lowercase().contains(&wrong_last);
            let apart = if is_part { apart.min(1) } else { apart };
            (apart <= 1 + wrong_last.chars().count() / 4).then_some((apart, name))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, name)| name).take(3).collect()
}

/// Returns similar names as advice, if there are any.
pub(crate) fn probably<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let found = closest(wrong, names);
    (!found.is_empty()).then(|| found.join(" or "))
}

/// Returns the edit distance: the number of inserted, removed, replaced, and swapped adjacent characters.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for i in 1..=one.len() {
        let mut next = vec![i];
        for j in 1..=other.len() {
            let replaced = row[j - 1] + usize::from(one[i - 1] != other[j - 1]);
            let mut least = replaced.min(row[j] + 1).min(next[j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_names_are_suggested() {
        let names = ["shop.Orders/Create", "shop.Orders/Cancel", "shop.Orders/List"];
        assert_eq!(closest("shop.Orders/Craete", names), ["shop.Orders/Create"]);
        assert_eq!(closest("creat", names), ["shop.Orders/Create"]);
        assert_eq!(closest("list", names), ["shop.Orders/List"]);
        assert!(closest("Destroy", names).is_empty());
    }

    #[test]
    fn edit_distance_counts_letters() {
        for (one, other, apart) in [("", "", 0), ("a", "", 1), ("ab", "ba", 1), ("kitten", "sitting", 3)] {
            assert_eq!(distance(one, other), apart);
            assert_eq!(distance(other, one), apart);
        }
    }
}
