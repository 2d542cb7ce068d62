//! A peer that writes raw frames.

use frpc_websocket::{Role, WebSocket};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

/// A client that writes raw bytes.
pub(crate) struct Peer(pub(crate) DuplexStream);

/// Returns a server, and a client that writes raw bytes to it.
pub(crate) fn serve() -> (WebSocket, Peer) {
    let (ours, theirs) = duplex(64 * 1024);
    (WebSocket::new(ours, Role::Server), Peer(theirs))
}

/// Returns a server and a client.
pub(crate) fn pair() -> (WebSocket, WebSocket) {
    let (ours, theirs) = duplex(64 * 1024);
    (WebSocket::new(ours, Role::Server), WebSocket::new(theirs, Role::Client))
}

/// Returns a masked client frame with these first bits.
pub(crate) fn frame(first: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match content.len() {
        len @ 0..=125 => bytes.push(0x80 | u8::try_from(len).unwrap()),
        len => {
            bytes.push(0x80 | 126);
            bytes.extend_from_slice(&u16::try_from(len).unwrap().to_be_bytes());
        }
    }
    let mask = [1, 2, 3, 4];
    bytes.extend_from_slice(&mask);
    bytes.extend(content.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

impl Peer {
    pub(crate) async fn say(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// Reads an unmasked frame shorter than 126 bytes: its first byte and its content.
    pub(crate) async fn hear(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 2];
        self.0.read_exact(&mut head).await.unwrap();
        let mut content = vec![0; head[1].into()];
        self.0.read_exact(&mut content).await.unwrap();
        (head[0], content)
    }

    /// Reads the code of a close frame, and the end of the stream after it.
    pub(crate) async fn hear_close(&mut self) -> u16 {
        let (first, content) = self.hear().await;
        assert_eq!(first, 0x88, "a close");
        assert_eq!(self.0.read(&mut [0; 1]).await.unwrap(), 0, "the end");
        u16::from_be_bytes([content[0], content[1]])
    }
}
