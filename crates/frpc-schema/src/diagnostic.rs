//! Mistakes in a schema, with their positions in the proto files.

use std::{error, fmt};

use crate::location::SourceLocation;

/// A mistake in a schema.
///
/// `Display` prints the message, the places and the notes. A tool with access to the proto files can show the source
/// lines instead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// Description of the mistake in one line.
    pub message: String,
    /// Affected places, the most important one first.
    pub labels: Vec<Label>,
    /// Further lines, each starting with `note: ` or `help: `.
    pub notes: Vec<String>,
}

/// A place in a proto file, with an optional remark.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Label {
    /// The place.
    pub place: SourceLocation,
    /// A remark on the place. May be empty.
    pub text: String,
}

/// All mistakes found in a set of descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Error {
    /// The mistakes, at least one.
    pub diagnostics: Vec<Diagnostic>,
}

impl Diagnostic {
    /// Creates a diagnostic without places or notes.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), labels: Vec::new(), notes: Vec::new() }
    }

    /// Adds a place.
    pub fn at(self, place: SourceLocation) -> Self {
        self.labelled(place, "")
    }

    /// Adds a place with a remark.
    pub fn labelled(mut self, place: SourceLocation, text: impl Into<String>) -> Self {
        self.labels.push(Label { place, text: text.into() });
        self
    }

    /// Adds background information.
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

/// Returns a name without control characters, truncated to a readable length.
pub(crate) fn shown(name: &str) -> String {
    let name = name.strip_prefix('.').unwrap_or(name);
    let shown: String = name.escape_debug().take(SHOWN_LEN_MAX).collect();
    if shown.len() < name.len() { shown + "…" } else { shown }
}

/// Maximum length of a name in a diagnostic, in characters.
const SHOWN_LEN_MAX: usize = 200;
