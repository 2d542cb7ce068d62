//! The option `google.api.http` of methods. The types of prost drop options of extensions, so it is read from the
//! encoded descriptors.

use prost::Message;

/// The parts of descriptor.proto on the way to the option.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AnnotatedFiles {
    #[prost(message, repeated, tag = "1")]
    pub(crate) file: Vec<AnnotatedFile>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AnnotatedFile {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "6")]
    pub(crate) service: Vec<AnnotatedService>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AnnotatedService {
    #[prost(message, repeated, tag = "2")]
    pub(crate) method: Vec<AnnotatedMethod>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AnnotatedMethod {
    #[prost(message, optional, tag = "4")]
    pub(crate) options: Option<AnnotatedOptions>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AnnotatedOptions {
    #[prost(message, optional, tag = "72295728")]
    pub(crate) http: Option<HttpRule>,
}

/// `google.api.HttpRule`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct HttpRule {
    #[prost(oneof = "HttpPattern", tags = "2, 3, 4, 5, 6, 8")]
    pub(crate) pattern: Option<HttpPattern>,
    #[prost(string, tag = "7")]
    pub(crate) body: String,
    #[prost(message, repeated, tag = "11")]
    pub(crate) additional_bindings: Vec<HttpRule>,
    #[prost(string, tag = "12")]
    pub(crate) response_body: String,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum HttpPattern {
    #[prost(string, tag = "2")]
    Get(String),
    #[prost(string, tag = "3")]
    Put(String),
    #[prost(string, tag = "4")]
    Post(String),
    #[prost(string, tag = "5")]
    Delete(String),
    #[prost(string, tag = "6")]
    Patch(String),
    #[prost(message, tag = "8")]
    Custom(CustomPattern),
}

/// `google.api.CustomHttpPattern`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct CustomPattern {
    #[prost(string, tag = "1")]
    pub(crate) kind: String,
    #[prost(string, tag = "2")]
    pub(crate) path: String,
}

impl HttpPattern {
    /// Returns the HTTP method and the path template. The method `*` means any.
    pub(crate) fn parts(&self) -> (&str, &str) {
        match self {
            Self::Get(path) => ("GET", path),
            Self::Put(path) => ("PUT", path),
            Self::Post(path) => ("POST", path),
            Self::Delete(path) => ("DELETE", path),
            Self::Patch(path) => ("PATCH", path),
            Self::Custom(CustomPattern { kind, path }) => (kind, path),
        }
    }
}
