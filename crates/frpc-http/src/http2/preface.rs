//! The first bytes of an HTTP/2 connection: the preface and the settings of the peer.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    task::{Poll, ready},
    time::Duration,
};

use bytes::BytesMut;
use frpc::{Drain, Raw};
use tokio::time::sleep;
use tokio_util::io::poll_read_buf;

use crate::{
    message::greeting::{self, Http2Settings},
    write_timeout::WriteTimeout,
};

/// Reads the preface of a connection and puts all bytes back for the HTTP/2 implementation.
///
/// Returns `None` if the preface does not arrive in time, or if the server shuts down first. The connection has no
/// request then. Bytes other than a preface are left to the HTTP/2 implementation, which refuses them.
pub(crate) async fn read_preface(
    socket: &mut WriteTimeout<Raw>,
    time_max: Duration,
    drain: &Drain,
) -> Option<Http2Settings> {
    let mut seen = BytesMut::new();
    let reading = poll_fn(|cx| {
        loop {
            if let Some(greeting) = parse(&seen) {
                return Poll::Ready(io::Result::Ok(greeting));
            }
            seen.reserve(READ_LEN);
            if ready!(poll_read_buf(Pin::new(&mut *socket), cx, &mut seen))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    });
    let read = tokio::select! {
        biased;
        read = reading => read.ok(),
        () = drain.requested() => None,
        () = sleep(time_max) => None,
    };
    socket.get_mut().put_back(seen.freeze());
    read
}

/// Parses the settings after the preface. Returns `None` if more bytes are needed.
fn parse(seen: &[u8]) -> Option<Http2Settings> {
    match seen.strip_prefix(MAGIC) {
        Some(frame) => greeting::parse(frame),
        None if MAGIC.starts_with(seen) => None,
        None => Some(Http2Settings::default()),
    }
}

const MAGIC: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The minimum room in the buffer before a read.
const READ_LEN: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_preface_is_recognized_immediately() {
        for len in 0..MAGIC.len() {
            assert_eq!(parse(&MAGIC[..len]), None, "{len}");
        }
        assert_eq!(parse(b"PRI * HTTP/3"), Some(Http2Settings::default()));
        assert_eq!(parse(&[MAGIC, b"\0\0\0\x04\0\0\0\0\0"].concat()), Some(Http2Settings::default()));
    }
}
