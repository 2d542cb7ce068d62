use std::fmt;

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
}

impl Method {
    /// Declares a method of one request and one response.
    pub const fn unary(service: &'static str, name: &'static str, operation: u16) -> Self {
        Self { service, name, operation, kind: MethodKind::Unary }
    }

    /// Declares a method of one request and a stream of responses.
    pub const fn server_streaming(service: &'static str, name: &'static str, operation: u16) -> Self {
        Self { service, name, operation, kind: MethodKind::ServerStreaming }
    }

    /// Declares a method of a stream of requests and one response.
    pub const fn client_streaming(service: &'static str, name: &'static str, operation: u16) -> Self {
        Self { service, name, operation, kind: MethodKind::ClientStreaming }
    }

    /// Declares a method of a stream in both directions.
    pub const fn bidirectional(service: &'static str, name: &'static str, operation: u16) -> Self {
        Self { service, name, operation, kind: MethodKind::Bidirectional }
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
