//! The messages of `google/rpc/error_details.proto`.

use std::{collections::HashMap, time};

use frpc::{
    prost::{Message, Name},
    prost_types::Duration,
};

/// The time that clients should wait before they try a call again.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct RetryInfo {
    /// The time, as protocol buffers have it; [`delay`](Self::delay) has it as Rust does.
    #[prost(message, optional, tag = "1")]
    pub retry_delay: Option<Duration>,
}

impl RetryInfo {
    /// Makes a message with a time, which is cut to 10,000 years: protocol buffers have no longer one.
    pub fn new(delay: time::Duration) -> Self {
        let longest = Duration { seconds: DURATION_SECONDS_MAX, nanos: 0 };
        let delay = Duration::try_from(delay).ok().filter(|delay| delay.seconds < DURATION_SECONDS_MAX);
        Self { retry_delay: Some(delay.unwrap_or(longest)) }
    }

    /// Returns the time. `None` if the message has none, or a negative one.
    pub fn delay(&self) -> Option<time::Duration> {
        self.retry_delay.and_then(|delay| delay.try_into().ok())
    }
}

/// The longest time that `google.protobuf.Duration` allows.
const DURATION_SECONDS_MAX: i64 = 315_576_000_000;

/// Information for those who debug the server.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct DebugInfo {
    /// The stack where the error occurred.
    #[prost(string, repeated, tag = "1")]
    pub stack_entries: Vec<String>,
    /// More about it.
    #[prost(string, tag = "2")]
    pub detail: String,
}

/// Quotas that were exceeded.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct QuotaFailure {
    /// Each of them.
    #[prost(message, repeated, tag = "1")]
    pub violations: Vec<QuotaViolation>,
}

/// A quota that was exceeded.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct QuotaViolation {
    /// The subject of the quota, such as `project:shop`.
    #[prost(string, tag = "1")]
    pub subject: String,
    /// The reason, for people.
    #[prost(string, tag = "2")]
    pub description: String,
}

/// The cause of an error, for programs.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct ErrorInfo {
    /// The cause, as a constant of the domain, such as `OUT_OF_STOCK`.
    #[prost(string, tag = "1")]
    pub reason: String,
    /// The domain that the reason belongs to, such as `shop.example.com`.
    #[prost(string, tag = "2")]
    pub domain: String,
    /// More about the error.
    #[prost(map = "string, string", tag = "3")]
    pub metadata: HashMap<String, String>,
}

/// Preconditions that were not met.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct PreconditionFailure {
    /// Each of them.
    #[prost(message, repeated, tag = "1")]
    pub violations: Vec<PreconditionViolation>,
}

/// A precondition that was not met.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct PreconditionViolation {
    /// The kind of precondition, as a constant of the service, such as `TOS`.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// The subject that failed, relative to the type.
    #[prost(string, tag = "2")]
    pub subject: String,
    /// The reason, for people.
    #[prost(string, tag = "3")]
    pub description: String,
}

/// Fields of a request that are not valid.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct BadRequest {
    /// Each of them.
    #[prost(message, repeated, tag = "1")]
    pub field_violations: Vec<FieldViolation>,
}

/// A field of a request that is not valid.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct FieldViolation {
    /// The path of the field, with dots in between.
    #[prost(string, tag = "1")]
    pub field: String,
    /// The reason, for people.
    #[prost(string, tag = "2")]
    pub description: String,
    /// The reason, as a constant for programs.
    #[prost(string, tag = "3")]
    pub reason: String,
    /// The reason in the language of the user.
    #[prost(message, optional, tag = "4")]
    pub localized_message: Option<LocalizedMessage>,
}

/// Information with which a request can be found in the logs of the service.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct RequestInfo {
    /// The id of the request.
    #[prost(string, tag = "1")]
    pub request_id: String,
    /// More about how the request was served.
    #[prost(string, tag = "2")]
    pub serving_data: String,
}

/// The resource that an error is about.
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
    /// The error that occurred with it, for people.
    #[prost(string, tag = "4")]
    pub description: String,
}

/// Links to pages that help with an error.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct Help {
    /// Each of them.
    #[prost(message, repeated, tag = "1")]
    pub links: Vec<Link>,
}

/// A link to a page that helps with an error.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct Link {
    /// The content of the page.
    #[prost(string, tag = "1")]
    pub description: String,
    /// The address of the page.
    #[prost(string, tag = "2")]
    pub url: String,
}

/// A message for the user, in the language of the user.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
pub struct LocalizedMessage {
    /// The language, such as `de-CH` (BCP 47).
    #[prost(string, tag = "1")]
    pub locale: String,
    /// The message.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// Names messages, so that they are found among details.
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
