//! JSON-RPC over HTTP: POST requests and WebSockets on a path of the HTTP wire.

mod websocket;

use std::{future::poll_fn, task::Poll};

use bytes::Bytes;
use frpc_http::{Mount, MountContext};
use frpc_websocket::WebSocket;
use futures_util::future::{BoxFuture, FutureExt};
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE},
};

use crate::{
    calls::PeerCalls,
    outbox::{MessageFraming, MessageOutbox},
    request::{MessageLimits, read_whole},
    wire::JsonRpc,
};

impl Mount for JsonRpc {
    fn respond<'a>(&'a self, visit: MountContext, request: Request<Bytes>) -> BoxFuture<'a, Response<Bytes>> {
        async move {
            match *request.method() {
                Method::POST if !is_json(&request) => text_response(
                    StatusCode::UNSUPPORTED_MEDIA_TYPE,
                    "Send JSON-RPC with the header content-type: application/json, as curl --json does.\n",
                ),
                Method::POST => {
                    let head = visit.head();
                    let calls = self.calls(visit.endpoint, head, false, visit.drain);
                    json_response(answer(calls, self.settings.limits(), request.body()).await)
                }
                Method::GET | Method::HEAD => text_response(StatusCode::OK, EXPLANATION),
                _ => {
                    let mut response = text_response(StatusCode::METHOD_NOT_ALLOWED, EXPLANATION);
                    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST"));
                    response
                }
            }
        }
        .boxed()
    }

    fn subprotocols(&self) -> &[&'static str] {
        &["jsonrpc"]
    }

    fn websocket<'a>(&'a self, mut visit: MountContext, socket: WebSocket) -> BoxFuture<'a, ()> {
        // The timeout of the handshake request does not apply to each call.
        visit.time = None;
        let head = visit.head();
        let calls = self.calls(visit.endpoint, head, true, visit.drain.clone());
        websocket::serve(socket, calls, self.settings.clone(), visit.drain).boxed()
    }
}

/// The response for browsers.
const EXPLANATION: &str = r#"This is JSON-RPC 2.0. Send requests by POST, alone or in a batch:

    curl --json '{"jsonrpc": "2.0", "method": "sum", "params": [1, 2], "id": 1}' http://HOST:PORT/PATH

The method rpc.discover describes all functions. Methods of services are called by package.Service/Method,
with the fields of their request as params.
"#;

/// Starts the calls of a message, and returns their answers after all have ended.
async fn answer(mut calls: PeerCalls, limits: MessageLimits, body: &[u8]) -> Vec<u8> {
    let mut outbox = MessageOutbox::new(MessageFraming::Values);
    outbox.bytes.reserve(ANSWER_LEN);
    let mut message = Some(read_whole(body, limits));
    poll_fn(|cx| {
        match message.take() {
            Some(Ok(message)) => calls.start(message, body.len(), cx, &mut outbox),
            Some(Err(why)) => calls.refuse(&why, &mut outbox),
            None => {}
        }
        while calls.poll(cx, &mut outbox).is_ready() {}
        if calls.is_idle() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outbox.bytes
}

/// The initial capacity for answers, enough for most of them.
const ANSWER_LEN: usize = 128;

/// Returns `true` if the content type is JSON. Web pages of other origins may send it only with CORS permission, unlike
/// other types.
fn is_json(request: &Request<Bytes>) -> bool {
    let value = request.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    if value == b"application/json" {
        return true;
    }
    let media_type = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let known = ["application/json", "application/json-rpc", "application/jsonrequest"];
    known.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(media_type))
}

/// Returns the response with an answer. Notifications have no content.
fn json_response(answer: Vec<u8>) -> Response<Bytes> {
    let is_nothing = answer.is_empty();
    let mut response = Response::new(answer.into());
    if is_nothing {
        *response.status_mut() = StatusCode::NO_CONTENT;
    } else {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    response
}

fn text_response(status: StatusCode, words: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(words.as_bytes()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
