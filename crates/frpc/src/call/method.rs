//! Methods as constants of generated code: names, kind, operation and message types.

use std::{
    fmt,
    hash::{Hash, Hasher},
};

/// A method of a service, as declared by generated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Method {
    /// The full name of the service.
    pub service: &'static str,
    /// The method name in the proto file.
    pub name: &'static str,
    /// The operation number on the frisbee wire.
    pub operation: u16,
    /// The streaming kind: which sides send more than one message.
    pub kind: MethodKind,
    /// The message types. Optional for hand-written methods.
    pub types: Option<MethodTypes>,
    /// `true` if calls change nothing: caches may answer them, and HTTP may use GET.
    pub has_no_side_effects: bool,
    /// `true` if a repeated call has the effect of one call, so a channel may retry it after it was perhaps executed.
    pub is_idempotent: bool,
}

/// The message types of a method, as declared in its proto file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct MethodTypes {
    /// The message sent by callers, alone or in a stream.
    pub request: &'static MessageType,
    /// The message received by callers.
    pub response: &'static MessageType,
}

/// A message type of a proto file. Equality compares name and fingerprint.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct MessageType {
    /// The full name, without a leading dot.
    pub name: &'static str,
    /// A hash of everything relevant to the frpc wire format, including nested fields and enums. Peers with equal
    /// fingerprints can read each other's bytes.
    pub fingerprint: u128,
    /// An encoded `google.protobuf.FileDescriptorSet` with the message and all types it uses.
    pub descriptors: &'static [u8],
    /// The name of the user-defined [codec](crate::codec::Codec) of the message. `None` for protobuf messages.
    pub codec: Option<&'static str>,
}

impl Method {
    /// Declares a method with one request and one response.
    pub const fn unary(service: &'static str, name: &'static str, operation: u16) -> Self {
        Self::new(service, name, operation, MethodKind::Unary)
    }

    /// Declares a method with one request and a stream of responses.
    pub const fn server_streaming(service: &'static str, name: &'static str, operation: u16) -> Self {
        Self::new(service, name, operation, MethodKind::ServerStreaming)
    }

    /// Declares a method with a stream of requests and one response.
    pub const fn client_streaming(service: &'static str, name: &'static str, operation: u16) -> Self {
        Self::new(service, name, operation, MethodKind::ClientStreaming)
    }

    /// Declares a method with streams in both directions.
    pub const fn bidirectional(service: &'static str, name: &'static str, operation: u16) -> Self {
        Self::new(service, name, operation, MethodKind::Bidirectional)
    }

    const fn new(service: &'static str, name: &'static str, operation: u16, kind: MethodKind) -> Self {
        Self { service, name, operation, kind, types: None, has_no_side_effects: false, is_idempotent: false }
    }

    /// Sets the message types of the method.
    pub const fn with_types(mut self, request: &'static MessageType, response: &'static MessageType) -> Self {
        self.types = Some(MethodTypes { request, response });
        self
    }

    /// Declares that calls have no side effects, like `option idempotency_level = NO_SIDE_EFFECTS` in a proto file.
    pub const fn without_side_effects(mut self) -> Self {
        self.has_no_side_effects = true;
        self.idempotent()
    }

    /// Declares that calls may be repeated, like `option idempotency_level = IDEMPOTENT` in a proto file.
    pub const fn idempotent(mut self) -> Self {
        self.is_idempotent = true;
        self
    }

    /// Returns the name of the user-defined [codec](crate::codec::Codec) of its messages, if it has one.
    pub fn codec(&self) -> Option<&'static str> {
        self.types?.request.codec
    }

    /// Returns the path of the method as in gRPC: `package.Service/Method`.
    pub fn path(&self) -> String {
        self.to_string()
    }
}

/// Writes the [path](Method::path).
impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.name)
    }
}

impl MessageType {
    /// Describes a message.
    pub const fn new(name: &'static str, fingerprint: u128, descriptors: &'static [u8]) -> Self {
        Self { name, fingerprint, descriptors, codec: None }
    }

    /// Describes a message with a user-defined [codec](crate::codec::Codec) of this name. `name` is for people: the
    /// Rust type of the message, or its name in the proto file. There are no descriptors, so peers are assumed to agree
    /// on the message.
    pub const fn of_codec(name: &'static str, codec: &'static str) -> Self {
        Self { name, fingerprint: Self::UNKNOWN, descriptors: &[], codec: Some(codec) }
    }

    /// The fingerprint of messages without descriptors, such as in hand-written methods. Peers are assumed to agree on
    /// them.
    pub(crate) const UNKNOWN: u128 = 0;
}

/// Omits the descriptors, a long binary value.
impl fmt::Debug for MessageType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, fingerprint, descriptors: _, codec: _ } = self;
        write!(f, "MessageType({name}, {fingerprint:#034x})")
    }
}

impl PartialEq for MessageType {
    fn eq(&self, other: &Self) -> bool {
        (self.name, self.fingerprint) == (other.name, other.fingerprint)
    }
}

impl Eq for MessageType {}

impl Hash for MessageType {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.name, self.fingerprint).hash(state);
    }
}

/// The streaming kind of a method or call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MethodKind {
    /// One request, one response.
    Unary,
    /// One request, a stream of responses.
    ServerStreaming,
    /// A stream of requests, one response.
    ClientStreaming,
    /// Streams in both directions.
    Bidirectional,
}

impl MethodKind {
    /// Returns `true` if the caller sends a stream.
    pub fn has_request_stream(self) -> bool {
        matches!(self, Self::ClientStreaming | Self::Bidirectional)
    }

    /// Returns `true` if the service answers with a stream.
    pub fn has_response_stream(self) -> bool {
        matches!(self, Self::ServerStreaming | Self::Bidirectional)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_has_the_given_message_types() {
        const ONE: MessageType = MessageType::new("a.One", 1, b"a");
        const TWO: MessageType = MessageType::new("a.Two", 2, b"a");
        const PLAIN: Method = Method::unary("a.A", "Do", 10);
        const TYPED: Method = PLAIN.with_types(&ONE, &TWO);
        assert_eq!(PLAIN.types, None);
        let types = TYPED.types.unwrap();
        assert_eq!((types.request.name, types.request.fingerprint, types.request.descriptors), ("a.One", 1, &b"a"[..]));
        assert_eq!((types.response.name, types.response.fingerprint), ("a.Two", 2));
        assert_eq!(TYPED, PLAIN.with_types(&ONE, &TWO));
        assert_ne!(TYPED, PLAIN);
        assert_ne!(TYPED, PLAIN.with_types(&TWO, &ONE));
        assert_ne!(TYPED, PLAIN.with_types(&ONE, const { &MessageType::new("a.Two", 3, b"a") }));
    }

    #[test]
    fn methods_have_side_effects_by_default() {
        const PLAIN: Method = Method::unary("a.A", "Do", 10);
        const READING: Method = PLAIN.without_side_effects();
        assert_eq!((PLAIN.has_no_side_effects, READING.has_no_side_effects), (false, true));
        assert_eq!((PLAIN.is_idempotent, READING.is_idempotent), (false, true));
    }

    #[test]
    fn descriptors_are_excluded_from_comparison_and_debug() {
        let [one, other] = [b"a", b"b"].map(|descriptors: &[u8; 1]| MessageType::new("a.One", 0x2a, descriptors));
        assert_eq!(one, other);
        assert_eq!(format!("{one:?}"), "MessageType(a.One, 0x0000000000000000000000000000002a)");
    }

    #[test]
    fn a_method_is_small() {
        assert!(size_of::<Method>() <= 7 * size_of::<usize>());
    }
}
