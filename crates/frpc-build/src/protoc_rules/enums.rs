//! Conflicts between enum values without their prefix. Languages other than C++ remove the enum name from the names of
//! its values.

use std::collections::HashMap;

use prost_types::EnumDescriptorProto;

/// Returns the indexes of values with conflicting names after the removal of the prefix, each with the index of the
/// other value.
pub(super) fn clashes(declared: &EnumDescriptorProto) -> Vec<(usize, usize)> {
    let prefix: String = declared.name().chars().filter(|&char| char != '_').map(lower).collect();
    let mut first = HashMap::new();
    let mut found = Vec::new();
    for (index, value) in declared.value.iter().enumerate() {
        let at = *first.entry(pascal_case(without(&prefix, value.name()))).or_insert(index);
        let other = &declared.value[at];
        // Aliases may conflict.
        if other.name() != value.name() && other.number() != value.number() {
            found.push((index, at));
        }
    }
    found
}

/// Removes the prefix from a name, ignoring case and underscores. Returns the name unchanged if nothing would be left.
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
