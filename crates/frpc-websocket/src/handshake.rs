//! Keys of the WebSocket handshake.

use base64::{Engine, prelude::BASE64_STANDARD};

use crate::sha1;

/// Returns the `sec-websocket-accept` value for a `sec-websocket-key`. It proves that a server understands WebSocket.
///
/// ```
/// let accept = frpc_websocket::accept_key(b"dGhlIHNhbXBsZSBub25jZQ==");
/// assert_eq!(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
/// ```
pub fn accept_key(key: &[u8]) -> String {
    BASE64_STANDARD.encode(sha1::digest(&[key, GUID].concat()))
}

/// Returns `true` for a valid `sec-websocket-key`: 16 bytes in base64.
pub fn is_key(key: &[u8]) -> bool {
    BASE64_STANDARD.decode(key).is_ok_and(|key| key.len() == 16)
}

/// The suffix appended to the key before hashing (RFC 6455, section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
