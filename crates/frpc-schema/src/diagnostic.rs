//! Mistakes in a schema, with their places in the proto files.

use std::{error, fmt};

use crate::location::Place;

/// A mistake in a schema.
///
/// Prints as a message, its places and its notes. A tool that has the proto files at hand can show the lines instead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// The mistake in one line.
    pub message: String,
    /// The places that it concerns, the most important one first.
    pub labels: Vec<Label>,
    /// Lines that start with `note: ` or `help: `.
    pub notes: Vec<String>,
}

/// A place that a diagnostic concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Label {
    /// The place.
    pub place: Place,
    /// A remark about it, or nothing.
    pub text: String,
}

/// The reasons why descriptors are no schema.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Error {
    /// Everything that is wrong; at least one mistake.
    pub diagnostics: Vec<Diagnostic>,
}

impl Diagnostic {
    /// Returns a diagnostic without places or notes.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), labels: Vec::new(), notes: Vec::new() }
    }

    /// Adds a place.
    pub fn at(self, place: Place) -> Self {
        self.labelled(place, "")
    }

    /// Adds a place with a remark.
    pub fn labelled(mut self, place: Place, text: impl Into<String>) -> Self {
        self.labels.push(Label { place, text: text.into() });
        self
    }

    /// Adds background.
    pub fn note(mut self, note: impl fmt::Display) -> Self {
        self.notes.push(format!("note: {note}"));
        self
    }

    /// Adds advice.
    pub fn help(mut self, help: impl fmt::Display) -> Self {
        self.notes.push(format!("help: {help}"));
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for Label { place, text } in &self.labels {
            write!(f, "\n--> {}", place.file)?;
            if let Some(span) = place.span {
                write!(f, ":{}:{}", span.line + 1, span.column + 1)?;
            }
            if !text.is_empty() {
                write!(f, " {text}")?;
            }
        }
        self.notes.iter().try_for_each(|note| write!(f, "\n = {note}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.diagnostics.iter().enumerate() {
            if index > 0 {
                f.write_str("\n\n")?;
            }
            diagnostic.fmt(f)?;
        }
        Ok(())
    }
}

impl error::Error for Error {}

impl From<Diagnostic> for Error {
    fn from(diagnostic: Diagnostic) -> Self {
        Self { diagnostics: vec![diagnostic] }
    }
}

/// Returns a name without control characters, cut to a length that can be read.
pub(crate) fn shown(name: &str) -> String {
    let name = name.strip_prefix('.').unwrap_or(name);
    let shown: String = name.escape_debug().take(SHOWN_LEN_MAX).collect();
    if shown.len() < name.len() { shown + "…" } else { shown }
}

/// The number of characters of a name that a diagnostic shows.
const SHOWN_LEN_MAX: usize = 200;
