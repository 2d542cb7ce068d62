use std::fmt::Display;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

/// The progress of the report, on one line of stderr.
pub(crate) struct Progress {
    started: Instant,
    done: usize,
    all: usize,
    on_terminal: bool,
}

impl Progress {
    pub(crate) fn new(all: usize) -> Self {
        Self { started: Instant::now(), done: 0, all, on_terminal: io::stderr().is_terminal() }
    }

    /// Shows the current run.
    pub(crate) fn start(&self, what: impl Display) {
        let Self { done, all, .. } = self;
        let left = self.left().map_or_else(String::new, |left| format!(", {left} left"));
        let bar = "#".repeat(done * BAR_LEN / all);
        let line = format!("[{bar:BAR_LEN$}] {done}/{all}{left}: {what}");
        if self.on_terminal { eprint!("{CLEAR}{line}") } else { eprintln!("{line}") }
    }

    /// Counts a finished or skipped run.
    pub(crate) fn finish(&mut self) {
        self.done += 1;
    }

    /// Prints a line that stays visible.
    pub(crate) fn note(&self, note: impl Display) {
        self.clear();
        eprintln!("{note}");
    }

    /// Clears the line for other output.
    pub(crate) fn clear(&self) {
        if self.on_terminal {
            eprint!("{CLEAR}");
        }
    }

    /// Returns the estimated time of the remaining runs.
    fn left(&self) -> Option<String> {
        let average = self.started.elapsed().checked_div(u32::try_from(self.done).ok()?)?;
        let left: Duration = average * u32::try_from(self.all - self.done).ok()?;
        Some(format!("{}:{:02}", left.as_secs() / 60, left.as_secs() % 60))
    }
}

const BAR_LEN: usize = 30;

/// Moves to the start of the line and clears it.
const CLEAR: &str = "\r\x1b[K";
