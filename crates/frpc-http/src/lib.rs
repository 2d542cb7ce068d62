//! gRPC, gRPC-Web, Connect and Twirp for the services of [`frpc`], on the port that serves frisbee, too.
#![forbid(unsafe_code)]
#![allow(dead_code, reason = "the wire and the clients, which use the floors below them, are being written")]

mod client;
mod codes;
mod cors;
mod headers;
mod message;
mod serve;
#[cfg(feature = "tower")]
mod service;
mod settings;
mod status;
mod wire;

pub use self::client::{Client, HttpVersion, TwirpError, register};
pub use self::{cors::Cors, wire::Http};
#[cfg(feature = "tower")]
pub use self::{serve::ResponseBody, service::HttpService};
