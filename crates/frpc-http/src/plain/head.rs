//! The heads of plain requests.

use std::{mem::MaybeUninit, ops::Range};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, request::Parts};
use httparse::{Header, Status};

use crate::{hosts, rest_routes::RestRoutes, serve::may_stream};

/// A request without its body.
pub(super) struct PlainRequest {
    pub(super) parts: Parts,
    pub(super) body_len: usize,
    /// `true` if the peer asks to close the connection after this request.
    pub(super) is_last: bool,
}

/// The reason why the input does not begin with a whole plain head.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotPlain {
    /// The head is incomplete and may still be plain.
    Partial,
    Other,
}

/// The positions of the parts of a head within the input.
struct HeadRanges {
    method: Method,
    target: Range<usize>,
    fields: [(Range<u16>, Range<u16>); FIELDS_MAX],
    fields_len: usize,
    head_len: usize,
    body_len: usize,
    is_last: bool,
}

/// Takes the head of a plain request from the start of the input.
pub(super) fn take(input: &mut BytesMut, head_len_max: usize, rest: &RestRoutes) -> Result<PlainRequest, NotPlain> {
    let places = find(input, head_len_max, rest)?;
    let head = input.split_to(places.head_len).freeze();
    let Some(parts) = build(&head, &places) else {
        // hyper must see the whole input.
        *input = [&head, &input[..]].concat().as_slice().into();
        return Err(NotPlain::Other);
    };
    Ok(PlainRequest { parts, body_len: places.body_len, is_last: places.is_last })
}

/// Finds the parts of a head, if the request is plain.
#[inline]
fn find(input: &[u8], head_len_max: usize, rest: &RestRoutes) -> Result<HeadRanges, NotPlain> {
    let mut fields = [const { MaybeUninit::<Header<'_>>::uninit() }; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut []);
    // Positions are stored as `u16`.
    let head_len_max = head_len_max.min(usize::from(u16::MAX));
    let head_len = match request.parse_with_uninit_headers(input, &mut fields) {
        Ok(Status::Complete(len)) if len <= head_len_max => len,
        Ok(Status::Partial) if input.len() <= head_len_max => return Err(NotPlain::Partial),
        _ => return Err(NotPlain::Other),
    };
    let method = match request.method {
        Some("POST") => Method::POST,
        Some("GET") => Method::GET,
        _ => return Err(NotPlain::Other),
    };
    let target = request.path.filter(|target| target.starts_with('/')).ok_or(NotPlain::Other)?;
    // Plain requests and responses are complete, so streams are left to hyper.
    if request.version != Some(1) || rest.is_streaming(&method, target) {
        return Err(NotPlain::Other);
    }
    let place = |part: &[u8]| {
        let from = part.as_ptr().addr() - input.as_ptr().addr();
        from..from + part.len()
    };
    let mut places = HeadRanges {
        method,
        target: place(target.as_bytes()),
        fields: [const { (0..0, 0..0) }; FIELDS_MAX],
        fields_len: request.headers.len(),
        head_len,
        body_len: 0,
        is_last: false,
    };
    let (mut body_len, mut hosts) = (None, 0);
    for (field, at) in request.headers.iter().zip(&mut places.fields) {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        match field.name.len() {
            // An invalid host counts twice, so that the check below fails.
            4 if is("host") => hosts += if hosts::is_valid(field.value) { 1 } else { 2 },
            6 if is("expect") => return Err(NotPlain::Other),
            7 if is("upgrade") => return Err(NotPlain::Other),
            10 if is("connection") => match field.value {
                value if value.eq_ignore_ascii_case(b"keep-alive") => {}
                value if value.eq_ignore_ascii_case(b"close") => places.is_last = true,
                _ => return Err(NotPlain::Other),
            },
            12 if is("content-type") && may_stream(field.value) => return Err(NotPlain::Other),
            14 if is("content-length") => {
                // Several lengths are left to hyper, which refuses contradictory ones.
                let len = len_of(field.value).filter(|_| body_len.is_none()).ok_or(NotPlain::Other)?;
                body_len = Some(len);
            }
            17 if is("transfer-encoding") => return Err(NotPlain::Other),
            _ => {}
        }
        let [name, value] = [field.name.as_bytes(), field.value].map(|part| short(place(part)));
        *at = (name, value);
    }
    if hosts != 1 {
        return Err(NotPlain::Other);
    }
    places.body_len = body_len.unwrap_or(0);
    Ok(places)
}

fn short(range: Range<usize>) -> Range<u16> {
    let end = |at| u16::try_from(at).unwrap_or(u16::MAX);
    end(range.start)..end(range.end)
}

fn long(range: &Range<u16>) -> Range<usize> {
    range.start.into()..range.end.into()
}

/// Parses a `content-length`. Returns `None` if it is invalid or too large for a plain request.
fn len_of(value: &[u8]) -> Option<usize> {
    if !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let len = str::from_utf8(value).ok()?.parse().ok()?;
    (len <= BODY_LEN_MAX).then_some(len)
}

/// Builds the request parts from a head. Returns `None` if [`http`] does not accept a part.
fn build(head: &Bytes, places: &HeadRanges) -> Option<Parts> {
    let mut headers = HeaderMap::with_capacity(places.fields_len);
    for (name, value) in &places.fields[..places.fields_len] {
        let name = HeaderName::from_bytes(&head[long(name)]).ok()?;
        headers.append(name, HeaderValue::from_maybe_shared(head.slice(long(value))).ok()?);
    }
    let mut request = Request::new(());
    *request.method_mut() = places.method.clone();
    *request.uri_mut() = Uri::from_maybe_shared(head.slice(places.target.clone())).ok()?;
    *request.headers_mut() = headers;
    Some(request.into_parts().0)
}

/// The maximum body length of a plain request.
pub(super) const BODY_LEN_MAX: usize = 64 * 1024;

/// The maximum number of headers of a plain request.
const FIELDS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(head: &str) -> (Result<PlainRequest, NotPlain>, BytesMut) {
        let mut input = BytesMut::from(head);
        (take(&mut input, 1024, &RestRoutes::Off), input)
    }

    #[test]
    fn plain_requests_are_parsed_from_the_front() {
        let head = "POST /a/b?c=d HTTP/1.1\r\nHost: h\r\nX: 1\r\nx: \t2 \r\ncontent-length: 3\r\n\r\n";
        let (Ok(PlainRequest { parts, body_len, is_last }), rest) = seen(&format!("{head}abcGET")) else {
            panic!("not plain");
        };
        assert_eq!((parts.method, parts.uri.path(), parts.uri.query()), (Method::POST, "/a/b", Some("c=d")));
        assert_eq!(parts.headers.get_all("x").iter().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!((parts.headers.len(), parts.headers["host"].as_bytes()), (4, &b"h"[..]));
        assert_eq!((body_len, is_last, &rest[..]), (3, false, &b"abcGET"[..]));
        for len in 0..head.len() {
            let (partial, rest) = seen(&head[..len]);
            assert!(matches!(partial, Err(NotPlain::Partial)) && rest.len() == len, "{len}");
        }
        let (Ok(last), _) = seen("GET / HTTP/1.1\r\nHost: h\r\nConnection: Close\r\n\r\n") else { panic!("not plain") };
        assert!(last.is_last && last.body_len == 0);
    }

    #[test]
    fn other_requests_are_left_in_the_buffer() {
        let mut heads: Vec<String> = [
            "PUT / HTTP/1.1\r\n",
            "HEAD / HTTP/1.1\r\n",
            "OPTIONS * HTTP/1.1\r\n",
            "GET http://a/ HTTP/1.1\r\n",
            "CONNECT a:1 HTTP/1.1\r\n",
            "GET / HTTP/1.0\r\n",
            "GET / HTTP/2.0\r\n",
            "GET /\u{1} HTTP/1.1\r\n",
            "GET /<a> HTTP/1.1\r\n",
            "GET /  HTTP/1.1\r\n",
        ]
        .map(|line| format!("{line}host: h\r\n\r\n"))
        .into();
        for field in [
            "expect: 100-continue",
            "upgrade: h2c",
            "connection: upgrade",
            "connection: keep-alive, close",
            "content-length: 3\r\ncontent-length: 3",
            "content-length: 65537",
            "content-length: 99999999999999999999999999",
            "content-length: +3",
            "content-length: 3, 3",
            "content-length: 0x3",
            "content-length:",
            "content-length : 3",
            "transfer-encoding: chunked",
            "Transfer-Encoding: identity",
            "content-type: application/grpc-web+proto",
            "content-type: application/connect+json",
            "content-type: application/json\r\ncontent-type: application/grpc",
            " folded: value",
            "no colon",
            "a: bare\rreturn",
            "a: \0",
        ] {
            heads.push(format!("POST / HTTP/1.1\r\nhost: h\r\n{field}\r\n\r\nabc"));
        }
        for hosts in ["", "host: a\r\nhost: a\r\n", "host: a b\r\n", "host: a/b\r\n", "host: a, b\r\n", "host: a@b\r\n"]
        {
            heads.push(format!("POST / HTTP/1.1\r\n{hosts}\r\n"));
        }
        heads.push(format!("POST / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(FIELDS_MAX + 1)));
        heads.push(format!("POST / HTTP/1.1\r\na: {}\r\n\r\n", "b".repeat(1024)));
        heads.push(format!("POST / HTTP/1.1\r\na: {}", "b".repeat(1024)));
        for head in heads {
            let (other, rest) = seen(&head);
            assert!(matches!(other, Err(NotPlain::Other)), "{head:?}");
            assert_eq!(rest, head.as_bytes(), "{head:?}");
        }
    }
}
