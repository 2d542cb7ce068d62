//! WebSocket for [`frpc`]: messages on any byte stream, and frisbee over WebSocket.
//!
//! [`WebSocket`] is a connection after its handshake, on the client or the server side. For servers, `frisbee-rpc-http`
//! performs the handshake on the shared port. [`Client`] connects to servers. [`transport`] adds the schemes `ws://` and
//! `wss://` to channels.
//!
//! On `wasm32-unknown-unknown`, the crate has [`transport`], `register` and [`Client`] alone, on the WebSocket of the
//! browser. Calls, streams, deadlines, cancellation and reconnection work as on other targets.
#![forbid(unsafe_code)]

#[cfg(target_family = "wasm")]
extern crate frisbee_wasm as tokio;

#[cfg(target_family = "wasm")]
mod browser;
#[cfg(not(target_family = "wasm"))]
mod client;
#[cfg(not(target_family = "wasm"))]
mod close;
#[cfg(not(target_family = "wasm"))]
mod decoder;
#[cfg(not(target_family = "wasm"))]
mod encoder;
#[cfg(not(target_family = "wasm"))]
mod frame;
#[cfg(not(target_family = "wasm"))]
mod handshake;
#[cfg(not(target_family = "wasm"))]
mod keepalive;
#[cfg(not(target_family = "wasm"))]
mod link;
#[cfg(not(target_family = "wasm"))]
mod mask;
#[cfg(not(target_family = "wasm"))]
mod sha1;
#[cfg(not(target_family = "wasm"))]
mod socket;
#[cfg(not(target_family = "wasm"))]
mod stream;
#[cfg(not(target_family = "wasm"))]
mod utf8;

#[cfg(target_family = "wasm")]
pub use self::browser::{Client, register, transport};
#[cfg(not(target_family = "wasm"))]
pub use self::{
    client::{Client, register, transport},
    close::{
        CloseFrame, FAILED, GOING_AWAY, INVALID_TEXT, NORMAL, POLICY, PROTOCOL_ERROR, TOO_LONG, TRY_AGAIN_LATER,
        UNSUPPORTED, WebSocketError,
    },
    decoder::{MessageKind, Role},
    handshake::{accept_key, is_key},
    socket::{WebSocket, WebSocketMessage},
    stream::WebSocketStream,
};
