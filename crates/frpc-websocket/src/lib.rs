//! WebSocket for [`frpc`]: messages on any byte stream, and frisbee over WebSocket.
//!
//! [`WebSocket`] is a connection after its handshake, on the client or the server side. For servers, `frpc-http`
//! performs the handshake on the shared port. [`Client`] connects to servers. [`transport`] adds the schemes `ws://` and
//! `wss://` to channels.
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
        CloseFrame, FAILED, GOING_AWAY, INVALID_TEXT, NORMAL, POLICY, PROTOCOL_ERROR, TOO_LONG, TRY_AGAIN_LATER,
        UNSUPPORTED, WebSocketError,
    },
    decoder::{MessageKind, Role},
    handshake::{accept_key, is_key},
    socket::{WebSocket, WebSocketMessage},
    stream::WebSocketStream,
};
