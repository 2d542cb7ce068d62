//! Error enums as statuses, and back.
#![allow(missing_docs, reason = "a test")]

use std::{fmt, time::Duration};

use frpc::{Code, Status};
use frpc_types::{BadRequest, ErrorInfo, FieldViolation, FromStatus, Help, HelpLink, IntoStatus, RetryInfo, StatusExt};

#[derive(Debug, PartialEq, IntoStatus, FromStatus)]
#[status(domain = "shop.example.com")]
enum OrderError {
    #[status(NotFound, reason = "NO_ORDER", message = "there is no order {id} of {owner:?} {{}}")]
    NoOrder {
        #[metadata]
        id: u64,
        #[metadata]
        owner: String,
    },
    #[status(NotFound, reason = "NO_CUSTOMER")]
    NoCustomer,
    #[status(InvalidArgument, message = "{0:?} is not valid")]
    Invalid(#[detail] BadRequest, #[detail] Option<RetryInfo>),
    #[status(Unavailable)]
    Busy {
        #[detail]
        details: RetryInfo,
        #[detail]
        message: Vec<Help>,
    },
}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCustomer => f.write_str("there is no such customer"),
            Self::Busy { .. } => f.write_str("too many orders"),
            _ => f.write_str("unused"),
        }
    }
}

#[derive(Debug, IntoStatus, FromStatus)]
enum AnyError {
    #[status(Aborted, message = "try again")]
    Conflict,
    #[status(transparent)]
    Other(Status),
}

/// Messages with fields that only the server needs.
#[derive(Debug, IntoStatus)]
#[allow(dead_code)]
enum StorageError<E: fmt::Display> {
    #[status(Internal, message = "storage failed")]
    Failed { cause: E, r#type: u8 },
    #[status(DataLoss, message = "block {1} is lost: {0}")]
    Lost(E, u32),
    #[status(transparent)]
    Order(OrderError),
}

fn violation() -> BadRequest {
    let violation = FieldViolation { field: "id".to_owned(), description: "empty".to_owned(), ..Default::default() };
    BadRequest { field_violations: vec![violation] }
}

fn help(url: &str) -> Help {
    Help { links: vec![HelpLink { description: String::new(), url: url.to_owned() }] }
}

#[test]
fn a_variant_becomes_a_code_a_message_and_details() {
    let status = Status::from(OrderError::NoOrder { id: 7, owner: "Ada".to_owned() });
    assert_eq!((status.code(), status.message()), (Code::NotFound, "there is no order 7 of \"Ada\" {}"));
    let metadata = [("id".to_owned(), "7".to_owned()), ("owner".to_owned(), "Ada".to_owned())].into();
    let (reason, domain) = ("NO_ORDER".to_owned(), "shop.example.com".to_owned());
    assert_eq!(status.get_error_details().error_info(), Some(&ErrorInfo { reason, domain, metadata }));

    let status = Status::from(OrderError::NoCustomer);
    assert_eq!(status.message(), "there is no such customer");
    let status = Status::from(OrderError::Invalid(violation(), None));
    assert!(status.message().starts_with("BadRequest {"), "{status:?}");
    assert_eq!((status.error_details().len(), status.error_detail()), (1, Some(violation())));
    let retry = RetryInfo::new(Duration::from_secs(3));
    let busy = OrderError::Busy { details: retry.clone(), message: vec![help("a"), help("b")] };
    let status = Status::from(busy);
    assert_eq!((status.message(), status.error_details().len()), ("too many orders", 3));
    let failed = StorageError::Failed { cause: "disk", r#type: 1 };
    assert_eq!(Status::from(failed).message(), "storage failed");
    assert_eq!(Status::from(StorageError::Lost("disk", 8)).message(), "block 8 is lost: disk");
    let inner = Status::from(StorageError::<&str>::Order(OrderError::NoCustomer));
    assert_eq!(inner.code(), Code::NotFound);
}

#[test]
fn a_client_restores_the_variant() {
    let retry = RetryInfo::new(Duration::from_secs(3));
    let errors = || {
        [
            OrderError::NoOrder { id: u64::MAX, owner: String::new() },
            OrderError::NoCustomer,
            OrderError::Invalid(violation(), None),
            OrderError::Invalid(violation(), Some(retry.clone())),
            OrderError::Busy { details: retry.clone(), message: vec![] },
            OrderError::Busy { details: retry.clone(), message: vec![help("a"), help("b")] },
        ]
    };
    for (error, expected) in errors().into_iter().zip(errors()) {
        assert_eq!(OrderError::try_from(Status::from(error)).unwrap(), expected);
    }
}

#[test]
fn a_status_that_fits_no_variant_is_returned() {
    let refused = |status: Status| OrderError::try_from(status).unwrap_err();
    assert_eq!(refused(Status::not_found("gone")).message(), "gone");
    assert_eq!(refused(Status::invalid_argument("no details")).message(), "no details");
    // The reason of another domain, and metadata of another type.
    let info = |domain: &str, id: &str| {
        let mut details = frpc_types::ErrorDetails::new();
        let metadata = [("id".to_owned(), id.to_owned()), ("owner".to_owned(), String::new())];
        details.set_error_info("NO_ORDER", domain, metadata);
        Status::with_error_details(Code::NotFound, "", details)
    };
    assert!(OrderError::try_from(info("shop.example.com", "7")).is_ok());
    refused(info("other.example.com", "7"));
    refused(info("shop.example.com", "-7"));
    refused(Status::with_details(Code::NotFound, "", &b"\xff\xff"[..]));
    assert!(matches!(AnyError::try_from(Status::aborted("")), Ok(AnyError::Conflict)));
    let other = AnyError::try_from(Status::internal("lost")).unwrap();
    assert!(matches!(&other, AnyError::Other(status) if status.message() == "lost"));
    assert_eq!(Status::from(other).code(), Code::Internal);
}
