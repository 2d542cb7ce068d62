//! gRPC, gRPC-Web, Connect and Twirp for the services of [`frpc`], on the port that serves frisbee, too.
#![forbid(unsafe_code)]
#![allow(dead_code, reason = "the wire and the clients, which use the floors below them, are being written")]

mod codes;
mod headers;
mod message;
mod serve;
mod settings;
mod status;
mod wire;

pub use self::wire::Http;
