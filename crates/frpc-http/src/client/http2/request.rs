//! Requests, and the header blocks of repeated ones.

use std::sync::Arc;

use bytes::Bytes;
use frpc::{Head, Metadata, MetadataValue, Status, codec::EncodedMessage};
use frpc_http2::{Connection, Field, Header, OpenError, PreparedBlock, StreamId};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request,
    header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE, USER_AGENT},
    uri::{Authority, PathAndQuery},
};
use http_body::Body;

use crate::{
    client::outgoing::{MessageFrame, OutgoingBody},
    headers::{field_len, list_len, metadata::is_reserved},
    message::envelope,
};

/// A request.
pub(in crate::client) struct Http2Request {
    pub(in crate::client) head: CallHead,
    pub(in crate::client) content: Http2Content,
}

/// The head of a request.
#[derive(Clone)]
pub(in crate::client) struct CallHead {
    pub(in crate::client) method: Arc<MethodHead>,
    /// `true` if other requests have the same headers, in the same allocation.
    pub(in crate::client) is_repeated: bool,
    /// Headers in addition. Boxed, because most calls have none.
    pub(in crate::client) added: Option<Box<AddedHeaders>>,
}

/// The headers of a single call.
#[derive(Clone)]
pub(in crate::client) struct AddedHeaders {
    /// The timeout, unless it is the same for all calls.
    pub(in crate::client) timeout: Option<(HeaderName, HeaderValue)>,
    /// The head of a call whose metadata is [short](Self::carry).
    pub(in crate::client) head: Head,
}

impl AddedHeaders {
    /// The maximum number of headers.
    const LEN_MAX: usize = 6;
    /// The maximum size of the metadata, as HTTP/2 counts header lists.
    const METADATA_MAX: usize = 1024;

    /// Returns `true` for metadata that needs neither base64 nor a change of other headers, and is short.
    #[inline]
    pub(in crate::client) fn carry(metadata: &Metadata) -> bool {
        metadata.is_empty() || Self::carry_some(metadata)
    }

    fn carry_some(metadata: &Metadata) -> bool {
        let is_simple = |(name, value): (&str, MetadataValue<'_>)| {
            matches!(value, MetadataValue::Ascii(_)) && name != USER_AGENT.as_str() && !is_reserved(name)
        };
        metadata.len() < Self::LEN_MAX && metadata.size() <= Self::METADATA_MAX && metadata.iter().all(is_simple)
    }

    /// Returns the size of the headers, as HTTP/2 counts header lists.
    pub(in crate::client) fn len(&self) -> usize {
        let timeout = self.timeout.as_ref().map_or(0, |(name, value)| field_len(name.as_str(), value.len()));
        timeout + self.head.metadata().size()
    }

    fn fields(&self) -> impl Iterator<Item = Field<'_>> {
        let timeout = self.timeout.iter().map(|(name, value)| Field::new(name.as_str(), value.as_bytes()));
        let metadata = self.head.metadata().iter().filter_map(|(name, value)| match value {
            MetadataValue::Ascii(text) => Some(Field::new(name, text)),
            _ => None,
        });
        timeout.chain(metadata)
    }
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

/// The frame of an uncompressed message.
#[derive(Clone)]
pub(in crate::client) struct ShortMessage(ShortFrame);

#[derive(Clone)]
enum ShortFrame {
    /// In place: an allocation costs more than a few copies.
    Inline {
        bytes: [u8; INLINE_LEN],
        len: u8,
    },
    Parts {
        header: [u8; envelope::HEADER_LEN],
        content: Bytes,
    },
}

/// The length of a frame in place.
const INLINE_LEN: usize = 64;

impl ShortMessage {
    /// Creates a message of at most [`LEN_MAX`](Self::LEN_MAX) bytes.
    #[inline]
    pub(in crate::client) fn new(content: impl Into<EncodedMessage>) -> Result<Self, Status> {
        let content = content.into();
        debug_assert!(content.len() <= Self::LEN_MAX, "longer messages are sent without a copy");
        let header = envelope::header(0, content.len())?;
        let len = header.len() + content.len();
        if let Some(slice) = content.as_slice().filter(|_| len <= INLINE_LEN) {
            let mut bytes = [0; INLINE_LEN];
            bytes[..header.len()].copy_from_slice(&header);
            bytes[header.len()..len].copy_from_slice(slice);
            return Ok(Self(ShortFrame::Inline { bytes, len: u8::try_from(len).unwrap_or(u8::MAX) }));
        }
        Ok(Self(ShortFrame::Parts { header, content: content.into_bytes() }))
    }

    /// Returns `true` if the frame shares no bytes.
    #[inline]
    pub(super) fn is_inline(&self) -> bool {
        matches!(self.0, ShortFrame::Inline { .. })
    }

    /// Returns the frame.
    pub(in crate::client) fn frame(&self) -> MessageFrame {
        match &self.0 {
            ShortFrame::Inline { .. } => MessageFrame::new(Bytes::copy_from_slice(self.parts()[0]), Bytes::new()),
            ShortFrame::Parts { header, content } => MessageFrame::new(Bytes::copy_from_slice(header), content.clone()),
        }
    }

    /// Returns the frame in two parts.
    #[inline]
    pub(super) fn parts(&self) -> [&[u8]; 2] {
        match &self.0 {
            ShortFrame::Inline { bytes, len } => [&bytes[..usize::from(*len)], &[]],
            ShortFrame::Parts { header, content } => [header, content],
        }
    }

    /// The maximum length. Longer messages are not copied.
    pub(in crate::client) const LEN_MAX: usize = 4 << 10;
}

impl MethodHead {
    /// Returns the maximum size of the head with an authority of this length, as HTTP/2 counts header lists.
    pub(in crate::client) fn len(&self, authority_len: usize) -> usize {
        field_len(":method", self.method.as_str().len())
            + field_len(":scheme", "https".len())
            + field_len(":authority", authority_len)
            + field_len(":path", self.path.as_str().len())
            + list_len(&self.headers)
    }
}

impl From<Request<OutgoingBody>> for Http2Request {
    fn from(request: Request<OutgoingBody>) -> Self {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let headers = Arc::new(parts.headers);
        Self {
            head: CallHead {
                method: Arc::new(MethodHead { method: parts.method, path, headers }),
                is_repeated: false,
                added: None,
            },
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

    /// Opens a stream for a request. Its body is sent later.
    pub(super) fn open(
        &mut self,
        core: &mut Connection,
        head: &CallHead,
        body: &OutgoingBody,
    ) -> Result<StreamId, OpenError> {
        self.with_header(core, head, Some(body), |core, header| core.open(header, body.is_end_stream()))
    }

    /// Opens a stream for a request with a short message. Returns the message as a body if the connection has no room for
    /// it.
    #[inline]
    pub(super) fn open_short(
        &mut self,
        core: &mut Connection,
        head: &CallHead,
        message: &ShortMessage,
    ) -> Result<(StreamId, Option<Box<OutgoingBody>>), OpenError> {
        let (stream, is_sent) =
            self.with_header(core, head, None, |core, header| core.open_with(header, message.parts()))?;
        Ok((stream, (!is_sent).then(|| Box::new(OutgoingBody::Framed(message.frame())))))
    }

    /// Passes the header of a request to a function.
    #[inline]
    fn with_header<T>(
        &mut self,
        core: &mut Connection,
        head: &CallHead,
        body: Option<&OutgoingBody>,
        open: impl FnOnce(&mut Connection, Header<'_>) -> T,
    ) -> T {
        // The frame of a short message contains its length.
        let len = body.and_then(|body| content_length(&head.method, body));
        let block = if head.is_repeated && len.is_none() { self.block(core, &head.method) } else { None };
        if let Some(block) = block.filter(|_| head.added.is_none()) {
            return open(core, Header::prepared(block));
        }
        let mut added = [Field::new("", ""); AddedHeaders::LEN_MAX];
        let added_fields = head.added.iter().flat_map(|added| added.fields());
        let added_len = added.iter_mut().zip(added_fields).map(|(slot, field)| *slot = field).count();
        let added = &added[..added_len];
        if let Some(block) = block {
            return open(core, Header::prepared(block).with_fields(added));
        }
        let mut len_text = itoa::Buffer::new();
        let mut fields = self.fields(&head.method, Field::new);
        fields.extend_from_slice(added);
        if let Some(len) = len {
            fields.push(Field::new("content-length", len_text.format(len)));
        }
        open(core, Header::fields(&fields))
    }

    /// Returns the block of a repeated head.
    #[inline]
    fn block(&mut self, core: &mut Connection, head: &Arc<MethodHead>) -> Option<PreparedBlock> {
        match self.repeated.iter().find(|known| Arc::ptr_eq(&known.head, head)) {
            Some(known) => Some(known.block),
            None => self.prepare(core, head),
        }
    }

    #[cold]
    fn prepare(&mut self, core: &mut Connection, head: &Arc<MethodHead>) -> Option<PreparedBlock> {
        let same = |known: &&RepeatedHead| {
            Arc::ptr_eq(&known.head.headers, &head.headers)
                && known.head.path == head.path
                && known.head.method == head.method
        };
        if let Some(known) = self.repeated.iter().find(same) {
            return Some(known.block);
        }
        if head.method != Method::POST || self.repeated.len() >= REPEATED_MAX {
            return None;
        }
        let block = core.prepare(&self.fields(head, Field::repeated));
        self.repeated.push(RepeatedHead { head: head.clone(), block });
        Some(block)
    }

    fn fields<'a>(&'a self, head: &'a MethodHead, field: fn(&'a str, &'a [u8]) -> Field<'a>) -> Vec<Field<'a>> {
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
fn content_length(head: &MethodHead, body: &OutgoingBody) -> Option<u64> {
    let len = body.size_hint().exact()?;
    let has_content = len > 0 || head.method == Method::POST;
    (has_content && !head.headers.contains_key(CONTENT_LENGTH)).then_some(len)
}

/// Returns `true` for headers that HTTP/2 forbids.
fn is_of_connection(name: &HeaderName) -> bool {
    [CONNECTION, TRANSFER_ENCODING, UPGRADE, HOST].contains(name)
        || ["keep-alive", "proxy-connection"].contains(&name.as_str())
}

/// The maximum number of repeated heads that a connection remembers.
const REPEATED_MAX: usize = 64;
