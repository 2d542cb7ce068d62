//! A connection of WebSocket: each message is one of ours or of the server.

use std::{
    io,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use frpc_websocket::{Kind, WebSocket};

use super::link::Conduit;

impl Conduit for WebSocket {
    fn queue(&mut self, message: &[u8]) {
        Self::queue(self, Kind::Text, message);
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let next = ready!(self.poll_message(cx)).transpose().map_err(io::Error::other)?;
        Poll::Ready(Ok(next.map(|message| message.data)))
    }
}
