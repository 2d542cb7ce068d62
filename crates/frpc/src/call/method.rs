use std::{
    fmt,
    hash::{Hash, Hasher},
};

/// One method of a service, as generated code declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Method {
    /// The full name of the service.
    pub service: &'static str,
    /// The name of the method in the proto file.
    pub name: &'static str,
    /// Its operation on the wire of frisbee.
    pub operation: u16,
    /// Its kind: the sides that send more than one message.
    pub kind: MethodKind,
    /// Its messages, which methods that were written by hand may leave out.
    pub types: Option<MethodTypes>,
    /// True if a call changes nothing, so that caches may answer it and HTTP may carry it in a GET.
    pub has_no_side_effects: bool,
}

/// The messages of a method, as its proto file declares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct MethodTypes {
    /// The message that callers send, once or as a stream.
    pub request: &'static MessageType,
    /// The message that they receive.
    pub response: &'static MessageType,
}

/// A message of a proto file. Two are equal if name and fingerprint are.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct MessageType {
    /// The full name, without a leading dot.
    pub name: &'static str,
    /// A hash of everything that matters on the wire of frpc, fields and enums within included: peers with the same
    /// fingerprint read each other's bytes.
    pub fingerprint: u128,
    /// An encoded `google.protobuf.FileDescriptorSet` with the message and all that it holds.
    pub descriptors: &'static [u8],
    /// The name of the [codec](crate::codec::Codec) that writes the message in place of protobuf.
    pub codec: Option<&'static str>,
}

impl Method {
    /// Declares a method of one request and one response.
    pub const fn unary(service: &'static str, name: &'static str, operation: u16) -> Self {
        Self::new(service, name, operation, MethodKind::Unary)
    }

    /// Declares a method of one request and a stream of responses.
    pub const fn server_streaming(service: &'static str, name: &'static str, operation: u16) -> Self {
        Self::new(service, name, operation, MethodKind::ServerStreaming)
    }

    /// Declares a method of a stream of requests and one response.
    pub const fn client_streaming(service: &'static str, name: &'static str, operation: u16) -> Self {
        Self::new(service, name, operation, MethodKind::ClientStreaming)
    }

    /// Declares a method of a stream in both directions.
    pub const fn bidirectional(service: &'static str, name: &'static str, operation: u16) -> Self {
        Self::new(service, name, operation, MethodKind::Bidirectional)
    }

    const fn new(service: &'static str, name: &'static str, operation: u16, kind: MethodKind) -> Self {
        Self { service, name, operation, kind, types: None, has_no_side_effects: false }
    }

    /// Adds the messages of the method.
    pub const fn with_types(mut self, request: &'static MessageType, response: &'static MessageType) -> Self {
        self.types = Some(MethodTypes { request, response });
        self
    }

    /// Says that a call changes nothing, as `option idempotency_level = NO_SIDE_EFFECTS` does in a proto file.
    pub const fn without_side_effects(mut self) -> Self {
        self.has_no_side_effects = true;
        self
    }

    /// Returns the name of the [codec](crate::codec::Codec) that writes its messages, if that is one of the user.
    pub fn codec(&self) -> Option<&'static str> {
        self.types?.request.codec
    }

    /// Returns the path of the method in gRPC and its relatives: `package.Service/Method`.
    pub fn path(&self) -> String {
        self.to_string()
    }
}

/// The [path](Method::path).
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

    /// Describes a message that a [codec](crate::codec::Codec) of this name writes. The name of the message is for people: its
    /// type in Rust, or its name in the proto file. It has no descriptors, and peers are taken to mean the same by it.
    pub const fn of_codec(name: &'static str, codec: &'static str) -> Self {
        Self { name, fingerprint: Self::UNKNOWN, descriptors: &[], codec: Some(codec) }
    }

    /// The fingerprint of messages that are not known, as of methods that were written by hand: they are taken to agree.
    pub(crate) const UNKNOWN: u128 = 0;
}

/// Leaves out the descriptors, which are long and no text.
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

/// The sides of a call that send more than one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MethodKind {
    /// One request, one response.
    Unary,
    /// One request, a stream of responses.
    ServerStreaming,
    /// A stream of requests, one response.
    ClientStreaming,
    /// A stream in both directions.
    Bidirectional,
}

impl MethodKind {
    /// Returns whether the caller sends a stream.
    pub fn has_request_stream(self) -> bool {
        matches!(self, Self::ClientStreaming | Self::Bidirectional)
    }

    /// Returns whether the service answers with a stream.
    pub fn has_response_stream(self) -> bool {
        matches!(self, Self::ServerStreaming | Self::Bidirectional)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_has_the_messages_that_it_was_given() {
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
    fn a_method_changes_something_unless_it_says_otherwise() {
        const PLAIN: Method = Method::unary("a.A", "Do", 10);
        const READING: Method = PLAIN.without_side_effects();
        assert_eq!((PLAIN.has_no_side_effects, READING.has_no_side_effects), (false, true));
    }

    #[test]
    fn descriptors_are_neither_compared_nor_printed() {
        let [one, other] = [b"a", b"b"].map(|descriptors: &[u8; 1]| MessageType::new("a.One", 0x2a, descriptors));
        assert_eq!(one, other);
        assert_eq!(format!("{one:?}"), "MessageType(a.One, 0x0000000000000000000000000000002a)");
    }

    #[test]
    fn a_method_is_small() {
        assert!(size_of::<Method>() <= 7 * size_of::<usize>());
    }
}
