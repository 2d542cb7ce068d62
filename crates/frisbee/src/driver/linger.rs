//! Closing a socket without losing the last bytes written to it.

use std::io;

use bytes::BytesMut;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use crate::{Config, net::IoStream, proto::ForeignProtocol};

/// Refuses a client that speaks another protocol, and closes its socket.
pub(crate) async fn refuse(mut wire: IoStream, foreign: ForeignProtocol, config: &Config) {
    let _ = timeout(config.write_stall_max, wire.write_all(refusal(foreign))).await;
    let _ = timeout(config.linger_max, linger(&mut wire)).await;
}

/// Closes the write half and waits for the peer to close its half.
///
/// Closing a socket with unread input would reset it, and the reset could overtake the last packets.
pub(super) async fn linger(wire: &mut IoStream) -> io::Result<()> {
    wire.shutdown().await?;
    let mut discarded = BytesMut::with_capacity(LINGER_READ_LEN);
    while wire.read_buf(&mut discarded).await? > 0 {
        discarded.clear();
    }
    Ok(())
}

/// Returns a refusal in the protocol of the client, so that the client does not retry.
pub(super) fn refusal(foreign: ForeignProtocol) -> &'static [u8] {
    match foreign {
        // HTTP/2 clients recognize an HTTP/1.1 response.
        ForeignProtocol::Http1Client | ForeignProtocol::Http2Client => {
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 60\r\n\
              connection: close\r\n\r\nthis port does not speak HTTP: the server has no wire of it\n"
        }
        ForeignProtocol::TlsClient
        | ForeignProtocol::TlsServer
        | ForeignProtocol::Http1Server
        | ForeignProtocol::Http2Server => b"",
    }
}

const LINGER_READ_LEN: usize = 4 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_is_a_complete_response() {
        let text = str::from_utf8(refusal(ForeignProtocol::Http2Client)).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
    }
}
