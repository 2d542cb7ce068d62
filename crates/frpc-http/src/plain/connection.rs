//! A connection, as long as its requests are plain.

use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use bytes::{Buf, BytesMut};
use frpc::{Drain, Raw};
use http::Response;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::oneshot,
};
use tokio_util::io::poll_read_buf;

use super::{
    body::PlainBody,
    head::{self, BODY_LEN_MAX, NotPlain, PlainRequest},
    patience::Patience,
    response,
};
use crate::{
    serve::{self, ResponseBody, Site},
    standstill::Standstill,
};

/// Serves a connection as long as its requests are plain. Returns it at the first that is not.
pub(crate) async fn serve(site: &Site, socket: Standstill<Raw>, drain: &Drain) -> Option<Standstill<Raw>> {
    let mut connection = Connection { site, socket, input: BytesMut::new(), output: Vec::new(), written: 0 };
    let mut patience = Patience::new(drain, site.settings.head_time_max);
    match connection.serve(&mut patience).await {
        Ok(End::Left) => Some(connection.into_socket()),
        Ok(End::Closed) => {
            // To a peer that may be gone.
            let _ = connection.socket.shutdown().await;
            None
        }
        Err(error) => {
            tracing::debug!(%error, "a connection of HTTP/1.1 ended");
            None
        }
    }
}

struct Connection<'a> {
    site: &'a Site,
    socket: Standstill<Raw>,
    /// Bytes that were read and not yet looked at.
    input: BytesMut,
    /// Bytes that are to be written.
    output: Vec<u8>,
    /// The length of those that are.
    written: usize,
}

/// The end of plain requests.
enum End {
    /// The next one is not plain.
    Left,
    /// There are no more.
    Closed,
}

impl Connection<'_> {
    async fn serve(&mut self, patience: &mut Patience<'_>) -> io::Result<End> {
        let head_len_max = usize::try_from(self.site.settings.head_len_max).unwrap_or(usize::MAX);
        // Longer ones are never plain.
        let head_len_max = head_len_max.min(usize::from(u16::MAX));
        let mut is_waiting = false;
        loop {
            if self.input.is_empty() {
                self.flush().await?;
                self.free();
                patience.begin();
                is_waiting = true;
                if !self.receive(patience).await? {
                    return Ok(End::Closed);
                }
            }
            match head::take(&mut self.input, head_len_max) {
                Ok(request) => {
                    is_waiting = false;
                    if !self.answer(request, patience).await? {
                        self.flush().await?;
                        return Ok(End::Closed);
                    }
                }
                Err(NotPlain::Partial) => {
                    self.flush().await?;
                    if !std::mem::replace(&mut is_waiting, true) {
                        patience.begin();
                    }
                    if !self.receive_line(head_len_max, patience).await? {
                        return Ok(End::Closed);
                    }
                }
                Err(NotPlain::Other) => {
                    self.flush().await?;
                    return Ok(End::Left);
                }
            }
        }
    }

    /// Answers a request. Returns whether the connection goes on.
    async fn answer(&mut self, request: PlainRequest, patience: &mut Patience<'_>) -> io::Result<bool> {
        let PlainRequest { parts, body_len, mut is_last } = request;
        let is_here = body_len <= self.input.len();
        let (body, mut rest) = if is_here {
            (PlainBody::Here(self.input.split_to(body_len).freeze()), None)
        } else {
            let (rest, coming) = oneshot::channel();
            (PlainBody::Coming(coming, body_len), Some(rest))
        };
        let mut responding = pin!(serve::respond(self.site, parts, body));
        // The peer says nothing more, and has not sent all of the request.
        let mut is_cut = false;
        let response = poll_fn(|cx| {
            loop {
                if let Poll::Ready(response) = responding.as_mut().poll(cx) {
                    return Poll::Ready(Ok(response));
                }
                // Answers to earlier requests do not wait for this one.
                if let Poll::Ready(Err(error)) = self.poll_flush(cx) {
                    return Poll::Ready(Err(error));
                }
                if is_cut {
                    return Poll::Pending;
                }
                if ready!(self.poll_receive(cx))? == 0 {
                    is_cut = rest.take().is_some();
                    if !is_cut {
                        // It may still read the answer, or be gone.
                        ready!(self.socket.poll_half_closed(cx));
                        return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                    }
                } else if self.input.len() < body_len {
                    continue;
                } else if let Some(rest) = rest.take() {
                    let _ = rest.send(self.input.split_to(body_len).freeze());
                }
            }
        });
        let response = response.await?;
        is_last |= is_cut || patience.is_draining();
        is_last = self.put(response, is_last).await?;
        if rest.is_some() {
            // A peer that is still writing does not read what would tell it to stop.
            self.flush().await?;
            patience.begin();
            while self.input.len() < body_len {
                if !self.receive(patience).await? {
                    return Ok(false);
                }
            }
            self.input.advance(body_len);
        }
        Ok(!is_last)
    }

    /// Writes a response, at once or together with the next. Returns whether it is the last of the connection.
    async fn put(&mut self, response: Response<ResponseBody>, is_last: bool) -> io::Result<bool> {
        let (mut parts, body) = response.into_parts();
        let mut content = body.into_content().ok_or_else(|| io::Error::other("a stream where there is none"))?;
        let is_last = response::check(&mut parts, &mut content) || is_last;
        let capitals = self.site.settings.has_capitals();
        response::put_head(&mut self.output, &parts, content.len(), capitals, is_last);
        if content.len() <= COPIED_LEN_MAX {
            self.output.extend_from_slice(&content);
        } else {
            self.flush().await?;
            self.socket.write_all(&content).await?;
            self.socket.flush().await?;
        }
        if self.output.len() > OUTPUT_LEN_MAX {
            self.flush().await?;
        }
        Ok(is_last)
    }

    /// Waits for more of a request, or the next one. Returns whether there is some.
    async fn receive(&mut self, patience: &mut Patience<'_>) -> io::Result<bool> {
        poll_fn(|cx| match self.poll_receive(cx) {
            Poll::Ready(received) => Poll::Ready(received.map(|len| len > 0)),
            Poll::Pending => patience.poll(cx).map(|()| Ok(false)),
        })
        .await
    }

    /// Waits for the end of a line of a head, so that one that comes in small pieces is not looked at with each. Returns whether it is
    /// here, or more than a head may have.
    async fn receive_line(&mut self, head_len_max: usize, patience: &mut Patience<'_>) -> io::Result<bool> {
        let mut seen = self.input.len();
        loop {
            if !self.receive(patience).await? {
                return Ok(false);
            }
            if self.input.len() > head_len_max || self.input[seen..].contains(&b'\n') {
                return Ok(true);
            }
            seen = self.input.len();
        }
    }

    /// Reads, unless enough has been read for now.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.input.len() > READ_AHEAD_MAX {
            return Poll::Pending;
        }
        self.input.reserve(READ_LEN);
        poll_read_buf(Pin::new(&mut self.socket), cx, &mut self.input)
    }

    async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.output.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let mut socket = Pin::new(&mut self.socket);
        while self.written < self.output.len() {
            match ready!(socket.as_mut().poll_write(cx, &self.output[self.written..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                len => self.written += len,
            }
        }
        ready!(socket.poll_flush(cx))?;
        self.written = 0;
        self.output.clear();
        Poll::Ready(Ok(()))
    }

    /// Frees memory that only a large request or answer took.
    fn free(&mut self) {
        if self.input.capacity() > KEPT_LEN {
            self.input = BytesMut::new();
        }
        self.output.shrink_to(KEPT_LEN);
    }

    fn into_socket(mut self) -> Standstill<Raw> {
        self.socket.get_mut().put_back(self.input.freeze());
        self.socket
    }
}

/// The most that is read behind a request that is being answered, which is enough for its body.
const READ_AHEAD_MAX: usize = BODY_LEN_MAX;

/// The length of answers that do not wait for more of them.
const OUTPUT_LEN_MAX: usize = 64 * 1024;

/// The longest content that is copied behind the head of its response.
const COPIED_LEN_MAX: usize = 16 * 1024;

/// The most memory that a connection without requests keeps for input, and for output.
const KEPT_LEN: usize = 16 * 1024;

/// The least room to read into.
const READ_LEN: usize = 4 * 1024;
