//! Error details for [frpc]: the `google.rpc` messages of gRPC's richer error model.
//!
//! A server adds [`ErrorDetails`] to a [`Status`](frpc::Status), and clients in any language can read them. All wires
//! with support for details carry them: frisbee between extended peers, gRPC, gRPC-Web and Connect.
//!
//! ```
//! use std::time::Duration;
//!
//! use frpc::{Code, Status};
//! use frpc_types::{ErrorDetails, RetryInfo, StatusExt};
//!
//! let mut details = ErrorDetails::new();
//! details.add_bad_request_violation("name", "must not be empty").set_retry_info(Duration::from_secs(3));
//! let status = Status::with_error_details(Code::InvalidArgument, "the request is not valid", details);
//!
//! let details = status.get_error_details();
//! let violations = &details.bad_request().unwrap().field_violations;
//! assert_eq!((&*violations[0].field, &*violations[0].description), ("name", "must not be empty"));
//! // A single detail.
//! let retry: RetryInfo = status.error_detail().unwrap();
//! assert_eq!(retry.delay(), Some(Duration::from_secs(3)));
//! ```
//!
//! Details from other packages can be added: [`ErrorDetails`] is an iterator over [`Any`](frpc::prost_types::Any)
//! messages, the argument of [`Status::with_error_details`](frpc::Status::with_error_details).
//!
//! # Error enums
//!
//! [`IntoStatus`](derive@IntoStatus) converts an enum into a status, and [`FromStatus`](derive@FromStatus) restores it
//! at the client.
//!
//! ```
//! use frpc::{Code, Status};
//! use frpc_types::{FromStatus, IntoStatus, RetryInfo};
//!
//! #[derive(Debug, PartialEq, IntoStatus, FromStatus)]
//! #[status(domain = "shop.example.com")]
//! enum OrderError {
//!     #[status(NotFound, reason = "NO_ORDER", message = "there is no order {id}")]
//!     NoOrder {
//!         #[metadata]
//!         id: u64,
//!     },
//!     #[status(Unavailable, message = "too many orders")]
//!     Busy(#[detail] RetryInfo),
//! }
//!
//! let status = Status::from(OrderError::NoOrder { id: 7 });
//! assert_eq!((status.code(), status.message()), (Code::NotFound, "there is no order 7"));
//! assert_eq!(OrderError::try_from(status).unwrap(), OrderError::NoOrder { id: 7 });
//! // Any other status is returned.
//! assert_eq!(OrderError::try_from(Status::internal("lost")).unwrap_err().code(), Code::Internal);
//! ```
#![forbid(unsafe_code)]

mod details;
#[doc(hidden)]
pub mod generated;
mod messages;

pub use details::{ErrorDetails, StatusExt};
pub use frpc_macros::{FromStatus, IntoStatus};
pub use messages::{
    BadRequest, DebugInfo, ErrorInfo, FieldViolation, Help, HelpLink, LocalizedMessage, PreconditionFailure,
    PreconditionViolation, QuotaFailure, QuotaViolation, RequestInfo, ResourceInfo, RetryInfo,
};
