//! An HTTP/1.1 connection while its requests are plain.

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
    idle_timer::IdleTimer,
    response,
};
use crate::{
    serve::{self, ResponseBody, ServeContext},
    write_timeout::WriteTimeout,
};

/// Serves a connection while its requests are plain. Returns the socket at the first other request.
pub(crate) async fn serve(site: &ServeContext, socket: WriteTimeout<Raw>, drain: &Drain) -> Option<WriteTimeout<Raw>> {
    let mut connection = PlainConnection { site, socket, input: BytesMut::new(), output: Vec::new(), written: 0 };
    let mut idle_timer = IdleTimer::new(drain, site.settings.head_time_max);
    match connection.serve(&mut idle_timer).await {
        Ok(PlainOutcome::OtherRequest) => Some(connection.into_socket()),
        Ok(PlainOutcome::Closed) => {
            // The peer may be gone already.
            let _ = connection.socket.shutdown().await;
            None
        }
        Err(error) => {
            tracing::debug!(%error, "an HTTP/1.1 connection ended");
            None
        }
    }
}

struct PlainConnection<'a> {
    site: &'a ServeContext,
    socket: WriteTimeout<Raw>,
    /// Received bytes, not parsed yet.
    input: BytesMut,
    /// Response bytes to be written.
    output: Vec<u8>,
    /// The number of bytes of `output` already written.
    written: usize,
}

/// The reason why plain requests ended.
enum PlainOutcome {
    /// The next request is not plain.
    OtherRequest,
    /// The connection has no more requests.
    Closed,
}

impl PlainConnection<'_> {
    async fn serve(&mut self, idle_timer: &mut IdleTimer<'_>) -> io::Result<PlainOutcome> {
        let head_len_max = usize::try_from(self.site.settings.head_len_max).unwrap_or(usize::MAX);
        // A longer head is never plain.
        let head_len_max = head_len_max.min(usize::from(u16::MAX));
        // Keeps a head received in parts from restarting the timeout with each part.
        let mut is_waiting = false;
        loop {
            if self.input.is_empty() {
                self.flush().await?;
                self.free();
                idle_timer.begin();
                is_waiting = true;
                if !self.receive(idle_timer).await? {
                    return Ok(PlainOutcome::Closed);
                }
            }
            match head::take(&mut self.input, head_len_max, &self.site.additions.rest) {
                Ok(request) => {
                    is_waiting = false;
                    if !self.answer(request, idle_timer).await? {
                        self.flush().await?;
                        return Ok(PlainOutcome::Closed);
                    }
                }
                Err(NotPlain::Partial) => {
                    self.flush().await?;
                    if !std::mem::replace(&mut is_waiting, true) {
                        idle_timer.begin();
                    }
                    if !self.receive_line(head_len_max, idle_timer).await? {
                        return Ok(PlainOutcome::Closed);
                    }
                }
                Err(NotPlain::Other) => {
                    self.flush().await?;
                    return Ok(PlainOutcome::OtherRequest);
                }
            }
        }
    }

    /// Answers a request. Returns `true` if the connection stays open.
    async fn answer(&mut self, request: PlainRequest, idle_timer: &mut IdleTimer<'_>) -> io::Result<bool> {
        let PlainRequest { parts, body_len, mut is_last } = request;
        let is_here = body_len <= self.input.len();
        let (body, mut rest) = if is_here {
            (PlainBody::Here(self.input.split_to(body_len).freeze()), None)
        } else {
            let (rest, coming) = oneshot::channel();
            // The handler starts before its body is complete, so that its timeouts apply to the wait as well.
            (PlainBody::Coming(coming, body_len), Some(rest))
        };
        let mut responding = pin!(serve::respond(self.site, parts, body));
        // Set when the peer closed its side before the end of the request body.
        let mut is_cut = false;
        let response = poll_fn(|cx| {
            loop {
                if let Poll::Ready(response) = responding.as_mut().poll(cx) {
                    return Poll::Ready(Ok(response));
                }
                // Responses to earlier requests must not wait for this one.
                if let Poll::Ready(Err(error)) = self.poll_flush(cx) {
                    return Poll::Ready(Err(error));
                }
                if is_cut {
                    return Poll::Pending;
                }
                if ready!(self.poll_receive(cx))? == 0 {
                    is_cut = rest.take().is_some();
                    if !is_cut {
                        // The peer may be gone, or may still read the response. The call has `half_closed_max` to end.
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
        is_last |= is_cut || idle_timer.is_draining();
        is_last = self.put(response, is_last).await?;
        if rest.is_some() {
            // A peer that is still sending may not read, so the rest of its body is read and dropped.
            self.flush().await?;
            idle_timer.begin();
            while self.input.len() < body_len {
                if !self.receive(idle_timer).await? {
                    return Ok(false);
                }
            }
            self.input.advance(body_len);
        }
        Ok(!is_last)
    }

    /// Writes a response immediately, or buffers it to be written with the next. Returns `true` if it is the last one.
    async fn put(&mut self, response: Response<ResponseBody>, is_last: bool) -> io::Result<bool> {
        let (mut parts, body) = response.into_parts();
        let mut content =
            body.into_content().ok_or_else(|| io::Error::other("a plain request got a streaming response"))?;
        let is_last = response::check(&mut parts, &mut content) || is_last;
        let capitals = self.site.additions.has_capitals();
        response::put_head(&mut self.output, &parts, content.len(), capitals, is_last);
        // Short content joins its head in one write. Long content is not worth the copy.
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

    /// Waits for more input. Returns `false` if the connection ended, timed out or is shutting down.
    async fn receive(&mut self, idle_timer: &mut IdleTimer<'_>) -> io::Result<bool> {
        poll_fn(|cx| match self.poll_receive(cx) {
            Poll::Ready(received) => Poll::Ready(received.map(|len| len > 0)),
            Poll::Pending => idle_timer.poll(cx).map(|()| Ok(false)),
        })
        .await
    }

    /// Waits for the end of a line of a head. A head received in small pieces is therefore not parsed again for each
    /// piece.
    ///
    /// Returns `true` with a whole line, or with more bytes than a head may have.
    async fn receive_line(&mut self, head_len_max: usize, idle_timer: &mut IdleTimer<'_>) -> io::Result<bool> {
        let mut seen = self.input.len();
        loop {
            if !self.receive(idle_timer).await? {
                return Ok(false);
            }
            if self.input.len() > head_len_max || self.input[seen..].contains(&b'\n') {
                return Ok(true);
            }
            seen = self.input.len();
        }
    }

    /// Reads from the socket. Stays pending while enough input is buffered.
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

    /// Frees buffers that grew for a large request or response.
    fn free(&mut self) {
        if self.input.capacity() > KEPT_LEN {
            self.input = BytesMut::new();
        }
        self.output.shrink_to(KEPT_LEN);
    }

    fn into_socket(mut self) -> WriteTimeout<Raw> {
        self.socket.get_mut().put_back(self.input.freeze());
        self.socket
    }
}

/// The maximum input buffered while a request is being answered. It is enough for the body of that request.
const READ_AHEAD_MAX: usize = BODY_LEN_MAX;

/// The length of buffered output that is written immediately, without waiting for more responses.
const OUTPUT_LEN_MAX: usize = 64 * 1024;

/// The maximum content length copied into the output buffer. Longer content is written separately.
const COPIED_LEN_MAX: usize = 16 * 1024;

/// The maximum capacity that an idle connection keeps for input, and for output.
const KEPT_LEN: usize = 16 * 1024;

/// The minimum room in the buffer before a read.
const READ_LEN: usize = 4 * 1024;
