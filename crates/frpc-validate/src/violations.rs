//! Conversion of violations to a status with details.

use frpc::{Code, Method, Status, prost::Message as _, prost_types::Any};
use frpc_types::ErrorDetails;
use prost_protovalidate::{ValidationError, Violation};

use crate::rules::{CheckFailure, MessageRole};

/// Converts the failed check of a message to a status.
pub(crate) fn status(method: &Method, role: MessageRole, failure: CheckFailure) -> Status {
    let (which, code) = match role {
        MessageRole::Request => ("request", Code::InvalidArgument),
        MessageRole::Response => ("response", Code::Internal),
    };
    match failure {
        CheckFailure::Violations(violations) => {
            violated(&format!("the {which} of {method} is invalid"), code, violations)
        }
        CheckFailure::Malformed(error) => {
            Status::new(code, format!("the {which} of {method} cannot be checked: {error}"))
        }
        CheckFailure::TooLarge(error) => Status::resource_exhausted(format!(
            "the {which} of {method} is too large to be checked: it {error}; see `message_memory_max`"
        )),
        CheckFailure::BrokenRule(error) => {
            Status::internal(format!("a rule for the {which} of {method} failed: {error}"))
        }
    }
}

fn violated(what: &str, code: Code, mut violations: Vec<Violation>) -> Status {
    violations.truncate(VIOLATIONS_MAX);
    let texts: Vec<_> = violations.iter().take(SHOWN_MAX).map(text).collect();
    let more = if violations.len() > SHOWN_MAX { "; and more" } else { "" };
    let mut details = ErrorDetails::new();
    for violation in &violations {
        details.add_bad_request_violation(violation.field_path(), description(violation));
    }
    let value = ValidationError::new(violations).to_proto().encode_to_vec();
    let own = Any { type_url: "type.googleapis.com/buf.validate.Violations".to_owned(), value };
    Status::with_error_details(code, format!("{what}: {}{more}", texts.join("; ")), details.into_iter().chain([own]))
}

fn text(violation: &Violation) -> String {
    let (path, description) = (violation.field_path(), description(violation));
    if path.is_empty() { description } else { format!("{path}: {description}") }
}

/// Returns the message of a rule, or its id if it has none.
fn description(violation: &Violation) -> String {
    match violation.message() {
        "" => violation.rule_id().to_owned(),
        message => message.to_owned(),
    }
}

/// The maximum number of violations in the details of a status. Headers limit their length.
const VIOLATIONS_MAX: usize = 16;
/// The maximum number of violations in the text of a status.
const SHOWN_MAX: usize = 3;
