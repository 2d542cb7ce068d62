//! WebSocket for [`frpc`]: messages on any stream of bytes, and frisbee in them.
//!
//! [`WebSocket`] is a connection after its handshake, of either side. Servers do the handshake in `frpc-http`, on the port with
//! everything else. [`Client`] connects, and [`transport`] gives channels the addresses `ws://` and `wss://`.
#![forbid(unsafe_code)]

mod client;
mod close;
mod decoder;
mod encoder;
mod frame;
mod handshake;
mod keepalive;
mod link;
mod mask;
mod sha1;
mod socket;
mod stream;
mod utf8;

pub use self::{
    client::{Client, register, transport},
    close::{
        Close, FAILED, GOING_AWAY, INVALID_TEXT, NORMAL, POLICY, PROTOCOL_ERROR, TOO_LONG, UNSUPPORTED, WebSocketError,
    },
    decoder::{Kind, Role},
    handshake::{accept_key, is_key},
    socket::{Message, WebSocket},
    stream::WebSocketStream,
};
