//! Doc comments in attributes.

use syn::{Attribute, Expr, Lit, Meta};

/// Returns the doc comment among `attributes`.
pub(crate) fn docs(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    let lines: Vec<String> =
        lines.map(|line| line.trim_end().strip_prefix(' ').unwrap_or(line.trim_end()).to_owned()).collect();
    lines.join("\n").trim().to_owned()
}
