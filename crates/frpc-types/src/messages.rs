//! Messages of `google/rpc/error_details.proto`.

use std::{collections::HashMap, time};

use frpc::{
    prost::{Message, Name},
    prost_types::Duration,
};

/// The time for clients to wait before a retry.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct RetryInfo {
    /// The time as a protobuf message. [`delay`](Self::delay) converts it to a standard duration.
    #[prost(message, optional, tag = "1")]
    pub retry_delay: Option<Duration>,
}

impl RetryInfo {
    /// Creates a message with a delay of at most 10,000 years, the limit of protobuf durations.
    pub fn new(delay: time::Duration) -> Self {
        let longest = Duration { seconds: DURATION_SECONDS_MAX, nanos: 0 };
        let delay = Duration::try_from(delay).ok().filter(|delay| delay.seconds < DURATION_SECONDS_MAX);
        Self { retry_delay: Some(delay.unwrap_or(longest)) }
    }

    /// Returns the delay, or `None` if it is missing or negative.
    pub fn delay(&self) -> Option<time::Duration> {
        self.retry_delay.and_then(|delay| delay.try_into().ok())
    }
}

/// The maximum of `google.protobuf.Duration` in seconds.
const DURATION_SECONDS_MAX: i64 = 315_576_000_000;

/// Debugging information about the server.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct DebugInfo {
    /// The stack trace of the error.
    #[prost(string, repeated, tag = "1")]
    pub stack_entries: Vec<String>,
    /// Additional information.
    #[prost(string, tag = "2")]
    pub detail: String,
}

/// Exceeded quotas.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct QuotaFailure {
    /// The exceeded quotas.
    #[prost(message, repeated, tag = "1")]
    pub violations: Vec<QuotaViolation>,
}

/// An exceeded quota.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct QuotaViolation {
    /// The subject of the quota, such as `project:shop`.
    #[prost(string, tag = "1")]
    pub subject: String,
    /// A description for people.
    #[prost(string, tag = "2")]
    pub description: String,
}

/// The cause of an error, for programs.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct ErrorInfo {
    /// The cause as a constant within the domain, such as `OUT_OF_STOCK`.
    #[prost(string, tag = "1")]
    pub reason: String,
    /// The domain of the reason, such as `shop.example.com`.
    #[prost(string, tag = "2")]
    pub domain: String,
    /// Additional information about the error.
    #[prost(map = "string, string", tag = "3")]
    pub metadata: HashMap<String, String>,
}

/// Failed preconditions.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct PreconditionFailure {
    /// The failed preconditions.
    #[prost(message, repeated, tag = "1")]
    pub violations: Vec<PreconditionViolation>,
}

/// A failed precondition.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct PreconditionViolation {
    /// The type of the precondition, as a constant of the service, such as `TOS`.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// The subject of the failure, relative to the type.
    #[prost(string, tag = "2")]
    pub subject: String,
    /// A description for people.
    #[prost(string, tag = "3")]
    pub description: String,
}

/// Invalid fields of a request.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct BadRequest {
    /// The invalid fields.
    #[prost(message, repeated, tag = "1")]
    pub field_violations: Vec<FieldViolation>,
}

/// An invalid field of a request.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct FieldViolation {
    /// The path of the field, separated by dots.
    #[prost(string, tag = "1")]
    pub field: String,
    /// A description for people.
    #[prost(string, tag = "2")]
    pub description: String,
    /// The reason as a constant, for programs.
    #[prost(string, tag = "3")]
    pub reason: String,
    /// The reason in the user's language.
    #[prost(message, optional, tag = "4")]
    pub localized_message: Option<LocalizedMessage>,
}

/// Information for finding a request in the logs of the service.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct RequestInfo {
    /// The id of the request.
    #[prost(string, tag = "1")]
    pub request_id: String,
    /// Additional information about the processing of the request.
    #[prost(string, tag = "2")]
    pub serving_data: String,
}

/// The resource affected by an error.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct ResourceInfo {
    /// The type of the resource, such as `sql table`.
    #[prost(string, tag = "1")]
    pub resource_type: String,
    /// The name of the resource.
    #[prost(string, tag = "2")]
    pub resource_name: String,
    /// The owner of the resource, such as `user:ada@example.com`.
    #[prost(string, tag = "3")]
    pub owner: String,
    /// A description of the error for people.
    #[prost(string, tag = "4")]
    pub description: String,
}

/// Links to help pages.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct Help {
    /// The links.
    #[prost(message, repeated, tag = "1")]
    pub links: Vec<HelpLink>,
}

/// A link to a help page.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct HelpLink {
    /// A description of the page.
    #[prost(string, tag = "1")]
    pub description: String,
    /// The URL of the page.
    #[prost(string, tag = "2")]
    pub url: String,
}

/// A message for the user, in the user's language.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct LocalizedMessage {
    /// The locale, such as `de-CH` (BCP 47).
    #[prost(string, tag = "1")]
    pub locale: String,
    /// The message.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// Implements `Name`, used to find messages among details by type.
macro_rules! name {
    ($($message:ident)*) => {
        $(impl Name for $message {
            const NAME: &'static str = stringify!($message);
            const PACKAGE: &'static str = "google.rpc";

            fn type_url() -> String {
                concat!("type.googleapis.com/google.rpc.", stringify!($message)).to_owned()
            }
        })*
    };
}

name!(RetryInfo DebugInfo QuotaFailure ErrorInfo PreconditionFailure BadRequest RequestInfo ResourceInfo Help LocalizedMessage);
