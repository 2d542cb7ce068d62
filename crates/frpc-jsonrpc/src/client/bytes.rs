//! JSON-RPC over a byte stream. Sent messages end with a line feed. Received messages are concatenated values.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use frpc_json::EndFinder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::poll_read_buf;

use super::link::MessageSocket;

/// Messages on a byte stream.
pub(super) struct JsonStream<S> {
    socket: S,
    input: BytesMut,
    ends: EndFinder,
    output: BytesMut,
    message_len_max: usize,
}

impl<S> JsonStream<S> {
    pub(super) fn new(socket: S, message_len_max: usize) -> Self {
        Self { socket, input: BytesMut::new(), ends: EndFinder::default(), output: BytesMut::new(), message_len_max }
    }

    /// Returns the next message if it is complete.
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        let invalid = |why: String| Err(io::Error::new(io::ErrorKind::InvalidData, why));
        if self.ends.examined_len() == 0 {
            let blank = self.input.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(self.input.len());
            self.input.advance(blank);
            if !matches!(self.input.first(), None | Some(b'{' | b'[')) {
                let seen = self.input[..self.input.len().min(SEEN_LEN)].escape_ascii();
                let spoken = match &*self.input {
                    input if input.starts_with(b"HTTP/1") => {
                        "HTTP: for JSON-RPC over HTTP, use an address such as jsonrpc+http://HOST/PATH"
                    }
                    [0, 0, ..] => "HTTP/2, gRPC or frisbee",
                    [0x15, 3, ..] => "TLS",
                    _ => "something other than JSON-RPC",
                };
                return invalid(format!("the server speaks {spoken} (it sent \"{seen}\")"));
            }
        }
        if self.ends.is_found(&self.input) {
            let len = std::mem::take(&mut self.ends).examined_len();
            return Ok(Some(self.input.split_to(len).freeze()));
        }
        if self.input.len() > self.message_len_max {
            let why = format!("a message of the server exceeds the limit of {} bytes", self.message_len_max);
            return Err(io::Error::other(why));
        }
        Ok(None)
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> MessageSocket for JsonStream<S> {
    fn queue(&mut self, message: &[u8]) {
        self.output.extend_from_slice(message);
        self.output.extend_from_slice(b"\n");
    }

    fn queued(&self) -> usize {
        self.output.len()
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.output.is_empty() {
            let len = ready!(Pin::new(&mut self.socket).poll_write(cx, &self.output))?;
            if len == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.output.advance(len);
        }
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            if let Some(message) = self.next()? {
                return Poll::Ready(Ok(Some(message)));
            }
            self.input.reserve(READ_LEN.max(self.input.len()));
            if ready!(poll_read_buf(Pin::new(&mut self.socket), cx, &mut self.input))? == 0 {
                return Poll::Ready(Ok(None));
            }
        }
    }
}

/// The number of bytes shown in the error for an unknown protocol.
const SEEN_LEN: usize = 16;

/// The minimum free space for a read.
const READ_LEN: usize = 8 << 10;
