//! The status of a failed call, on any wire.

use std::{error::Error, fmt, io, sync::Arc};

use bytes::Bytes;
use prost::{Message, Name};
use prost_types::Any;

use crate::{
    InvalidMetadata, Metadata,
    codec::{self, DecodeError},
};

/// The failure of a call: a gRPC code, a message, details for programs, and a source. One pointer wide.
///
/// ```
/// use frpc::{Code, Status};
///
/// let status = Status::not_found("no such order");
/// assert_eq!((status.code(), status.message()), (Code::NotFound, "no such order"));
/// ```
///
/// Rust peers receive everything except the source. A Go peer sees only the message: the code is encoded after it, and
/// the Go implementation ignores it.
#[derive(Clone)]
pub struct Status(Box<StatusInner>);

#[derive(Clone)]
struct StatusInner {
    code: Code,
    message: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
    details: Bytes,
    metadata: Metadata,
    closes: bool,
}

/// The status codes of gRPC, with the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// No error. Never used for a failed call.
    Ok = 0,
    /// The caller cancelled the call.
    Cancelled = 1,
    /// An error without a code, such as any error of a Go peer.
    Unknown = 2,
    /// The request is invalid, regardless of the state of the system.
    InvalidArgument = 3,
    /// The deadline passed before the call ended.
    DeadlineExceeded = 4,
    /// A requested entity does not exist.
    NotFound = 5,
    /// An entity to be created already exists.
    AlreadyExists = 6,
    /// The caller lacks the permission for this operation.
    PermissionDenied = 7,
    /// A resource is exhausted, such as a quota, memory or ids.
    ResourceExhausted = 8,
    /// The system is not in the state required by the request.
    FailedPrecondition = 9,
    /// A concurrent change aborted the operation; the caller may retry the whole sequence.
    Aborted = 10,
    /// The operation reaches past the valid range, such as the end of a file.
    OutOfRange = 11,
    /// The method is not implemented.
    Unimplemented = 12,
    /// An internal error: a bug on either side.
    Internal = 13,
    /// The service is temporarily unreachable; the caller may retry later.
    Unavailable = 14,
    /// Unrecoverable data loss or corruption.
    DataLoss = 15,
    /// The caller is not authenticated.
    Unauthenticated = 16,
}

macro_rules! constructors {
    ($($name:ident $code:ident)*) => {$(
        #[doc = concat!("Returns a status with [`Code::", stringify!($code), "`].")]
        pub fn $name(message: impl Into<String>) -> Self {
            Self::new(Code::$code, message)
        }
    )*};
}

impl Status {
    /// Creates a status with this code and message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self::with_details_and_metadata(code, message, Bytes::new(), Metadata::new())
    }

    /// Creates a status with details for programs. gRPC expects an encoded `google.rpc.Status`; see
    /// [`with_error_details`](Self::with_error_details).
    pub fn with_details(code: Code, message: impl Into<String>, details: impl Into<Bytes>) -> Self {
        Self::with_details_and_metadata(code, message, details, Metadata::new())
    }

    /// Creates a status with metadata.
    pub fn with_metadata(code: Code, message: impl Into<String>, metadata: Metadata) -> Self {
        Self::with_details_and_metadata(code, message, Bytes::new(), metadata)
    }

    /// Creates a status with details for programs and metadata.
    pub fn with_details_and_metadata(
        code: Code,
        message: impl Into<String>,
        details: impl Into<Bytes>,
        metadata: Metadata,
    ) -> Self {
        let (message, details) = (message.into(), details.into());
        Self(Box::new(StatusInner { code, message, source: None, details, metadata, closes: false }))
    }

    /// Creates a status with messages as details, following the richer error model of gRPC: [`details`](Self::details)
    /// is an encoded `google.rpc.Status` with the same code and message, readable by peers in any language. Without
    /// messages, the details are empty.
    ///
    /// ```
    /// use frpc::{Code, Status, prost_types::{Any, Duration}};
    ///
    /// let retry_in = Duration { seconds: 3, nanos: 0 };
    /// let status = Status::with_error_details(Code::Unavailable, "overloaded", [Any::from_msg(&retry_in)?]);
    /// assert_eq!(status.error_detail(), Some(retry_in));
    /// # Ok::<(), frpc::prost::EncodeError>(())
    /// ```
    pub fn with_error_details(code: Code, message: impl Into<String>, details: impl IntoIterator<Item = Any>) -> Self {
        let mut status = Self::new(code, message);
        let details: Vec<Any> = details.into_iter().collect();
        if !details.is_empty() {
            let message = status.0.message.clone();
            status.0.details = RpcStatus { code: code.into(), message, details }.encode_to_vec().into();
        }
        status
    }

    /// Sets the cause of the failure. It is not sent to the peer.
    pub fn with_source(mut self, source: impl Into<Arc<dyn Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Returns the code of the failure.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// Returns the message for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the encoded details for programs. Empty if there are none.
    pub fn details(&self) -> &[u8] {
        &self.0.details
    }

    /// Returns the messages in the details. Empty unless the details are an encoded `google.rpc.Status`.
    pub fn error_details(&self) -> Vec<Any> {
        RpcStatus::decode(&*self.0.details).map_or_else(|_| Vec::new(), |status| status.details)
    }

    /// Returns the first detail of type `M`.
    pub fn error_detail<M: Message + Name + Default>(&self) -> Option<M> {
        self.error_details().iter().find_map(|detail| detail.to_msg().ok())
    }

    /// Returns the metadata sent with the status. Not every wire carries it; see [`Metadata`].
    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    /// Returns a mutable reference to the metadata.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.0.metadata
    }

    /// Marks the status as the last answer on its connection. If a handler returns it, the connection closes after the
    /// status was sent.
    pub fn closing_connection(mut self) -> Self {
        self.0.closes = true;
        self
    }

    pub(crate) fn closes_connection(&self) -> bool {
        self.0.closes
    }

    /// Encodes the status as the content sent in place of a message.
    pub(crate) fn encode(&self) -> Bytes {
        let code = (self.0.code != Code::Unknown).then_some(self.0.code.into());
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
    /// Returns the code with this number, or [`Code::Unknown`].
    pub const fn from_number(number: i32) -> Self {
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

    /// Returns the name of the code, such as `DEADLINE_EXCEEDED`.
    pub fn name(self) -> &'static str {
        frpc_balance::CODE_NAMES[usize::from(u8::from(self))]
    }

    /// Returns a short description of the code for people.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Ok => "the call succeeded",
            Self::Cancelled => "the call was cancelled",
            Self::Unknown => "unknown error",
            Self::InvalidArgument => "the request is invalid",
            Self::DeadlineExceeded => "the deadline passed before the call ended",
            Self::NotFound => "not found",
            Self::AlreadyExists => "already exists",
            Self::PermissionDenied => "the caller lacks the permission for this operation",
            Self::ResourceExhausted => "a resource is exhausted",
            Self::FailedPrecondition => "the system is not in the state required by the request",
            Self::Aborted => "a concurrent change aborted the call",
            Self::OutOfRange => "out of range",
            Self::Unimplemented => "the method is not implemented",
            Self::Internal => "internal error",
            Self::Unavailable => "the service is unavailable",
            Self::DataLoss => "data is lost or corrupted",
            Self::Unauthenticated => "the caller is not authenticated",
        }
    }
}

/// Writes the [description](Code::description).
impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.description().fmt(f)
    }
}

/// Same as [`Code::from_number`].
impl From<i32> for Code {
    fn from(number: i32) -> Self {
        Self::from_number(number)
    }
}

impl From<Code> for i32 {
    fn from(code: Code) -> Self {
        code as Self
    }
}

impl From<Code> for u8 {
    fn from(code: Code) -> Self {
        code as Self
    }
}

/// `google.rpc.Status`, the gRPC message for status details.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// Converts an I/O error to a status, for handlers doing I/O.
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

/// Returns [`Code::Internal`]: the message of the peer does not match the schema.
impl From<DecodeError> for Status {
    fn from(error: DecodeError) -> Self {
        Self::internal(error.to_string()).with_source(Arc::new(error) as Arc<dyn Error + Send + Sync>)
    }
}

/// Returns [`Code::Internal`], as grpc-go does: the code setting the metadata is at fault. A handler that passes the
/// error on with `?` must not blame the request of its caller.
impl From<InvalidMetadata> for Status {
    fn from(error: InvalidMetadata) -> Self {
        Self::internal(error.to_string()).with_source(Arc::new(error) as Arc<_>)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StatusInner { code, message, source, .. } = &*self.0;
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost_types::{Duration, Timestamp};

    use super::*;

    /// A detail as declared by crates for `google.rpc` types.
    #[derive(Clone, PartialEq, Message)]
    struct RetryInfo {
        #[prost(message, optional, tag = "1")]
        retry_delay: Option<Duration>,
    }

    impl Name for RetryInfo {
        const NAME: &'static str = "RetryInfo";
        const PACKAGE: &'static str = "google.rpc";
    }

    const SECONDS_3: Duration = Duration { seconds: 3, nanos: 0 };

    #[test]
    fn error_details_encode_as_google_rpc_status() {
        let details = [Any::from_msg(&SECONDS_3).unwrap(), Any { type_url: "a/b".to_owned(), value: vec![0xff] }];
        let status = Status::with_error_details(Code::NotFound, "no such order", details.clone());

        let mut expected = vec![0x08, 5];
        expected.extend([0x12, 13]);
        expected.extend(b"no such order");
        expected.extend([0x1a, 2 + 44 + 4]);
        expected.extend([0x0a, 44]);
        expected.extend(b"type.googleapis.com/google.protobuf.Duration");
        expected.extend([0x12, 2, 0x08, 3]);
        expected.extend([0x1a, 8, 0x0a, 3]);
        expected.extend(b"a/b");
        expected.extend([0x12, 1, 0xff]);
        assert_eq!(status.details(), expected);
        assert_eq!(status.error_details(), details);
        assert_eq!((status.code(), status.message()), (Code::NotFound, "no such order"));
    }

    #[test]
    fn details_of_a_foreign_peer_are_found_by_type() {
        let mut bytes = vec![0x1a, 2 + 40 + 6];
        bytes.extend([0x0a, 40]);
        bytes.extend(b"type.googleapis.com/google.rpc.RetryInfo");
        bytes.extend([0x12, 4, 0x0a, 2, 0x08, 3]);
        // A field of a later version of the schema.
        bytes.extend([0x20, 1]);
        let status = Status::with_details(Code::Unavailable, "", bytes);
        assert_eq!(status.error_detail(), Some(RetryInfo { retry_delay: Some(SECONDS_3) }));
        assert_eq!(status.error_detail::<Duration>(), None);
    }

    #[test]
    fn the_first_valid_detail_of_a_type_is_found() {
        let any = |seconds| Any::from_msg(&Duration { seconds, nanos: 0 }).unwrap();
        let broken = Any { value: vec![0xff], ..any(0) };
        let details = [Any::from_msg(&Timestamp::default()).unwrap(), broken, any(1), any(2)];
        let status = Status::with_error_details(Code::Aborted, "", details);
        assert_eq!(status.error_detail(), Some(Duration { seconds: 1, nanos: 0 }));
        assert_eq!(status.error_detail(), Some(Timestamp::default()));
    }

    #[test]
    fn a_status_without_typed_details_has_no_detail_bytes() {
        assert!(Status::with_error_details(Code::Aborted, "text", []).details().is_empty());
        assert_eq!(Status::aborted("text").error_details(), []);
    }

    #[test]
    fn constructors_set_details_and_metadata() {
        let mut metadata = Metadata::new();
        metadata.insert("a", "1").unwrap();
        let parts = |status: &Status| (status.code(), status.message().to_owned(), status.details().to_vec());
        let status = Status::with_details(Code::Aborted, "text", vec![1]);
        assert_eq!((parts(&status), status.metadata().len()), ((Code::Aborted, "text".to_owned(), vec![1]), 0));
        let status = Status::with_metadata(Code::Aborted, "text", metadata.clone());
        assert_eq!((parts(&status), status.metadata()), ((Code::Aborted, "text".to_owned(), vec![]), &metadata));
        let status = Status::with_details_and_metadata(Code::Aborted, "text", vec![2], metadata.clone());
        assert_eq!((parts(&status), status.metadata()), ((Code::Aborted, "text".to_owned(), vec![2]), &metadata));
    }

    #[test]
    fn invalid_local_metadata_is_an_internal_error() {
        let refused = Metadata::new().insert("te", "trailers").unwrap_err();
        let status = Status::from(refused.clone());
        assert_eq!((status.code(), status.message()), (Code::Internal, &*refused.to_string()));
        assert_eq!(status.source().and_then(|source| source.downcast_ref()), Some(&refused));
    }

    #[test]
    fn codes_keep_their_numbers_and_others_are_unknown() {
        for number in 0..=16_u8 {
            let code = Code::from(i32::from(number));
            assert_eq!((u8::from(code), i32::from(code)), (number, number.into()));
            assert_eq!(code.to_string(), code.description());
        }
        for number in [-1, 17, 256, 256 + 5, i32::MAX, i32::MIN] {
            assert_eq!(Code::from_number(number), Code::Unknown);
        }
    }

    #[test]
    fn a_status_is_one_pointer_wide() {
        assert_eq!(size_of::<Status>(), size_of::<usize>());
    }

    proptest! {
        #[test]
        fn arbitrary_detail_bytes_can_be_inspected(bytes: Vec<u8>) {
            let status = Status::with_details(Code::Unknown, "", bytes.clone());
            prop_assert_eq!(status.details(), &bytes);
            let _ = (status.error_details(), status.error_detail::<Duration>());
        }
    }
}
