//! Coloured JSON.

use crate::terminal::OutputStyle;

/// Colours names and strings in well-formed JSON.
pub(crate) fn json(text: &str, style: OutputStyle) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let mut rest = text;
    while let Some(start) = rest.find('"') {
        out.push_str(&rest[..start]);
        let end = start + 1 + end_of_text(&rest[start + 1..]);
        let (literal, behind) = (&rest[start..end], &rest[end..]);
        let is_name = behind.trim_start().starts_with(':');
        out.push_str(&if is_name { style.cyan(literal) } else { style.green(literal) });
        rest = behind;
    }
    out.push_str(rest);
    out
}

/// Returns the length of a string including its closing quote.
fn end_of_text(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_not_coloured_without_a_terminal() {
        let text = r#"{"a": "b\"c\\", "d": [1, "e:"], "f": ""}"#;
        assert_eq!(json(text, OutputStyle::of_stdout()), text);
        assert_eq!(end_of_text(r#"b\"c\\", "#), 7);
    }
}
