//! The services of a server, and parts of a response shared by all protocols.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use frpc::{
    Answer, Body, CallCounter, Drain, Endpoint, HandlerPermit, Head, MemoryAccount, Metadata, Method, MethodHandle,
    Status, WirePeer,
    codec::{CodecError, Format},
};
use http::{Extensions, HeaderMap, HeaderValue, Response, StatusCode, header::CONTENT_TYPE, request::Parts};
use tokio::time::{Instant, timeout_at};

use super::body::ResponseBody;
use crate::{
    headers::{ADDED_LEN, list_len, metadata},
    settings::{Additions, HttpSettings},
};

/// The services of a connection or a server, with the settings to serve them.
#[derive(Debug)]
pub(crate) struct ServeContext {
    pub(crate) endpoint: Endpoint,
    pub(crate) settings: Arc<HttpSettings>,
    pub(crate) additions: Additions,
    /// The memory account of the connection, or of the whole server if this serves all connections.
    pub(crate) account: MemoryAccount,
    /// The other end of the connection, if this serves one connection.
    pub(crate) peer: Option<WirePeer>,
    /// The running unary calls of the connection, if this serves one connection.
    pub(crate) calls: Option<CallCounter>,
    /// The shutdown signal. `None` inside a foreign HTTP server.
    pub(crate) drain: Option<Drain>,
    /// The header size limit announced by the caller, as HTTP/2 counts header lists.
    pub(crate) answer_head_len_max: Option<usize>,
}

impl ServeContext {
    /// Returns the head of the call made by a request, with its timeout.
    ///
    /// # Errors
    ///
    /// If the metadata is too large or contains invalid base64, or if the timeout is zero.
    pub(super) fn call_head(&self, request: &Parts, time: Option<Duration>) -> Result<Head, Status> {
        let metadata = self.metadata(&request.headers)?;
        self.head_of(&metadata, time, self.peer(&request.extensions))
    }

    /// Returns the head of a call with this metadata and timeout.
    ///
    /// # Errors
    ///
    /// If the timeout is zero.
    pub(super) fn head_of(
        &self,
        metadata: &Metadata,
        time: Option<Duration>,
        peer: Option<&WirePeer>,
    ) -> Result<Head, Status> {
        let mut head = Head::default();
        // Mutable access allocates, even for empty metadata.
        if !metadata.is_empty() {
            head.metadata_mut().clone_from(metadata);
        }
        if time.is_some_and(|time| time.is_zero()) {
            return Err(Status::deadline_exceeded("the timeout of the call is zero"));
        }
        set_deadline(&mut head, time);
        if let Some(peer) = peer {
            head.set_peer(peer);
        }
        if self.settings.strict_json {
            head.set_strict_json();
        }
        Ok(head)
    }

    /// Returns the metadata in the headers of a request.
    ///
    /// # Errors
    ///
    /// If the metadata is too large or contains invalid base64.
    pub(super) fn metadata(&self, headers: &HeaderMap) -> Result<Metadata, Status> {
        let metadata = metadata::from_headers(headers)?;
        let (len, max) = (metadata.size() + 2 * metadata.len(), self.endpoint.metadata_len_max());
        if len > max {
            let message = format!("the metadata has {len} bytes and exceeds the limit of {max}");
            return Err(Status::resource_exhausted(message));
        }
        Ok(metadata)
    }

    /// Returns the caller of a request. A foreign HTTP server provides it as an extension of the request.
    pub(super) fn peer<'a>(&'a self, extensions: &'a Extensions) -> Option<&'a WirePeer> {
        self.peer.as_ref().or_else(|| extensions.get())
    }
}

impl ServeContext {
    /// Calls a unary method once the server allows one more handler.
    ///
    /// # Errors
    ///
    /// The status of the handler, or of a call that is beyond the limit of its connection or waits for too long.
    pub(super) async fn call_unary(
        &self,
        method: MethodHandle,
        format: Format,
        head: Head,
        body: Body,
    ) -> Result<Answer, Status> {
        let _counted = self.calls.as_ref().map(|calls| self.endpoint.count_unary(calls)).transpose()?;
        let (_permit, arrived) = self.handler_permit(&head).await?;
        match arrived {
            None => self.endpoint.call_unary(method, format, head, body).await,
            Some(arrived) => self.endpoint.call_unary_queued(method, format, head, body, arrived.into_std()).await,
        }
    }

    /// Waits until the server allows one more handler. Returns the start of a wait, too.
    async fn handler_permit(&self, head: &Head) -> Result<(Option<HandlerPermit>, Option<Instant>), Status> {
        let Some(drain) = &self.drain else { return Ok((None, None)) };
        if let Some(permit) = drain.try_handler_permit() {
            return Ok((Some(permit), None));
        }
        let arrived = Instant::now();
        // Boxed to keep calls without a wait small.
        let waiting = Box::pin(drain.handler_permit());
        let permit = match head.deadline() {
            Some(due) => timeout_at(due.into(), waiting).await.map_err(|_| {
                Status::deadline_exceeded("the time of the call was over before its handler could begin")
            })?,
            None => waiting.await,
        };
        Ok((Some(permit), Some(arrived)))
    }
}

impl ServeContext {
    /// Checks that response headers fit the limit of the caller.
    ///
    /// # Errors
    ///
    /// If they are too large. Sending them would end the call, or the connection, without a clear reason.
    pub(super) fn check_answer_head(&self, headers: &HeaderMap) -> Result<(), Status> {
        self.answer_head_len_max.map_or(Ok(()), |max| check_len(headers, max.saturating_sub(ADDED_LEN)))
    }
}

/// Sets the deadline of a call that begins now. A timeout beyond the range of the clock sets none.
pub(super) fn set_deadline(head: &mut Head, time: Option<Duration>) {
    if let Some(at) = time.and_then(|time| Instant::now().checked_add(time)) {
        head.set_deadline(at.into_std());
    }
}

/// Checks the size of response headers or trailers.
///
/// # Errors
///
/// If they are larger than `max`.
pub(super) fn check_len(headers: &HeaderMap, max: usize) -> Result<(), Status> {
    let len = list_len(headers);
    if len > max {
        let text = format!(
            "the metadata and other headers of the response have {len} bytes; the caller accepts at most {max}"
        );
        return Err(Status::resource_exhausted(text));
    }
    Ok(())
}

/// Returns the media type of a body, without parameters such as a character set.
pub(super) fn media_type(headers: &HeaderMap) -> &[u8] {
    let value = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let end = value.iter().position(|byte| matches!(byte, b';' | b' '));
    &value[..end.unwrap_or(value.len())]
}

/// Checks that a call in this format is possible for the codec of a method.
pub(super) fn check_codec(method: &Method, format: Format) -> Result<(), Status> {
    match method.codec() {
        Some(codec) if format == Format::Proto && codec != "proto" => {
            let error = CodecError::OtherCodec { codec, format };
            Err(Status::unimplemented(format!("{method}: {error}")))
        }
        // The message types decide about JSON: their codec may support it.
        _ => Ok(()),
    }
}

/// Refuses a request with an error text for people.
pub(crate) fn refuse(status: StatusCode, text: &'static str) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::from(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
