//! The proof of a handshake.

use base64::{Engine, prelude::BASE64_STANDARD};

use crate::sha1;

/// Returns the value of `sec-websocket-accept` for a `sec-websocket-key`: that a server read it as a handshake of WebSocket.
///
/// ```
/// let accept = frpc_websocket::accept_key(b"dGhlIHNhbXBsZSBub25jZQ==");
/// assert_eq!(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
/// ```
pub fn accept_key(key: &[u8]) -> String {
    BASE64_STANDARD.encode(sha1::digest(&[key, GUID].concat()))
}

/// Returns whether a `sec-websocket-key` is one: 16 bytes in base64.
pub fn is_key(key: &[u8]) -> bool {
    BASE64_STANDARD.decode(key).is_ok_and(|key| key.len() == 16)
}

/// RFC 6455 has both sides put this behind the key.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
