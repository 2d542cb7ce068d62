//! Heads of HTTP/2 requests as the types of the crate `http`.

use std::sync::Arc;

use frpc_http2::Head;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version,
    request::Parts,
    uri::{Authority, PathAndQuery, Scheme},
};

use crate::{
    headers::{field_len, request_len},
    serve::{GrpcCall, ServeContext},
};

/// The head of a request whose body is a single uncompressed message.
pub(super) enum MessageHead<'a> {
    /// A valid unary call of gRPC.
    Grpc(&'a Arc<GrpcCall>),
    /// The same with a head that is not remembered: it is long, or has a trace context.
    NewGrpc(Arc<GrpcCall>),
    Other(Box<Parts>),
}

/// The latest calls of a connection, by the heads of their requests.
///
/// Most clients repeat the head of a request byte by byte, and the core returns the same [`Head`] then.
#[derive(Default)]
pub(super) struct KnownCalls {
    calls: Vec<(Arc<Head>, Arc<GrpcCall>)>,
    /// The entry that the next call replaces.
    oldest: usize,
}

impl KnownCalls {
    /// Reads the head of a request. Returns `None` if a part of it is invalid.
    #[inline]
    pub(super) fn read(&mut self, context: &ServeContext, head: &Arc<Head>) -> Option<MessageHead<'_>> {
        match self.calls.iter().position(|(known, _)| Arc::ptr_eq(known, head)) {
            Some(at) => Some(MessageHead::Grpc(&self.calls[at].1)),
            None => self.read_new(context, head),
        }
    }

    fn read_new(&mut self, context: &ServeContext, head: &Arc<Head>) -> Option<MessageHead<'_>> {
        if let Some(call) = self.similar(context, head) {
            let call = Arc::new(call);
            // A trace context does not come again, but a timeout may.
            let is_repeated = head.get("traceparent").is_none();
            return Some(if is_repeated { self.insert(head.clone(), call) } else { MessageHead::NewGrpc(call) });
        }
        let parts = parts(head)?;
        let Some(call) = GrpcCall::read(context, &parts) else { return Some(MessageHead::Other(Box::new(parts))) };
        let call = Arc::new(call);
        let is_short = request_len(&parts.method, &parts.uri, &parts.headers) <= KNOWN_HEAD_LEN_MAX;
        Some(if is_short { self.insert(head.clone(), call) } else { MessageHead::NewGrpc(call) })
    }

    /// Returns the call of a head that differs from a known one in its timeout or its trace context only.
    fn similar(&self, context: &ServeContext, head: &Head) -> Option<GrpcCall> {
        let (_, call) = self.calls.iter().find(|(known, _)| is_similar(known, head))?;
        call.with_varying(context, head.iter().filter(is_varying), head_len(head))
    }

    fn insert(&mut self, head: Arc<Head>, call: Arc<GrpcCall>) -> MessageHead<'_> {
        let at = if self.calls.len() < KNOWN_CALLS_MAX {
            self.calls.push((head, call));
            self.calls.len() - 1
        } else {
            let at = self.oldest;
            self.calls[at] = (head, call);
            self.oldest = (at + 1) % KNOWN_CALLS_MAX;
            at
        };
        MessageHead::Grpc(&self.calls[at].1)
    }
}

/// The maximum number of calls that a connection remembers.
const KNOWN_CALLS_MAX: usize = 8;

/// The maximum size of the head of a remembered call, as HTTP/2 counts header lists.
const KNOWN_HEAD_LEN_MAX: usize = 1024;

/// Returns `true` for fields that differ between calls of the same method by the same client.
fn is_varying(field: &(&[u8], &[u8])) -> bool {
    GrpcCall::VARYING.iter().any(|name| name.as_bytes() == field.0)
}

/// Returns `true` if two heads are equal without their varying fields.
fn is_similar(one: &Head, other: &Head) -> bool {
    one.path() == other.path()
        && one.method() == other.method()
        && one.authority() == other.authority()
        && one.scheme() == other.scheme()
        && one.iter().filter(|field| !is_varying(field)).eq(other.iter().filter(|field| !is_varying(field)))
}

/// Returns the size of a head as HTTP/2 counts header lists.
fn head_len(head: &Head) -> usize {
    let pseudo = [
        (":method", head.method()),
        (":scheme", head.scheme()),
        (":path", head.path()),
        (":authority", head.authority()),
    ];
    let pseudo = pseudo.iter().map(|(name, value)| field_len(name, value.map_or(0, str::len)));
    pseudo.chain(head.iter().map(|(name, value)| name.len() + value.len() + 32)).sum()
}

/// Converts the head of a request. Returns `None` if a part of it is invalid.
pub(super) fn parts(head: &Head) -> Option<Parts> {
    let mut parts = Request::new(()).into_parts().0;
    parts.version = Version::HTTP_2;
    parts.method = Method::from_bytes(head.method()?.as_bytes()).ok()?;
    parts.uri = uri(head)?;
    parts.headers = header_map(head)?;
    Some(parts)
}

fn uri(head: &Head) -> Option<Uri> {
    let mut uri = http::uri::Parts::default();
    uri.path_and_query = head.path().map(PathAndQuery::try_from).transpose().ok()?;
    // Without an authority, a URI must not have a scheme either.
    if let Some(authority) = head.authority().filter(|authority| !authority.is_empty()) {
        uri.authority = Some(Authority::try_from(authority).ok()?);
        uri.scheme = head.scheme().map(Scheme::try_from).transpose().ok()?;
    }
    Uri::from_parts(uri).ok()
}

/// Converts the fields of a head, or trailers.
pub(crate) fn header_map(head: &Head) -> Option<HeaderMap> {
    // A map has room for 32,768 headers, and the limits of an application may allow more.
    let mut headers = HeaderMap::try_with_capacity(head.len()).ok()?;
    for (name, value) in head.iter() {
        let value = HeaderValue::from_bytes(value).ok()?;
        headers.try_append(HeaderName::from_lowercase(name).ok()?, value).ok()?;
    }
    Some(headers)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use frpc_http2::{Connection, Event, Settings};

    use super::*;

    #[test]
    fn a_head_with_too_many_fields_for_a_map_is_invalid() {
        let settings = Settings { header_list_max: 4 << 20, header_block_max: 4 << 20, ..Settings::default() };
        let mut connection = Connection::server(settings, Instant::now());
        let mut wire = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
        // HEADERS, and CONTINUATION until the end: indices of the static table, `GET`, `http`, `/` and `gzip, deflate`.
        wire.extend_from_slice(b"\0\0\x03\x01\x01\0\0\0\x01\x82\x86\x84");
        for flags in [0, 0, 4] {
            wire.extend_from_slice(&[0, 0x3f, 0xff, 9, flags, 0, 0, 0, 1]);
            wire.extend_from_slice(&[0x90; 0x3fff]);
        }
        let mut rest = &wire[..];
        let head = loop {
            let received = connection.receive(rest, Instant::now()).unwrap();
            rest = &rest[received.consumed..];
            if let Event::Head { head, .. } = received.event.unwrap() {
                break head;
            }
        };
        assert_eq!(head.len(), 3 * 0x3fff);
        assert!(parts(&head).is_none());
    }
}
