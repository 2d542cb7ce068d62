//! Doc comments in attributes.

use syn::{Attribute, Expr, Lit, Meta, MetaNameValue};

/// Returns the doc comment among `attributes`.
pub(crate) fn docs(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| {
        let Meta::NameValue(MetaNameValue { path, value: Expr::Lit(literal), .. }) = &attribute.meta else {
            return None;
        };
        let Lit::Str(text) = &literal.lit else { return None };
        path.is_ident("doc").then(|| text.value())
    });
    let lines: Vec<String> =
        lines.map(|line| line.trim_end().strip_prefix(' ').unwrap_or(line.trim_end()).to_owned()).collect();
    lines.join("\n").trim().to_owned()
}
