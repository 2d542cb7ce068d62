//! JSON-RPC over WebSocket.

use std::{
    io,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use frpc::{Status, shown};
use frpc_websocket::{MessageKind, WebSocket};

use super::link::MessageSocket;

impl MessageSocket for WebSocket {
    fn queue(&mut self, message: &[u8]) {
        Self::queue(self, MessageKind::Text, message);
    }

    fn queued(&self) -> usize {
        Self::queued(self)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let next = ready!(self.poll_message(cx)).transpose().map_err(io::Error::other)?;
        Poll::Ready(Ok(next.map(|message| message.data)))
    }

    fn refusal(&self) -> Option<Status> {
        let close = self.peer_close().filter(|close| close.code == MESSAGE_TOO_BIG)?;
        Some(Status::resource_exhausted(format!("the server refused a message as too long: {}", shown(&close.reason))))
    }
}

/// The close code for a message above the length limit of the peer (RFC 6455, section 7.4.1).
const MESSAGE_TOO_BIG: u16 = 1009;
