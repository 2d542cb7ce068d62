use std::{error::Error, fmt, io, sync::Arc};

use bytes::Bytes;

use crate::{
    Metadata,
    codec::{self, DecodeError},
};

/// How a call ended if not with a response: one of gRPC's codes, a message, and what caused it. One pointer wide.
///
/// ```
/// use frpc::{Code, Status};
///
/// let status = Status::not_found("no such order");
/// assert_eq!((status.code(), status.message()), (Code::NotFound, "no such order"));
/// ```
///
/// On the wire, the message is the error of the Go implementation, which has no codes. The code stands behind it, where
/// Go peers ignore it; an error of a Go peer has [`Code::Unknown`]. Details, metadata and the source stay on the side
/// that set them.
#[derive(Clone)]
pub struct Status(Box<Inner>);

#[derive(Clone)]
struct Inner {
    code: Code,
    message: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
    details: Bytes,
    metadata: Metadata,
    closes: bool,
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
        Self(Box::new(Inner {
            code,
            message: message.into(),
            source: None,
            details: Bytes::new(),
            metadata: Metadata::default(),
            closes: false,
        }))
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

    /// The same status with details for programs, typically an encoded message. The wire of today does not carry them.
    pub fn with_details(mut self, details: impl Into<Bytes>) -> Self {
        self.0.details = details.into();
        self
    }

    /// Details for programs.
    pub fn details(&self) -> &[u8] {
        &self.0.details
    }

    /// Names and values beside the status; see [`Metadata`] for how far they get.
    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    /// The metadata, to be changed.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.0.metadata
    }

    /// The same status as the last answer on its connection: a handler that returns it has the connection closed once
    /// the answer has arrived.
    pub fn closing_connection(mut self) -> Self {
        self.0.closes = true;
        self
    }

    pub(crate) fn closes_connection(&self) -> bool {
        self.0.closes
    }

    /// The status as content, in place of a message.
    pub(crate) fn encode(&self) -> Bytes {
        let code = (self.0.code != Code::Unknown).then_some(self.0.code as u8);
        codec::encode_error(&self.0.message, code)
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

impl Code {
    /// The code with this number, or [`Code::Unknown`].
    pub fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Ok,
            1 => Self::Cancelled,
            3 => Self::InvalidArgument,
            4 => Self::DeadlineExceeded,
            5 => Self::NotFound,
            6 => Self::AlreadyExists,
            7 => Self::PermissionDenied,
            8 => Self::ResourceExhausted,
            9 => Self::FailedPrecondition,
            10 => Self::Aborted,
            11 => Self::OutOfRange,
            12 => Self::Unimplemented,
            13 => Self::Internal,
            14 => Self::Unavailable,
            15 => Self::DataLoss,
            16 => Self::Unauthenticated,
            _ => Self::Unknown,
        }
    }
}

/// An error of the system, for handlers that do I/O.
impl From<io::Error> for Status {
    fn from(error: io::Error) -> Self {
        let code = match error.kind() {
            io::ErrorKind::NotFound => Code::NotFound,
            io::ErrorKind::PermissionDenied => Code::PermissionDenied,
            io::ErrorKind::AlreadyExists => Code::AlreadyExists,
            io::ErrorKind::TimedOut => Code::DeadlineExceeded,
            io::ErrorKind::Interrupted => Code::Aborted,
            io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::NotConnected
            | io::ErrorKind::BrokenPipe => Code::Unavailable,
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Code::DataLoss,
            _ => Code::Unknown,
        };
        Self::new(code, error.to_string()).with_source(Arc::new(error) as Arc<dyn Error + Send + Sync>)
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
        let Inner { code, message, source, .. } = &*self.0;
        f.debug_struct("Status")
            .field("code", code)
            .field("message", message)
            .field("source", source)
            .finish_non_exhaustive()
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
