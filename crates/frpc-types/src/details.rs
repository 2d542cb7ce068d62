//! Error details of a status, with at most one message of each type.

use std::{collections::HashMap, time::Duration};

use frpc::{Status, prost_types::Any};

use crate::messages::{
    BadRequest, DebugInfo, ErrorInfo, FieldViolation, Help, HelpLink, LocalizedMessage, PreconditionFailure,
    PreconditionViolation, QuotaFailure, QuotaViolation, RequestInfo, ResourceInfo, RetryInfo,
};

/// Declares the fields of [`ErrorDetails`], at most one message each, with their getters and conversions.
macro_rules! details {
    ($($(#[$doc:meta])* $field:ident: $message:ident,)*) => {
        /// The details of an error, to be passed to [`Status::with_error_details`] and returned by
        /// [`StatusExt::get_error_details`].
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct ErrorDetails {
            $($field: Option<$message>,)*
        }

        impl ErrorDetails {
            $($(#[$doc])*
            pub fn $field(&self) -> Option<&$message> {
                self.$field.as_ref()
            })*
        }

        impl StatusExt for Status {
            fn get_error_details(&self) -> ErrorDetails {
                let all = self.error_details();
                ErrorDetails { $($field: all.iter().find_map(|detail| detail.to_msg().ok()),)* }
            }
        }

        impl IntoIterator for ErrorDetails {
            type Item = Any;
            type IntoIter = std::vec::IntoIter<Any>;

            fn into_iter(self) -> Self::IntoIter {
                // Encoding into a vector cannot fail.
                let all = [$(self.$field.and_then(|message| Any::from_msg(&message).ok()),)*];
                all.into_iter().flatten().collect::<Vec<_>>().into_iter()
            }
        }
    };
}

details! {
    /// Returns the time for clients to wait before a retry.
    retry_info: RetryInfo,
    /// Returns debugging information about the server.
    debug_info: DebugInfo,
    /// Returns the exceeded quotas.
    quota_failure: QuotaFailure,
    /// Returns the cause of the error.
    error_info: ErrorInfo,
    /// Returns the failed preconditions.
    precondition_failure: PreconditionFailure,
    /// Returns the invalid fields of the request.
    bad_request: BadRequest,
    /// Returns the information for finding the request in the logs of the service.
    request_info: RequestInfo,
    /// Returns the resource affected by the error.
    resource_info: ResourceInfo,
    /// Returns the links to help pages.
    help: Help,
    /// Returns the message for the user, in the user's language.
    localized_message: LocalizedMessage,
}

impl ErrorDetails {
    /// Creates empty details.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the time for clients to wait before a retry.
    pub fn set_retry_info(&mut self, delay: Duration) -> &mut Self {
        self.retry_info = Some(RetryInfo::new(delay));
        self
    }

    /// Sets debugging information about the server.
    pub fn set_debug_info(
        &mut self,
        stack_entries: impl IntoIterator<Item = impl Into<String>>,
        detail: impl Into<String>,
    ) -> &mut Self {
        let stack_entries = stack_entries.into_iter().map(Into::into).collect();
        self.debug_info = Some(DebugInfo { stack_entries, detail: detail.into() });
        self
    }

    /// Adds an exceeded quota.
    pub fn add_quota_failure_violation(
        &mut self,
        subject: impl Into<String>,
        description: impl Into<String>,
    ) -> &mut Self {
        let violation = QuotaViolation { subject: subject.into(), description: description.into() };
        self.quota_failure.get_or_insert_default().violations.push(violation);
        self
    }

    /// Returns `true` if there is an exceeded quota.
    pub fn has_quota_failure_violations(&self) -> bool {
        self.quota_failure.as_ref().is_some_and(|failure| !failure.violations.is_empty())
    }

    /// Sets the cause of the error: a constant, its domain, and additional metadata.
    pub fn set_error_info(
        &mut self,
        reason: impl Into<String>,
        domain: impl Into<String>,
        metadata: impl Into<HashMap<String, String>>,
    ) -> &mut Self {
        self.error_info = Some(ErrorInfo { reason: reason.into(), domain: domain.into(), metadata: metadata.into() });
        self
    }

    /// Adds a failed precondition.
    pub fn add_precondition_failure_violation(
        &mut self,
        violation_type: impl Into<String>,
        subject: impl Into<String>,
        description: impl Into<String>,
    ) -> &mut Self {
        let (r#type, subject, description) = (violation_type.into(), subject.into(), description.into());
        let violation = PreconditionViolation { r#type, subject, description };
        self.precondition_failure.get_or_insert_default().violations.push(violation);
        self
    }

    /// Returns `true` if there is a failed precondition.
    pub fn has_precondition_failure_violations(&self) -> bool {
        self.precondition_failure.as_ref().is_some_and(|failure| !failure.violations.is_empty())
    }

    /// Adds an invalid field of the request.
    pub fn add_bad_request_violation(&mut self, field: impl Into<String>, description: impl Into<String>) -> &mut Self {
        let violation =
            FieldViolation { field: field.into(), description: description.into(), ..FieldViolation::default() };
        self.bad_request.get_or_insert_default().field_violations.push(violation);
        self
    }

    /// Returns `true` if there is an invalid field.
    pub fn has_bad_request_violations(&self) -> bool {
        self.bad_request.as_ref().is_some_and(|request| !request.field_violations.is_empty())
    }

    /// Sets the information for finding the request in the logs of the service.
    pub fn set_request_info(&mut self, request_id: impl Into<String>, serving_data: impl Into<String>) -> &mut Self {
        self.request_info = Some(RequestInfo { request_id: request_id.into(), serving_data: serving_data.into() });
        self
    }

    /// Sets the resource affected by the error.
    pub fn set_resource_info(
        &mut self,
        resource_type: impl Into<String>,
        resource_name: impl Into<String>,
        owner: impl Into<String>,
        description: impl Into<String>,
    ) -> &mut Self {
        self.resource_info = Some(ResourceInfo {
            resource_type: resource_type.into(),
            resource_name: resource_name.into(),
            owner: owner.into(),
            description: description.into(),
        });
        self
    }

    /// Adds a link to a help page.
    pub fn add_help_link(&mut self, description: impl Into<String>, url: impl Into<String>) -> &mut Self {
        let link = HelpLink { description: description.into(), url: url.into() };
        self.help.get_or_insert_default().links.push(link);
        self
    }

    /// Returns `true` if there is a link to a help page.
    pub fn has_help_links(&self) -> bool {
        self.help.as_ref().is_some_and(|help| !help.links.is_empty())
    }

    /// Sets a message for the user, in the user's language.
    pub fn set_localized_message(&mut self, locale: impl Into<String>, message: impl Into<String>) -> &mut Self {
        self.localized_message = Some(LocalizedMessage { locale: locale.into(), message: message.into() });
        self
    }
}

/// Access to the error details of a status.
pub trait StatusExt {
    /// Returns the `google.rpc` messages among the details. For each type it returns the first valid message.
    fn get_error_details(&self) -> ErrorDetails;
}

#[cfg(test)]
mod tests {
    use frpc::Code;

    use super::*;

    fn everything() -> ErrorDetails {
        let mut details = ErrorDetails::new();
        details
            .set_retry_info(Duration::from_millis(1500))
            .set_debug_info(["main.rs:1"], "out of memory")
            .add_quota_failure_violation("project:shop", "100 orders a day")
            .add_quota_failure_violation("user:ada", "10 orders a day")
            .set_error_info("OUT_OF_STOCK", "shop.example.com", [("sku".to_owned(), "A1".to_owned())])
            .add_precondition_failure_violation("TOS", "shop.example.com", "terms are not accepted")
            .add_bad_request_violation("items[0].count", "must be positive")
            .set_request_info("7", "eu-1")
            .set_resource_info("order", "orders/7", "user:ada", "is closed")
            .add_help_link("limits", "https://shop.example.com/limits")
            .set_localized_message("de", "Ausverkauft");
        details
    }

    #[test]
    fn all_details_round_trip() {
        let details = everything();
        assert!(details.has_quota_failure_violations() && details.has_precondition_failure_violations());
        assert!(details.has_bad_request_violations() && details.has_help_links());
        let status = Status::with_error_details(Code::FailedPrecondition, "no", details.clone());
        assert_eq!(status.error_details().len(), 10);
        assert_eq!(status.get_error_details(), details);
        assert_eq!(status.error_detail::<RetryInfo>().unwrap().delay(), Some(Duration::from_millis(1500)));
    }

    /// The expected bytes are a `google.rpc.Status` with a `BadRequest`, as encoded by other implementations.
    #[test]
    fn details_have_the_bytes_of_other_languages() {
        let mut details = ErrorDetails::new();
        details.add_bad_request_violation("name", "empty");
        let status = Status::with_error_details(Code::InvalidArgument, "bad", details);
        let field = |tag: u8, bytes: &[u8]| [&[tag, u8::try_from(bytes.len()).unwrap()], bytes].concat();
        let request = field(0x0a, b"\x0a\x04name\x12\x05empty");
        let any = [field(0x0a, b"type.googleapis.com/google.rpc.BadRequest"), field(0x12, &request)].concat();
        let expected = [&b"\x08\x03\x12\x03bad"[..], &field(0x1a, &any)].concat();
        assert_eq!(status.details(), expected);
    }

    #[test]
    fn unknown_and_invalid_details_are_skipped() {
        let broken = Any { type_url: "type.googleapis.com/google.rpc.Help".to_owned(), value: vec![0xff] };
        let other = Any { type_url: "type.googleapis.com/shop.Refund".to_owned(), value: vec![8, 1] };
        let mut details = ErrorDetails::new();
        details.add_help_link("a", "b");
        let all = [broken, other].into_iter().chain(details.clone());
        let status = Status::with_error_details(Code::Aborted, "", all);
        assert_eq!(status.get_error_details(), details);
        assert_eq!(Status::aborted("no details").get_error_details(), ErrorDetails::new());
        assert!(Status::with_error_details(Code::Aborted, "", ErrorDetails::new()).details().is_empty());
    }

    #[test]
    fn unrepresentable_durations_are_clamped_or_omitted() {
        let longest = RetryInfo::new(Duration::MAX).delay().unwrap();
        assert_eq!(longest.as_secs(), 315_576_000_000);
        let negative = frpc::prost_types::Duration { seconds: -1, nanos: 0 };
        assert_eq!(RetryInfo { retry_delay: Some(negative) }.delay(), None);
        assert_eq!(RetryInfo::default().delay(), None);
    }
}
