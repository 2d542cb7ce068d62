//! The REST APIs of proto files with the option `google.api.http`.
//!
//! [`RestApi`] reads the annotations of methods, finds the [route](RestApi::find) of a request, and converts between HTTP
//! and the JSON of messages. It performs no I/O: `frisbee-rpc-http` serves it, and `frisbee-rpc-build` checks it at
//! build time.
#![forbid(unsafe_code)]

mod annotations;
mod comments;
mod mask;
mod openapi;
mod params;
mod protos;
mod request;
mod response;
mod routes;
mod template;
mod trie;
mod types;
mod values;

pub use frpc_schema::MethodKind;
pub use openapi::OpenApiInfo;
pub use params::RequestError;
pub use protos::GOOGLE_API_FILES;
pub use request::RequestParts;
pub use response::ResponseContent;
pub use routes::{RestApi, RestRoute, RouteCall, RouteMatch};
pub use template::{PathTemplate, TemplateError};
