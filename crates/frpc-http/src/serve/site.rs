//! The services that requests are for, and the parts of an answer that all protocols share.

use std::time::Duration;

use bytes::Bytes;
use frpc::{
    Drain, Endpoint, Head, MemoryAccount, Metadata, Method, Peer, Status,
    codec::{CodecError, Format},
};
use http::{Extensions, HeaderMap, HeaderValue, Response, StatusCode, header::CONTENT_TYPE, request::Parts};
use tokio::time::Instant;

use super::body::ResponseBody;
use crate::{
    headers::{ADDED_LEN, list_len, metadata},
    settings::Settings,
};

/// The services that requests are for, and how they are served.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) endpoint: Endpoint,
    pub(crate) settings: Settings,
    /// For the messages of the connection, or of the server if this is for all connections.
    pub(crate) account: MemoryAccount,
    /// The other end of the connection that requests come on, if this is for one connection.
    pub(crate) peer: Option<Peer>,
    /// Absent if the server is not ours.
    pub(crate) drain: Option<Drain>,
    /// The size of headers that callers take, as HTTP/2 counts them, if they say so.
    pub(crate) answer_head_len_max: Option<usize>,
}

impl Site {
    /// Returns the head of the call that a request makes, with the time that its caller gives it.
    ///
    /// # Errors
    ///
    /// If the metadata among the headers is too large, or binary and not base64, or if there is no time.
    pub(super) fn call_head(&self, request: &Parts, time: Option<Duration>) -> Result<Head, Status> {
        let mut head = Head::default();
        let metadata = self.metadata(&request.headers)?;
        // Writing takes memory, even of nothing.
        if !metadata.is_empty() {
            *head.metadata_mut() = metadata;
        }
        if time.is_some_and(|time| time.is_zero()) {
            return Err(Status::deadline_exceeded("the caller gives the call no time"));
        }
        if let Some(at) = time.and_then(|time| Instant::now().checked_add(time)) {
            head.set_deadline(at.into_std());
        }
        if let Some(peer) = self.peer(&request.extensions) {
            head.set_peer(peer);
        }
        if self.settings.strict_json {
            head.set_strict_json();
        }
        Ok(head)
    }

    /// Returns the metadata among the headers of a request.
    ///
    /// # Errors
    ///
    /// If it is too large, or binary and not base64.
    pub(super) fn metadata(&self, headers: &HeaderMap) -> Result<Metadata, Status> {
        let metadata = metadata::from_headers(headers)?;
        let (len, max) = (metadata.size() + 2 * metadata.len(), self.endpoint.metadata_len_max());
        if len > max {
            let message = format!("metadata of {len} bytes is longer than the {max} that are accepted");
            return Err(Status::resource_exhausted(message));
        }
        Ok(metadata)
    }

    /// Returns the peer that made a request. A server of HTTP that somebody else runs puts it into the extensions.
    pub(super) fn peer<'a>(&'a self, extensions: &'a Extensions) -> Option<&'a Peer> {
        self.peer.as_ref().or_else(|| extensions.get())
    }
}

impl Site {
    /// Checks that the headers of an answer are not more than its caller takes.
    ///
    /// # Errors
    ///
    /// If they are, which would end the call, or the connection, with an error that names no reason.
    pub(super) fn check_answer_head(&self, headers: &HeaderMap) -> Result<(), Status> {
        self.answer_head_len_max.map_or(Ok(()), |max| check_len(headers, max.saturating_sub(ADDED_LEN)))
    }
}

/// Checks the size of headers or trailers of an answer.
///
/// # Errors
///
/// If they are larger than this.
pub(super) fn check_len(headers: &HeaderMap, max: usize) -> Result<(), Status> {
    let len = list_len(headers);
    if len > max {
        let text = format!(
            "the answer has {len} bytes of metadata and other headers, more than the {max} that its caller takes"
        );
        return Err(Status::resource_exhausted(text));
    }
    Ok(())
}

/// Returns the media type of a body. Its parameters, such as a character set, say nothing here.
pub(super) fn media_type(headers: &HeaderMap) -> &[u8] {
    let value = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let end = value.iter().position(|byte| matches!(byte, b';' | b' '));
    &value[..end.unwrap_or(value.len())]
}

/// Checks that the messages of a method are in a format that a caller asks for.
pub(super) fn check_codec(method: &Method, format: Format) -> Result<(), Status> {
    match method.codec() {
        Some(codec) if format == Format::Proto && codec != "proto" => {
            let error = CodecError::OtherCodec { codec, format };
            Err(Status::unimplemented(format!("{method}: {error}")))
        }
        // A message says by itself whether it is in JSON.
        _ => Ok(()),
    }
}

/// Refuses a request with words for people.
pub(super) fn refuse(status: StatusCode, text: &'static str) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::from(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
