/// One method of a service, as generated code declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// The full name of the service.
    pub service: &'static str,
    /// The name of the method in the proto file.
    pub name: &'static str,
    /// Its operation on the wire.
    pub operation: u16,
    /// Which sides send more than one message.
    pub kind: MethodKind,
}

impl Method {
    /// The method with this operation among those of one service, which follow each other in the order of declaration.
    pub(crate) fn find(methods: &'static [Self], operation: u16) -> Option<&'static Self> {
        let index = operation.checked_sub(methods.first()?.operation)?;
        methods.get(usize::from(index)).filter(|method| method.operation == operation)
    }
}

/// Which sides of a call send more than one message.
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
