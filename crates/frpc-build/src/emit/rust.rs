//! Small pieces of Rust code, and code formatting.

use proc_macro2::TokenStream;
use quote::quote;
use syn::File;

/// Parses Rust code assembled as text: an identifier, a path, a type or a number.
pub(super) fn tokens(text: &str) -> TokenStream {
    text.parse().expect("names are converted to Rust, and extern paths are checked")
}

/// Returns a number with underscores between thousands.
pub(super) fn number(number: i64) -> TokenStream {
    let digits = number.unsigned_abs().to_string();
    let mut text = if number < 0 { "-".to_owned() } else { String::new() };
    for (index, digit) in digits.char_indices() {
        if index > 0 && digits.len() > 4 && (digits.len() - index).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    tokens(&text)
}

/// Returns a fingerprint in hexadecimal, with underscores between groups of digits.
pub(super) fn fingerprint(fingerprint: u128) -> TokenStream {
    let digits = format!("{fingerprint:032x}");
    let groups: Vec<_> = (0..digits.len()).step_by(4).map(|start| &digits[start..start + 4]).collect();
    tokens(&format!("0x{}", groups.join("_")))
}

/// Returns a doc comment with this line.
pub(super) fn doc(text: &str) -> TokenStream {
    let text = format!(" {text}");
    quote! { #[doc = #text] }
}

/// Formats a file, with an empty line between items.
pub(super) fn formatted(file: &File) -> String {
    let code = prettyplease::unparse(file);
    let mut spaced = String::with_capacity(code.len());
    let mut last = "";
    for line in code.lines() {
        let this = line.trim_start();
        let is_first = last.is_empty() || last.ends_with('{');
        let is_one_of_many = last.ends_with(',') || (is_const(last) && last.ends_with(';') && is_const(this));
        if is_item(this) && !(is_first || is_one_of_many || is_head(last)) {
            spaced.push('\n');
        }
        spaced.push_str(line);
        spaced.push('\n');
        last = this;
    }
    spaced
}

fn is_item(line: &str) -> bool {
    ["///", "#[", "pub ", "impl", "fn ", "async fn ", "const "].iter().any(|start| line.starts_with(start))
}

/// Returns `true` if a line belongs to the item after it: a doc comment or an attribute.
fn is_head(line: &str) -> bool {
    line.starts_with("///") || line.starts_with("#[") || line == ")]"
}

fn is_const(line: &str) -> bool {
    line.starts_with("const ") || line.starts_with("pub const ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_numbers_have_underscores() {
        let numbers = [0, -1, 9999, 10_000, -2_147_483_648, 4_294_967_295].map(|of| number(of).to_string());
        assert_eq!(numbers, ["0", "- 1", "9999", "10_000", "- 2_147_483_648", "4_294_967_295"]);
    }
}
