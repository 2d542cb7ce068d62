//! Functions for the code of the derives. Not part of the public API.

use std::collections::HashMap;

pub use frpc::{Code, Status};
use frpc::{
    prost::{Message, Name},
    prost_types::Any,
};

use crate::messages::ErrorInfo;

/// The details of a status.
#[derive(Debug, Default)]
pub struct StatusDetails {
    details: Vec<Any>,
    info: Option<ErrorInfo>,
}

impl StatusDetails {
    /// Reads the details of a status.
    pub fn of(status: &Status) -> Self {
        let details = status.error_details();
        let info = details.iter().find_map(|detail| detail.to_msg().ok());
        Self { details, info }
    }

    /// Adds the cause of the error.
    pub fn error_info<const N: usize>(&mut self, reason: &str, domain: &str, metadata: [(&str, String); N]) {
        let metadata: HashMap<_, _> = metadata.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        self.add(&ErrorInfo { reason: reason.to_owned(), domain: domain.to_owned(), metadata });
    }

    /// Adds a message.
    pub fn add<M: Message + Name>(&mut self, detail: &M) {
        // Encoding into a vector cannot fail.
        self.details.extend(Any::from_msg(detail).ok());
    }

    /// Returns a status with these details.
    pub fn into_status(self, code: Code, message: String) -> Status {
        Status::with_error_details(code, message, self.details)
    }

    /// Returns `true` if a status has this code, and the reason and domain if they are given.
    pub fn fits(&self, status: &Status, code: Code, cause: Option<(&str, &str)>) -> bool {
        let has_cause =
            |(reason, domain)| self.info.as_ref().is_some_and(|info| info.reason == reason && info.domain == domain);
        status.code() == code && cause.is_none_or(has_cause)
    }

    /// Returns all messages of a type.
    pub fn all<M: Message + Name + Default>(&self) -> impl Iterator<Item = M> {
        self.details.iter().filter_map(|detail| detail.to_msg().ok())
    }

    /// Returns a value of the metadata in the cause.
    pub fn metadata(&self, name: &str) -> Option<&str> {
        self.info.as_ref()?.metadata.get(name).map(String::as_str)
    }
}
