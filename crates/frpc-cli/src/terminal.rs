//! Terminal output: lines, colours, and escaping of control characters in texts of peers.

use std::{
    env, fmt,
    io::{self, IsTerminal, Write, stderr, stdout},
};

/// A failure to write to standard output. Its reader may have closed it, such as `head` in `frpc … | head`.
#[derive(Debug)]
pub(crate) struct OutputError(pub(crate) io::Error);

/// Writes a line to standard output.
pub(crate) fn print_line(line: impl fmt::Display) -> Result<(), OutputError> {
    writeln!(stdout(), "{line}").map_err(OutputError)
}

/// Writes well-formed JSON of one or more lines to standard output.
pub(crate) fn print_json(json: impl fmt::Display) -> Result<(), OutputError> {
    print_line(printable_json(&json.to_string()))
}

/// Writes raw bytes to standard output.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), OutputError> {
    let mut out = stdout();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(OutputError)
}

/// Writes a line to standard error, ignoring failures.
pub(crate) fn print_error(line: impl fmt::Display) {
    // A failure cannot be reported anywhere else.
    let _ = writeln!(stderr(), "{line}");
}

/// Writes a note to standard error. It may contain texts of peers.
pub(crate) fn print_note(text: &str) {
    print_error(format_args!("{}: {}", OutputStyle::of_stderr().dim("note"), printable(text)));
}

/// Escapes control characters in a text of a peer, except line breaks and tabs.
pub(crate) fn printable(text: &str) -> String {
    escaped(text, |char| is_control(char) && !matches!(char, '\n' | '\t'))
}

/// Escapes all control characters in a name chosen by a peer. The result is a single line.
pub(crate) fn printable_name(text: &str) -> String {
    escaped(text, is_control)
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match is_escaped(char) {
            true => out.extend(char.escape_unicode()),
            false => out.push(char),
        }
    }
    out
}

/// Escapes control characters in JSON without changing its meaning. They only occur in strings, which allow escapes.
pub(crate) fn printable_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for char in json.chars() {
        if is_control(char) && !matches!(char, '\n' | '\r' | '\t') {
            let mut units = [0; 2];
            for unit in char.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(char);
        }
    }
    out
}

/// Returns `true` for control characters, and for invisible format characters (`Cf`) that reorder or hide text. Joiners
/// of scripts and emoji are allowed.
fn is_control(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

/// The colours of an output. There are none unless it is a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputStyle {
    has_colours: bool,
}

impl OutputStyle {
    pub(crate) fn of_stdout() -> Self {
        Self::of(stdout().is_terminal())
    }

    pub(crate) fn of_stderr() -> Self {
        Self::of(stderr().is_terminal())
    }

    /// `NO_COLOR` disables colours; see <https://no-color.org>.
    fn of(is_terminal: bool) -> Self {
        let is_wanted = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { has_colours: is_terminal && is_wanted && env::var_os("TERM").is_none_or(|term| term != "dumb") }
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.painted("1;31", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.painted("32", text)
    }

    pub(crate) fn cyan(self, text: &str) -> String {
        self.painted("36", text)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.painted("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.painted("2", text)
    }

    fn painted(self, code: &str, text: &str) -> String {
        if self.has_colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ESC, the one-byte form of CSI, DEL, a direction override, an isolate, a zero-width space, and a tag character.
    const HOSTILE: &str = "a\x1b[2J\u{9b}31m\u{7f}b\u{202e}c\u{2066}d\u{200b}\u{e0041}";

    #[test]
    fn control_characters_in_text_are_escaped() {
        let harmless = r"a\u{1b}[2J\u{9b}31m\u{7f}b\u{202e}c\u{2066}d\u{200b}\u{e0041}";
        assert_eq!(printable(HOSTILE), harmless);
        assert_eq!(printable_name(HOSTILE), harmless);
        assert_eq!(printable("a\tb\nc\rd"), "a\tb\nc\\u{d}d");
        assert_eq!(printable_name("a\tb\nc"), r"a\u{9}b\u{a}c");
    }

    #[test]
    fn control_characters_in_json_are_escaped() {
        let json = serde_json::json!({ "text": HOSTILE, HOSTILE: 1 });
        for text in [json.to_string(), format!("{json:#}")] {
            let printed = printable_json(&text);
            assert!(!printed.chars().any(|char| is_control(char) && char != '\n'), "{printed:?}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&printed).unwrap(), json);
        }
    }

    #[test]
    fn letters_of_any_script_are_kept() {
        let text = "añ字🙂 \u{645}\u{6cc}\u{200c}\u{62e} 👩\u{200d}🚀";
        assert_eq!(printable_name(text), text);
        assert_eq!(printable_json(text), text);
    }
}
