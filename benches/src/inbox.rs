use std::io;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::Frame;

/// Received bytes not consumed yet. A frame always starts at the front.
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
            // With spare room, the last read of a frame comes back short, which tells tokio that the socket is empty.
            self.buf.resize(frame_len + READ_LEN, 0);
        }
        let read = stream.read(&mut self.buf[self.filled..]).await?;
        self.filled += read;
        Ok(read > 0)
    }

    /// Returns all received bytes, including an incomplete frame.
    pub fn bytes(&self) -> &[u8] {
        &self.buf[..self.filled]
    }

    /// Returns all complete frames as one slice.
    pub fn frames(&self) -> io::Result<&[u8]> {
        let mut rest = self.bytes();
        while let Some((_, tail)) = Frame::split_from(rest)? {
            rest = tail;
        }
        Ok(&self.bytes()[..self.filled - rest.len()])
    }

    /// Removes the first `len` bytes, which must be whole frames.
    pub fn consume(&mut self, len: usize) {
        self.buf.copy_within(len..self.filled, 0);
        self.filled -= len;
    }
}

const READ_LEN: usize = 16 << 10;
