//! Colours, for terminals only.

use std::{
    env,
    io::{IsTerminal, stderr, stdout},
};

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
