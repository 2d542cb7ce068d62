//! The names of an enum's values without that of the enum in front, which languages other than C++ leave out.

use std::collections::HashMap;

use prost_types::EnumDescriptorProto;

/// Returns the indexes of values that have the name of another one once the name of the enum is left out, each with the other.
pub(super) fn clashes(declared: &EnumDescriptorProto) -> Vec<(usize, usize)> {
    let prefix: String = declared.name().chars().filter(|&char| char != '_').map(lower).collect();
    let mut first = HashMap::new();
    let mut found = Vec::new();
    for (index, value) in declared.value.iter().enumerate() {
        let at = *first.entry(pascal_case(without(&prefix, value.name()))).or_insert(index);
        let other = &declared.value[at];
        // Aliases may be anything.
        if other.name() != value.name() && other.number() != value.number() {
            found.push((index, at));
        }
    }
    found
}

/// Returns a name without the prefix in front, whatever the case of its letters and wherever it has underscores. A name that is
/// nothing but its prefix stays.
fn without<'n>(prefix: &str, name: &'n str) -> &'n str {
    let mut rest = name;
    for char in prefix.chars() {
        match rest.trim_start_matches('_').strip_prefix(|next| lower(next) == char) {
            Some(next) => rest = next,
            None => return name,
        }
    }
    let rest = rest.trim_start_matches('_');
    if rest.is_empty() { name } else { rest }
}

fn pascal_case(name: &str) -> String {
    let words = name.split('_').filter(|word| !word.is_empty());
    words.map(|word| word[..1].to_ascii_uppercase() + &word[1..].to_ascii_lowercase()).collect()
}

fn lower(char: char) -> char {
    char.to_ascii_lowercase()
}
