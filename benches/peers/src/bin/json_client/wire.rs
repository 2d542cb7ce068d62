//! The encoding of messages for each protocol.

use std::io::{self, Write as _};
use std::net::SocketAddr;

use serde::Deserialize;
use serde_json::Deserializer;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Wire {
    Tcp,
    TcpReset,
    Http,
    HttpBatch,
    WebSocket,
    Rest,
    RestWebSocket,
}

/// A call: the sum of two numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) id: usize,
    pub(crate) a: usize,
    pub(crate) b: usize,
}

/// Ids and results.
type Answers = Vec<(usize, usize)>;

#[derive(Deserialize)]
struct Answer {
    id: usize,
    result: usize,
}

impl Wire {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "tcp" => Ok(Self::Tcp),
            "tcp-reset" => Ok(Self::TcpReset),
            "http" => Ok(Self::Http),
            "http-batch" => Ok(Self::HttpBatch),
            "websocket" => Ok(Self::WebSocket),
            "rest" => Ok(Self::Rest),
            "rest-websocket" => Ok(Self::RestWebSocket),
            _ => Err(format!("no wire {text:?}: tcp, tcp-reset, http, http-batch, websocket, rest or rest-websocket")),
        }
    }

    pub(crate) fn calls_per_request(self) -> usize {
        if self == Self::HttpBatch { 10 } else { 1 }
    }

    /// Returns the request for the upgrade from HTTP to WebSocket.
    pub(crate) fn handshake(self, addr: SocketAddr) -> Option<String> {
        if !matches!(self, Self::WebSocket | Self::RestWebSocket) {
            return None;
        }
        Some(format!(
            "GET /rpc HTTP/1.1\r\nHost: {addr}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        ))
    }

    /// Appends the requests for these calls.
    pub(crate) fn encode(self, calls: &[Call], out: &mut Vec<u8>) {
        match self {
            Self::Tcp | Self::TcpReset => calls.iter().for_each(|call| call.encode(out)),
            Self::Http => post(out, |body| calls.iter().for_each(|call| call.encode(body))),
            Self::HttpBatch => post(out, |body| {
                for (place, call) in calls.iter().enumerate() {
                    body.push(if place == 0 { b'[' } else { b',' });
                    call.encode(body);
                }
                body.push(b']');
            }),
            Self::WebSocket => calls.iter().for_each(|call| frame(out, |text| call.encode(text))),
            Self::Rest => {
                for Call { a, b, .. } in calls {
                    write(out, format_args!("GET /sum?a={a}&b={b} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
                }
            }
            Self::RestWebSocket => {
                for Call { a, b, .. } in calls {
                    frame(out, |text| write(text, format_args!(r#"{{"a":{a},"b":{b}}}"#)));
                }
            }
        }
    }

    /// Returns the answers in the first message and its length, or `None` while it is incomplete.
    pub(crate) fn decode(self, bytes: &[u8]) -> io::Result<Option<(Answers, usize)>> {
        let (body, len) = match self {
            Self::Tcp | Self::TcpReset => {
                let mut answers = Deserializer::from_slice(bytes).into_iter::<Answer>();
                return match answers.next() {
                    Some(Ok(Answer { id, result })) => Ok(Some((vec![(id, result)], answers.byte_offset()))),
                    Some(Err(error)) if !error.is_eof() => Err(unexpected(bytes)),
                    Some(Err(_)) | None => Ok(None),
                };
            }
            Self::Http | Self::HttpBatch | Self::Rest => match response(bytes)? {
                Some(split) => split,
                None => return Ok(None),
            },
            Self::WebSocket | Self::RestWebSocket => match unframed(bytes)? {
                Some(split) => split,
                None => return Ok(None),
            },
        };
        let answers = match self {
            Self::Rest | Self::RestWebSocket => serde_json::from_slice(body).map(|result| vec![(0, result)]),
            Self::HttpBatch => serde_json::from_slice::<Vec<Answer>>(body)
                .map(|answers| answers.into_iter().map(|Answer { id, result }| (id, result)).collect()),
            _ => serde_json::from_slice(body).map(|Answer { id, result }| vec![(id, result)]),
        };
        Ok(Some((answers.map_err(|_| unexpected(body))?, len)))
    }
}

impl Call {
    fn encode(&self, out: &mut Vec<u8>) {
        let Self { id, a, b } = self;
        write(out, format_args!(r#"{{"jsonrpc":"2.0","method":"sum","params":{{"a":{a},"b":{b}}},"id":{id}}}"#));
    }
}

fn post(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut body = Vec::with_capacity(128);
    fill(&mut body);
    let len = body.len();
    write(
        out,
        format_args!(
            "POST /rpc HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len}\r\n\r\n"
        ),
    );
    out.extend(body);
}

/// Returns the body of the first response and the length of the whole response.
fn response(bytes: &[u8]) -> io::Result<Option<(&[u8], usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head_len) = head.parse(bytes).map_err(io::Error::other)? else { return Ok(None) };
    let len = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let len = len.and_then(|header| str::from_utf8(header.value).ok()?.trim().parse::<usize>().ok());
    let (Some(200), Some(len)) = (head.code, len) else { return Err(unexpected(bytes)) };
    Ok(bytes.get(head_len..head_len + len).map(|body| (body, head_len + len)))
}

/// Appends a text message. Its mask is zero, which saves work for the client but not for the server.
fn frame(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    out.extend([0x81, 0, 0, 0, 0, 0]);
    let start = out.len();
    fill(out);
    let len = out.len() - start;
    assert!(len < 126, "requests are short");
    out[start - 5] = 0x80 | u8::try_from(len).expect("it is below 126");
}

/// Returns the text of the first message and the length of the whole message.
fn unframed(bytes: &[u8]) -> io::Result<Option<(&[u8], usize)>> {
    let [first, second, rest @ ..] = bytes else { return Ok(None) };
    if (*first, *second & 0x80) != (0x81, 0) || *second >= 126 {
        return Err(unexpected(bytes));
    }
    let len = usize::from(*second);
    Ok(rest.get(..len).map(|text| (text, 2 + len)))
}

fn write(out: &mut Vec<u8>, what: std::fmt::Arguments<'_>) {
    out.write_fmt(what).expect("a vector takes everything");
}

fn unexpected(bytes: &[u8]) -> io::Error {
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    io::Error::other(format!("unexpected answer: {start:?}"))
}
