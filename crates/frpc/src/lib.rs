//! RPC from ordinary proto3 files, in the wire format of frpc-go.
//!
//! `frpc-build` makes messages, service traits and clients from `build.rs`. The messages are prost structs; beside them
//! stands the [codec] that fRPC speaks on the wire. A service is a trait with async methods; a client is made from a
//! [`Channel`].
//!
//! Today a channel leads to a service in the same process ([`Channel::in_process`]). Servers and clients over frisbee
//! connections are the next part of the work.
#![forbid(unsafe_code)]

pub mod codec;
#[doc(hidden)]
pub mod generated;

mod call;
mod channel;
mod method;
mod request;
mod status;
mod stream;

pub use channel::Channel;
pub use method::{Method, MethodKind};
pub use request::{IntoRequest, IntoStreamingRequest, Request, Response};
pub use status::{Code, Status};
pub use stream::{StreamSender, Streaming};

#[doc(hidden)]
pub use {prost, prost_types};

/// Includes what `frpc-build` made of one package: `frpc::include_proto!("pkg.name")`, with `"_"` for files without one.
#[macro_export]
macro_rules! include_proto {
    ($package:tt) => {
        include!(concat!(env!("OUT_DIR"), "/", $package, ".rs"));
    };
}

/// Includes everything that `frpc-build` made, each package in the module of its name: `frpc::include_protos!();`
#[macro_export]
macro_rules! include_protos {
    () => {
        include!(concat!(env!("OUT_DIR"), "/_includes.rs"));
    };
}
