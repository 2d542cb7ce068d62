use std::io;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::Frame;

/// Bytes that were read and not yet consumed; a frame always starts at the front.
#[derive(Debug)]
pub struct Inbox {
    buf: Vec<u8>,
    filled: usize,
}

impl Default for Inbox {
    fn default() -> Self {
        Self { buf: vec![0; READ_LEN], filled: 0 }
    }
}

impl Inbox {
    /// Reads once. Returns `false` at the end of the stream.
    pub async fn fill(&mut self, stream: &mut TcpStream) -> io::Result<bool> {
        let frame_len = Frame::announced_len(self.bytes())?.unwrap_or(0);
        if self.buf.len() < frame_len {
            // Room to spare lets the last read of a frame come back short, which tells tokio that the socket is empty.
            self.buf.resize(frame_len + READ_LEN, 0);
        }
        let read = stream.read(&mut self.buf[self.filled..]).await?;
        self.filled += read;
        Ok(read > 0)
    }

    /// The bytes read so far, complete or not.
    pub fn bytes(&self) -> &[u8] {
        &self.buf[..self.filled]
    }

    /// The complete frames, as one piece.
    pub fn frames(&self) -> io::Result<&[u8]> {
        let mut rest = self.bytes();
        while let Some((_, tail)) = Frame::split_from(rest)? {
            rest = tail;
        }
        Ok(&self.bytes()[..self.filled - rest.len()])
    }

    /// Forgets the first `len` bytes, which must be whole frames.
    pub fn consume(&mut self, len: usize) {
        self.buf.copy_within(len..self.filled, 0);
        self.filled -= len;
    }
}

const READ_LEN: usize = 16 << 10;
