//! Serde's names for fields and variants.

use syn::{LitStr, Result};

/// A value of `rename_all`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RenameRule {
    Lower,
    Upper,
    Pascal,
    Camel,
    Snake,
    ScreamingSnake,
    Kebab,
    ScreamingKebab,
}

impl RenameRule {
    pub(super) fn read(text: &LitStr) -> Result<Self> {
        CASES.iter().find(|(name, _)| *name == text.value()).map(|(_, case)| *case).ok_or_else(|| {
            let names: Vec<&str> = CASES.iter().map(|(name, _)| *name).collect();
            syn::Error::new(text.span(), format!("unknown case: expected one of {}", names.join(", ")))
        })
    }

    /// Converts the name of a field from snake case.
    pub(super) fn of_field(self, name: &str) -> String {
        let capitals = || -> String { name.split('_').map(capital).collect() };
        match self {
            Self::Lower | Self::Snake => name.to_owned(),
            Self::Upper | Self::ScreamingSnake => name.to_ascii_uppercase(),
            Self::Pascal => capitals(),
            Self::Camel => small(&capitals()),
            Self::Kebab => name.replace('_', "-"),
            Self::ScreamingKebab => name.to_ascii_uppercase().replace('_', "-"),
        }
    }

    /// Converts the name of a variant from Pascal case.
    pub(super) fn of_variant(self, name: &str) -> String {
        let snake = || {
            let mut snake = String::new();
            for (index, letter) in name.char_indices() {
                if index > 0 && letter.is_uppercase() {
                    snake.push('_');
                }
                snake.push(letter.to_ascii_lowercase());
            }
            snake
        };
        match self {
            Self::Pascal => name.to_owned(),
            Self::Lower => name.to_ascii_lowercase(),
            Self::Upper => name.to_ascii_uppercase(),
            Self::Camel => small(name),
            _ => self.of_field(&snake()),
        }
    }
}

/// Returns `word` with its first letter in upper case.
fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
}

/// Returns `name` with its first letter in lower case.
fn small(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_ascii_lowercase().to_string() + letters.as_str())
}

const CASES: [(&str, RenameRule); 8] = [
    ("lowercase", RenameRule::Lower),
    ("UPPERCASE", RenameRule::Upper),
    ("PascalCase", RenameRule::Pascal),
    ("camelCase", RenameRule::Camel),
    ("snake_case", RenameRule::Snake),
    ("SCREAMING_SNAKE_CASE", RenameRule::ScreamingSnake),
    ("kebab-case", RenameRule::Kebab),
    ("SCREAMING-KEBAB-CASE", RenameRule::ScreamingKebab),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_serde() {
        let table = [
            ("lowercase", "first_name", "firstname"),
            ("UPPERCASE", "FIRST_NAME", "FIRSTNAME"),
            ("PascalCase", "FirstName", "FirstName"),
            ("camelCase", "firstName", "firstName"),
            ("snake_case", "first_name", "first_name"),
            ("SCREAMING_SNAKE_CASE", "FIRST_NAME", "FIRST_NAME"),
            ("kebab-case", "first-name", "first-name"),
            ("SCREAMING-KEBAB-CASE", "FIRST-NAME", "FIRST-NAME"),
        ];
        for (name, field, variant) in table {
            let case = RenameRule::read(&LitStr::new(name, proc_macro2::Span::call_site())).expect("it is there");
            assert_eq!((case.of_field("first_name"), case.of_variant("FirstName")), (field.into(), variant.into()));
        }
    }
}
