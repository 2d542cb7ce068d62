use std::{error::Error, fmt, sync::Arc};

use crate::codec::DecodeError;

/// How a call ended if not with a response: one of gRPC's codes, a message, and what caused it. One pointer wide.
///
/// ```
/// use frpc::{Code, Status};
///
/// let status = Status::not_found("no such order");
/// assert_eq!((status.code(), status.message()), (Code::NotFound, "no such order"));
/// ```
#[derive(Clone)]
pub struct Status(Box<Inner>);

#[derive(Clone)]
struct Inner {
    code: Code,
    message: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// The codes of gRPC, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// No error. A failed call never has it.
    Ok = 0,
    /// The caller gave the call up.
    Cancelled = 1,
    /// An error without a code, such as every error of a Go peer.
    Unknown = 2,
    /// The request makes no sense, whatever the state of the system.
    InvalidArgument = 3,
    /// The time was up.
    DeadlineExceeded = 4,
    /// Something that was asked for is not there.
    NotFound = 5,
    /// Something that was to be made is there already.
    AlreadyExists = 6,
    /// The caller may not do this.
    PermissionDenied = 7,
    /// Something is used up: a quota, memory, ids.
    ResourceExhausted = 8,
    /// The system is not in the state that the request needs.
    FailedPrecondition = 9,
    /// A concurrent change got in the way; the whole sequence may be tried again.
    Aborted = 10,
    /// Past the end of what there is.
    OutOfRange = 11,
    /// The method is not there.
    Unimplemented = 12,
    /// A bug on either side.
    Internal = 13,
    /// The service cannot be reached now; try again later.
    Unavailable = 14,
    /// Data is lost or broken for good.
    DataLoss = 15,
    /// The caller did not say who it is.
    Unauthenticated = 16,
}

macro_rules! constructors {
    ($($name:ident $code:ident)*) => {$(
        #[doc = concat!("A status with [`Code::", stringify!($code), "`].")]
        pub fn $name(message: impl Into<String>) -> Self {
            Self::new(Code::$code, message)
        }
    )*};
}

impl Status {
    /// A status with this code and message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { code, message: message.into(), source: None }))
    }

    /// The same status with what caused it, which stays on this side of the wire.
    pub fn with_source(mut self, source: impl Into<Arc<dyn Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What kind of failure it is.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// What happened, for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    constructors! {
        cancelled Cancelled
        unknown Unknown
        invalid_argument InvalidArgument
        deadline_exceeded DeadlineExceeded
        not_found NotFound
        already_exists AlreadyExists
        permission_denied PermissionDenied
        resource_exhausted ResourceExhausted
        failed_precondition FailedPrecondition
        aborted Aborted
        out_of_range OutOfRange
        unimplemented Unimplemented
        internal Internal
        unavailable Unavailable
        data_loss DataLoss
        unauthenticated Unauthenticated
    }
}

/// The peer sent what is not the message of the schema.
impl From<DecodeError> for Status {
    fn from(error: DecodeError) -> Self {
        Self::internal(error.to_string()).with_source(Arc::new(error) as Arc<dyn Error + Send + Sync>)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { code, message, source } = &*self.0;
        f.debug_struct("Status").field("code", code).field("message", message).field("source", source).finish()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.code, self.0.message)
    }
}

impl Error for Status {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
