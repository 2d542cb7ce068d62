//! Failures of commands, their output, and exit codes.

use std::{fmt, io};

use frpc::{Code, Status};
use serde_json::{Value, json};

use crate::terminal::{OutputError, OutputStyle, print_error, printable, printable_json};

/// The reason for the failure of a command.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// A local failure, such as an invalid file, address or argument, with suggestions.
    Own { what: String, tries: Vec<String> },
    /// A failed call, with its decoded details and suggestions.
    Call { status: Status, details: Vec<Value>, tries: Vec<String> },
    /// Failed calls of a load test, with their most frequent code. They have been reported already.
    Load(Code),
    /// Replayed answers differ from recorded ones. They have been reported already.
    Different,
    /// Standard output was closed by its reader, such as `head` in `frpc … | head`. This is a success.
    OutputClosed,
}

impl From<OutputError> for CommandError {
    fn from(OutputError(error): OutputError) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::new(format!("standard output: {error}")),
        }
    }
}

pub(crate) type Result<T> = std::result::Result<T, CommandError>;

impl CommandError {
    pub(crate) fn new(what: impl fmt::Display) -> Self {
        Self::Own { what: what.to_string(), tries: Vec::new() }
    }

    /// Adds a suggestion.
    pub(crate) fn with_try(mut self, advice: impl Into<String>) -> Self {
        match &mut self {
            Self::Own { tries, .. } | Self::Call { tries, .. } => tries.push(advice.into()),
            Self::Load(_) | Self::Different | Self::OutputClosed => {}
        }
        self
    }

    /// Returns the exit code: 1 for local failures, 3 for differences, and 64 plus the status code for calls, like grpcurl.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Own { .. } => 1,
            Self::Call { status, .. } => exit_code_of(status.code()),
            Self::Load(code) => exit_code_of(*code),
            Self::Different => 3,
            Self::OutputClosed => 0,
        }
    }

    /// Returns the failure for a feature excluded from this build.
    #[allow(dead_code, reason = "a build with all features leaves nothing out")]
    pub(crate) fn left_out(feature: &str, what: &str) -> Self {
        Self::new(format!("this build has no {what}"))
            .with_try(format!("`cargo install --path crates/frpc-cli --features {feature}`"))
    }

    /// Writes the failure to standard error.
    pub(crate) fn report(&self, as_json: bool) {
        let style = OutputStyle::of_stderr();
        match self {
            Self::Load(_) | Self::Different | Self::OutputClosed => {}
            _ if as_json => print_error(printable_json(&self.to_json().to_string())),
            Self::Own { what, tries } => {
                print_error(format_args!("{}: {}", style.red("error"), printable(what)));
                report_tries(tries, &style);
            }
            Self::Call { status, details, tries } => {
                let code = status.code();
                let name = format!("{} ({})", code_name(code), i32::from(code));
                print_error(format_args!("{}: {}", style.red(&name), printable(status.message())));
                let details = details.iter().map(|detail| printable_json(&detail.to_string()));
                details.for_each(|detail| print_error(format_args!("{}: {detail}", style.dim("detail"))));
                report_tries(tries, &style);
            }
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Self::Own { what, tries } => json!({ "error": { "message": what, "try": tries } }),
            Self::Call { status, details, tries } => {
                let code = status.code();
                json!({ "error": {
                    "code": code_name(code), "number": i32::from(code), "message": status.message(), "details": details, "try": tries,
                } })
            }
            Self::Load(code) => json!({ "error": { "code": code_name(*code), "number": i32::from(*code) } }),
            Self::Different | Self::OutputClosed => Value::Null,
        }
    }
}

fn report_tries(tries: &[String], style: &OutputStyle) {
    tries.iter().for_each(|advice| print_error(format_args!("{}: {}", style.dim("try"), printable(advice))));
}

/// Returns the exit code for a failed call.
pub(crate) fn exit_code_of(code: Code) -> u8 {
    64 + u8::from(code)
}

/// Returns the name of a code in Connect's spelling.
pub(crate) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "ok",
        Code::Cancelled => "cancelled",
        Code::InvalidArgument => "invalid_argument",
        Code::DeadlineExceeded => "deadline_exceeded",
        Code::NotFound => "not_found",
        Code::AlreadyExists => "already_exists",
        Code::PermissionDenied => "permission_denied",
        Code::ResourceExhausted => "resource_exhausted",
        Code::FailedPrecondition => "failed_precondition",
        Code::Aborted => "aborted",
        Code::OutOfRange => "out_of_range",
        Code::Unimplemented => "unimplemented",
        Code::Internal => "internal",
        Code::Unavailable => "unavailable",
        Code::DataLoss => "data_loss",
        Code::Unauthenticated => "unauthenticated",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_match_grpcurl() {
        assert_eq!(CommandError::new("no").exit_code(), 1);
        let call = |code| CommandError::Call { status: Status::new(code, ""), details: Vec::new(), tries: Vec::new() };
        assert_eq!(call(Code::NotFound).exit_code(), 69);
        assert_eq!(call(Code::Unauthenticated).exit_code(), 80);
        assert_eq!(CommandError::Load(Code::Unavailable).exit_code(), 78);
    }

    #[test]
    fn every_code_has_a_distinct_name() {
        let mut names: Vec<_> = (0..=16).map(|number| code_name(Code::from_number(number))).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 17);
    }
}
