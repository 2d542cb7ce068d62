//! Requests, and the header blocks of repeated ones.

use std::sync::Arc;

use bytes::Bytes;
use frpc::Status;
use frpc_http2::{Connection, Field, Header, OpenError, PreparedBlock, SendError, StreamId};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request,
    header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE},
    uri::{Authority, PathAndQuery},
};
use http_body::Body;

use crate::{
    client::outgoing::{MessageFrame, OutgoingBody},
    message::envelope,
};

/// A request.
pub(in crate::client) struct Http2Request {
    pub(in crate::client) head: Arc<MethodHead>,
    /// `true` if other requests have the same headers, in the same allocation.
    pub(in crate::client) is_repeated: bool,
    /// A header in addition. Boxed, because most calls have the same timeout, as a part of `headers`.
    pub(in crate::client) timeout: Option<Box<(HeaderName, HeaderValue)>>,
    pub(in crate::client) content: Http2Content,
}

/// The parts of a head in common between calls of a method.
pub(in crate::client) struct MethodHead {
    pub(in crate::client) method: Method,
    pub(in crate::client) path: PathAndQuery,
    pub(in crate::client) headers: Arc<HeaderMap>,
}

/// The content of a request.
pub(in crate::client) enum Http2Content {
    /// A framed message that is sent with its head.
    Short(ShortMessage),
    /// Boxed, because a request with a short message moves several times.
    Body(Box<OutgoingBody>),
}

/// An uncompressed message, and the header of its frame.
pub(in crate::client) struct ShortMessage {
    header: [u8; envelope::HEADER_LEN],
    content: Bytes,
}

impl ShortMessage {
    /// Creates a message of at most [`LEN_MAX`](Self::LEN_MAX) bytes.
    pub(in crate::client) fn new(content: Bytes) -> Result<Self, Status> {
        debug_assert!(content.len() <= Self::LEN_MAX, "longer messages are sent without a copy");
        Ok(Self { header: envelope::header(0, content.len())?, content })
    }

    /// Returns the frame.
    pub(in crate::client) fn frame(&self) -> MessageFrame {
        MessageFrame::new(Bytes::copy_from_slice(&self.header), self.content.clone())
    }

    /// Sends the message. Returns it as a body if the connection has no room for it.
    pub(super) fn send(&self, core: &mut Connection, stream: StreamId) -> Option<Box<OutgoingBody>> {
        match core.send_slices(stream, [&self.header, &self.content], true) {
            Err(SendError::Full) => Some(Box::new(OutgoingBody::Framed(self.frame()))),
            // A stream that is gone gets an event.
            _ => None,
        }
    }

    /// The maximum length. Longer messages are not copied.
    pub(in crate::client) const LEN_MAX: usize = 4 << 10;
}

impl Http2Content {
    /// Returns the body, unless it is empty: such a request is complete with its head.
    pub(super) fn into_body(self) -> Option<Box<OutgoingBody>> {
        match self {
            Self::Short(message) => Some(Box::new(OutgoingBody::Framed(message.frame()))),
            Self::Body(body) => Some(body).filter(|body| !body.is_end_stream()),
        }
    }
}

impl From<Request<OutgoingBody>> for Http2Request {
    fn from(request: Request<OutgoingBody>) -> Self {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let headers = Arc::new(parts.headers);
        Self {
            head: Arc::new(MethodHead { method: parts.method, path, headers }),
            is_repeated: false,
            timeout: None,
            content: Http2Content::Body(Box::new(body)),
        }
    }
}

/// The heads of a connection: the parts that all of them have, and the blocks of repeated ones.
pub(super) struct RequestHeads {
    scheme: &'static str,
    authority: Authority,
    repeated: Vec<RepeatedHead>,
}

struct RepeatedHead {
    head: Arc<MethodHead>,
    block: PreparedBlock,
}

impl RequestHeads {
    pub(super) fn new(is_secure: bool, authority: Authority) -> Self {
        Self { scheme: if is_secure { "https" } else { "http" }, authority, repeated: Vec::new() }
    }

    /// Opens a stream for a request.
    pub(super) fn open(&mut self, core: &mut Connection, request: &Http2Request) -> Result<StreamId, OpenError> {
        let is_end = matches!(&request.content, Http2Content::Body(body) if body.is_end_stream());
        let timeout = request.timeout.as_deref();
        let timeout = timeout.map(|(name, value)| [Field::new(name.as_str(), value.as_bytes())]);
        let timeout = timeout.as_ref().map_or(&[][..], |field| &field[..]);
        if let Some(block) = self.block(core, request) {
            return core.open(Header::prepared(block).with_fields(timeout), is_end);
        }
        let mut len_text = itoa::Buffer::new();
        let mut fields = self.fields(request, Field::new);
        fields.extend_from_slice(timeout);
        if let Some(len) = content_length(request) {
            fields.push(Field::new("content-length", len_text.format(len)));
        }
        core.open(Header::fields(&fields), is_end)
    }

    /// Returns the block of a repeated head.
    fn block(&mut self, core: &mut Connection, request: &Http2Request) -> Option<PreparedBlock> {
        let head = &request.head;
        if !request.is_repeated || content_length(request).is_some() {
            return None;
        }
        let same = |known: &&RepeatedHead| {
            Arc::ptr_eq(&known.head, head)
                || Arc::ptr_eq(&known.head.headers, &head.headers)
                    && known.head.path == head.path
                    && known.head.method == head.method
        };
        if let Some(known) = self.repeated.iter().find(same) {
            return Some(known.block);
        }
        if head.method != Method::POST || self.repeated.len() >= REPEATED_MAX {
            return None;
        }
        let block = core.prepare(&self.fields(request, Field::repeated));
        self.repeated.push(RepeatedHead { head: head.clone(), block });
        Some(block)
    }

    fn fields<'a>(&'a self, request: &'a Http2Request, field: fn(&'a str, &'a [u8]) -> Field<'a>) -> Vec<Field<'a>> {
        let head = &request.head;
        let mut fields = Vec::with_capacity(head.headers.len() + 6);
        // `core.open` expects the method first.
        fields.push(Field::new(":method", head.method.as_str()));
        fields.push(Field::new(":scheme", self.scheme));
        fields.push(Field::repeated(":authority", self.authority.as_str()));
        fields.push(field(":path", head.path.as_str().as_bytes()));
        for (name, value) in &*head.headers {
            if is_of_connection(name) {
                continue;
            }
            fields.push(match value.is_sensitive() {
                true => Field::sensitive(name.as_str(), value.as_bytes()),
                false => field(name.as_str(), value.as_bytes()),
            });
        }
        fields
    }
}

/// Returns the length that the head of a request announces, if it does.
fn content_length(request: &Http2Request) -> Option<u64> {
    // The frame of a short message contains its length.
    let Http2Content::Body(body) = &request.content else { return None };
    let len = body.size_hint().exact()?;
    let has_content = len > 0 || request.head.method == Method::POST;
    (has_content && !request.head.headers.contains_key(CONTENT_LENGTH)).then_some(len)
}

/// Returns `true` for headers that HTTP/2 forbids.
fn is_of_connection(name: &HeaderName) -> bool {
    [CONNECTION, TRANSFER_ENCODING, UPGRADE, HOST].contains(name)
        || ["keep-alive", "proxy-connection"].contains(&name.as_str())
}

/// The maximum number of repeated heads that a connection remembers.
const REPEATED_MAX: usize = 64;
