//! Responses of HTTP/2 streams.

use std::{
    ptr,
    task::{Context, Waker},
};

use bytes::Bytes;
use frpc::codec::EncodedMessage;
use frpc_http2::{Connection, ErrorCode, Field, Header, PreparedBlock, SendError, StreamId};
use http::{
    HeaderName, Response, StatusCode,
    header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING, UPGRADE},
    response::Parts,
};
use http_body::Body as _;

use super::sending::{COPIED_LEN_MAX, SendingBody, fail};
use crate::{
    date::DateText,
    message::envelope,
    serve::{self, GrpcCall, GrpcReply, ResponseBody},
};

/// A response after its head, with a body being sent.
pub(super) type SendingResponse = SendingBody<ResponseBody>;

/// The header blocks of most gRPC responses, encoded once per connection.
#[derive(Debug, Default)]
pub(super) struct GrpcBlocks {
    /// Heads by content type.
    heads: Vec<(&'static str, PreparedBlock)>,
    trailers: Option<PreparedBlock>,
}

impl GrpcBlocks {
    fn head(&mut self, core: &mut Connection, content_type: &'static str) -> PreparedBlock {
        // Each content type is a constant, so its address identifies it. A second address would only repeat its block.
        if let Some((_, block)) = self.heads.iter().find(|(other, _)| ptr::eq(*other, content_type)) {
            return *block;
        }
        let block = core.prepare(&[Field::new(":status", "200"), Field::repeated("content-type", content_type)]);
        self.heads.push((content_type, block));
        block
    }

    fn trailers(&mut self, core: &mut Connection) -> PreparedBlock {
        *self.trailers.get_or_insert_with(|| core.prepare(&[Field::repeated("grpc-status", "0")]))
    }
}

/// Sends as much of the reply to a unary gRPC call as there is room for. Returns the rest.
pub(super) fn begin_grpc(
    core: &mut Connection,
    blocks: &mut GrpcBlocks,
    stream: StreamId,
    call: &GrpcCall,
    reply: GrpcReply,
) -> Option<SendingResponse> {
    match reply {
        GrpcReply::Message(content) => {
            let begun = begin_message(core, blocks, stream, call.content_type(), content);
            begun.unwrap_or_else(|error| {
                fail(core, stream, error);
                None
            })
        }
        GrpcReply::Other(response) => begin(core, stream, *response),
    }
}

/// Sends the head of a gRPC response and, if possible, its message and trailers.
fn begin_message(
    core: &mut Connection,
    blocks: &mut GrpcBlocks,
    stream: StreamId,
    content_type: &'static str,
    content: EncodedMessage,
) -> Result<Option<SendingResponse>, SendError> {
    let head = Header::prepared(blocks.head(core, content_type));
    let Ok(prefix) = envelope::header(0, content.len()) else {
        // Longer than a frame, 4 GiB.
        core.reset(stream, ErrorCode::INTERNAL_ERROR);
        return Ok(None);
    };
    if let Some(message) = content.as_slice().filter(|message| message.len() < COPIED_LEN_MAX) {
        let trailers = Header::prepared(blocks.trailers(core));
        match core.send_response(stream, head, [&prefix, message], trailers) {
            Err(SendError::Full) => {}
            sent => return sent.map(|()| None),
        }
    }
    core.send_head(stream, head, false)?;
    let prefix = Bytes::copy_from_slice(&prefix);
    let body = ResponseBody::whole(prefix, content.into_bytes(), Some(serve::ok_trailers()));
    Ok(Some(SendingBody::new(body)))
}

/// Sends the head of a response. Returns the rest, or `None` if the head is all of it.
pub(super) fn begin(
    core: &mut Connection,
    stream: StreamId,
    response: Response<ResponseBody>,
) -> Option<SendingResponse> {
    let (mut parts, body) = response.into_parts();
    if parts.status.is_informational() {
        // An informational status is not final: the client would keep waiting for a response.
        parts.status = StatusCode::INTERNAL_SERVER_ERROR;
        parts.headers.clear();
    }
    let is_end = body.is_end_stream() || has_no_content(parts.status);
    let sent = send_head(core, stream, &parts, body.size_hint().exact(), is_end);
    if let Err(error) = sent {
        fail(core, stream, error);
        return None;
    }
    (!is_end).then_some(SendingBody::new(body))
}

/// Sends a response with a complete body.
pub(super) fn send_whole(core: &mut Connection, stream: StreamId, response: Response<ResponseBody>) {
    if let Some(mut sending) = begin(core, stream, response) {
        // Without a waker: everything is ready, and an empty queue accepts it.
        sending.poll_send(&mut Context::from_waker(Waker::noop()), core, stream);
    }
}

/// Asks the peer for the body of its request.
pub(super) fn send_continue(core: &mut Connection, stream: StreamId) {
    // The stream may be gone.
    let _ = core.send_informational(stream, Header::fields(&[Field::new(":status", "100")]));
}

fn send_head(
    core: &mut Connection,
    stream: StreamId,
    parts: &Parts,
    len: Option<u64>,
    is_end: bool,
) -> Result<(), SendError> {
    let mut fields = Vec::with_capacity(parts.headers.len() + 3);
    fields.push(Field::new(":status", parts.status.as_str()));
    for (name, value) in &parts.headers {
        if !is_of_connection(name) {
            fields.push(Field::new(name.as_str(), value.as_bytes()));
        }
    }
    let (mut len_text, date) = (itoa::Buffer::new(), DateText::now());
    // The end of the stream already tells the peer about the missing body.
    if let Some(len) = len.filter(|_| !is_end && !parts.headers.contains_key(CONTENT_LENGTH)) {
        fields.push(Field::new("content-length", len_text.format(len)));
    }
    if !parts.headers.contains_key(DATE) {
        fields.push(Field::new("date", date.as_str()));
    }
    core.send_head(stream, Header::fields(&fields), is_end)
}

/// Returns `true` for headers forbidden by HTTP/2. A mount may return any headers.
fn is_of_connection(name: &HeaderName) -> bool {
    [CONNECTION, TRANSFER_ENCODING, UPGRADE].contains(name)
        || ["keep-alive", "proxy-connection"].contains(&name.as_str())
}

fn has_no_content(status: StatusCode) -> bool {
    status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED
}
