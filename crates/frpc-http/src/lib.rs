//! gRPC, gRPC-Web, Connect and Twirp for the services of [`frpc`], on the port that serves frisbee, too, and for its clients.
//!
//! [`Http`] is the wire of a server. [`transport`] gives a channel the addresses of these protocols; [`Client`] has the settings.
#![forbid(unsafe_code)]

mod activity;
mod client;
mod codes;
mod cors;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod headers;
mod hosts;
mod http2;
mod message;
mod mount;
mod plain;
mod serve;
#[cfg(feature = "tower")]
mod service;
mod settings;
mod standstill;
mod status;
mod wire;

pub use self::client::{Client, HttpVersion, Poster, TwirpError, register, transport};
pub use self::{
    cors::Cors,
    mount::{Mount, Visit},
    wire::Http,
};
#[cfg(feature = "tower")]
pub use self::{serve::ResponseBody, service::HttpService};
