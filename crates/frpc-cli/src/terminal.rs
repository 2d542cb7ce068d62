//! Colours, for terminals only.

use std::{
    env,
    io::{IsTerminal, stderr, stdout},
};

/// Returns a text of a peer without the signs that terminals obey.
pub(crate) fn printable(text: &str) -> String {
    let is_harmless = |char: char| !char.is_control() || matches!(char, '\n' | '\t');
    text.chars().map(|char| if is_harmless(char) { char } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// The colours of one output, which has none unless it is a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    has_colours: bool,
}

impl Style {
    pub(crate) fn of_stdout() -> Self {
        Self::of(stdout().is_terminal())
    }

    pub(crate) fn of_stderr() -> Self {
        Self::of(stderr().is_terminal())
    }

    /// `NO_COLOR` is the convention of <https://no-color.org>.
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

    #[test]
    fn a_text_of_a_peer_gives_no_orders_to_a_terminal() {
        assert_eq!(printable("a\x1b[2J\u{9b}31mb\tc\nd\r"), "a\u{fffd}[2J\u{fffd}31mb\tc\nd\u{fffd}");
    }
}
