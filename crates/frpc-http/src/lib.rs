//! gRPC, gRPC-Web, Connect and Twirp for [`frpc`] services and clients, and REST for services.
//!
//! A server speaks these protocols on the same port as frisbee.
//!
//! [`Http`] adds them to a server. [`transport`] makes channels accept addresses of these protocols; [`Client`] has the
//! settings.
#![forbid(unsafe_code)]

#[cfg(not(any(feature = "http2", feature = "hyper-http2")))]
compile_error!("enable the feature `http2` of frisbee-rpc-http, or `hyper-http2` for the HTTP/2 of hyper");

mod activity;
mod alarm;
mod client;
mod codes;
mod cors;
mod date;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod headers;
mod hosts;
mod http2;
mod message;
mod metrics_page;
mod mount;
mod open_api;
mod plain;
mod rest_routes;
mod serve;
#[cfg(feature = "tower")]
mod service;
mod settings;
mod static_file;
mod status;
mod wire;
mod write_timeout;

pub use self::client::{Client, ClientSettings, HttpStatusError, HttpVersion, Poster, TwirpError, register, transport};
pub use self::{
    cors::Cors,
    metrics_page::MetricsPage,
    mount::{Mount, MountContext},
    open_api::{OpenApiDocument, OpenApiPage},
    settings::HttpSettings,
    static_file::StaticFile,
    wire::Http,
};
#[cfg(feature = "tower")]
pub use self::{serve::ResponseBody, service::HttpService};
