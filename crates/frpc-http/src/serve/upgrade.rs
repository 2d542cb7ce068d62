//! Upgrades of HTTP/1.1 connections to WebSocket.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use frpc::{Drain, Raw};
use frpc_websocket::{Role, WebSocket, accept_key, is_key};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
    header::{
        CONNECTION, HOST, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
        SEC_WEBSOCKET_VERSION, UPGRADE,
    },
};
use http_body::Body;
use hyper::{body::Incoming, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use tracing::debug;

use super::{
    body::ResponseBody,
    mounted,
    site::{ServeContext, refuse},
};
use crate::{
    cors::Cors,
    mount::{Mount, MountContext},
    settings::HttpSettings,
    write_timeout::WriteTimeout,
};

/// The pending upgrade of an HTTP/1.1 connection, if any.
#[derive(Clone, Default)]
pub(crate) struct UpgradeSlot(Arc<Mutex<Option<WebSocketUpgrade>>>);

/// A connection about to become a WebSocket.
pub(crate) struct WebSocketUpgrade {
    socket: OnUpgrade,
    protocol: WebSocketProtocol,
}

/// The protocol on a WebSocket.
enum WebSocketProtocol {
    /// Frisbee in binary messages.
    Frisbee,
    Mounted {
        mount: Arc<dyn Mount>,
        visit: Box<MountContext>,
        subprotocol: Option<&'static str>,
        message_len_max: usize,
        keepalive: Option<(Duration, Duration)>,
    },
}

impl UpgradeSlot {
    /// Answers a WebSocket handshake. `None` for any other request.
    pub(crate) fn answer(
        &self,
        site: &ServeContext,
        request: &mut Request<Incoming>,
    ) -> Option<Response<ResponseBody>> {
        if !has_word(request.headers(), &UPGRADE, "websocket") || !has_word(request.headers(), &CONNECTION, "upgrade") {
            return None;
        }
        Some(self.accept(site, request).unwrap_or_else(|refusal| *refusal))
    }

    fn accept(
        &self,
        site: &ServeContext,
        request: &mut Request<Incoming>,
    ) -> Result<Response<ResponseBody>, Box<Response<ResponseBody>>> {
        let accept = check(request, site.additions.cors.as_ref())?;
        let mount = site.additions.mounts.at(request.uri().path()).filter(|mount| !mount.subprotocols().is_empty());
        let chosen = choose(request.headers(), site.settings.websocket, mount)?;
        let mut response = Response::new(ResponseBody::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
        if let Some(subprotocol) = chosen {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(subprotocol));
        }
        let protocol = match mount {
            Some(mount) if chosen != Some(FRPC) => {
                let visit = mounted::mount_context(site, request.headers(), request.extensions());
                let visit = Box::new(visit.map_err(|status| mounted::refuse(&status))?);
                let HttpSettings { message_len_max, keepalive_interval, keepalive_timeout, .. } = *site.settings;
                let keepalive = keepalive_interval.map(|interval| (interval, keepalive_timeout));
                let mount = mount.clone();
                WebSocketProtocol::Mounted { mount, visit, subprotocol: chosen, message_len_max, keepalive }
            }
            _ => WebSocketProtocol::Frisbee,
        };
        let upgrade = WebSocketUpgrade { socket: hyper::upgrade::on(request), protocol };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(upgrade);
        Ok(response)
    }

    /// Takes the pending upgrade, if any.
    pub(crate) fn take(&self) -> Option<WebSocketUpgrade> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl WebSocketUpgrade {
    /// Serves the WebSocket after the last HTTP response has been sent.
    pub(crate) async fn serve(self, drain: Drain) {
        let socket = match self.socket.await {
            Ok(socket) => socket,
            Err(error) => return debug!(%error, "the connection was lost during its upgrade to WebSocket"),
        };
        let parts = socket.downcast::<TokioIo<WriteTimeout<Raw>>>().expect("the stream that was served");
        let (socket, unread) = (parts.io.into_inner(), parts.read_buf);
        match self.protocol {
            // Frisbee has its own timeouts for silence and for blocked writes.
            WebSocketProtocol::Frisbee => {
                let socket = WebSocket::new(socket.into_inner(), Role::Server).with_unread(&unread);
                drain.leave_to_frisbee(socket.into_stream());
            }
            WebSocketProtocol::Mounted { mount, visit, subprotocol, message_len_max, keepalive } => {
                let mut socket = WebSocket::new(socket, Role::Server)
                    .with_unread(&unread)
                    .with_subprotocol(subprotocol)
                    .message_len_max(message_len_max);
                if let Some((interval, timeout)) = keepalive {
                    socket = socket.keepalive(interval, timeout);
                }
                mount.websocket(*visit, socket).await;
            }
        }
    }
}

/// Checks a handshake and returns the value of `Sec-WebSocket-Accept`.
fn check<B: Body>(request: &Request<B>, cors: Option<&Cors>) -> Result<HeaderValue, Box<Response<ResponseBody>>> {
    let headers = request.headers();
    if request.version() != Version::HTTP_11 || request.method() != Method::GET || !request.body().is_end_stream() {
        return Err(Box::new(refuse(
            StatusCode::BAD_REQUEST,
            "a WebSocket handshake must be a GET request over HTTP/1.1 without a body\n",
        )));
    }
    if headers.get(SEC_WEBSOCKET_VERSION).map(HeaderValue::as_bytes) != Some(b"13") {
        let mut response = refuse(StatusCode::UPGRADE_REQUIRED, "unsupported WebSocket version: use version 13\n");
        response.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        return Err(Box::new(response));
    }
    if !is_origin_allowed(headers, cors) {
        return Err(Box::new(refuse(StatusCode::FORBIDDEN, "pages of this origin are not allowed to connect\n")));
    }
    let Some(key) = headers.get(SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes).filter(|key| is_key(key)) else {
        return Err(Box::new(refuse(StatusCode::BAD_REQUEST, "sec-websocket-key is not 16 bytes in base64\n")));
    };
    Ok(HeaderValue::try_from(accept_key(key)).expect("base64 is a value"))
}

/// Returns `true` if the origin of a handshake may connect: the same host, or an allowed origin. Browsers send no
/// preflight for WebSockets. Programs other than browsers send no origin.
fn is_origin_allowed(headers: &HeaderMap, cors: Option<&Cors>) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return true };
    if cors.is_some_and(|cors| cors.allows(origin)) {
        return true;
    }
    let host = headers.get(HOST).map(HeaderValue::as_bytes);
    let origin: Option<Uri> = origin.to_str().ok().and_then(|origin| origin.parse().ok());
    let authority = origin.as_ref().and_then(|origin| origin.authority());
    authority.is_some_and(|authority| host.is_some_and(|host| host.eq_ignore_ascii_case(authority.as_str().as_bytes())))
}

/// Returns the first supported subprotocol offered by the peer, or `None` if it may connect without one.
fn choose(
    headers: &HeaderMap,
    speaks_frpc: bool,
    mount: Option<&Arc<dyn Mount>>,
) -> Result<Option<&'static str>, Box<Response<ResponseBody>>> {
    let mounted = mount.map_or(&[][..], |mount| mount.subprotocols());
    let known = || speaks_frpc.then_some(FRPC).into_iter().chain(mounted.iter().copied());
    let mut offered = words(headers, &SEC_WEBSOCKET_PROTOCOL).peekable();
    if offered.peek().is_none() && mount.is_some() {
        return Ok(None);
    }
    let chosen = offered.find_map(|word| known().find(|known| known.as_bytes() == word));
    if chosen.is_some() {
        return Ok(chosen);
    }
    let known: Vec<&str> = known().collect();
    let text = match &*known {
        [] => "this path does not accept WebSockets\n".to_owned(),
        known => format!("sec-websocket-protocol: this path supports the subprotocols {}\n", known.join(", ")),
    };
    let mut response = refuse(StatusCode::BAD_REQUEST, "");
    *response.body_mut() = ResponseBody::from(Bytes::from(text));
    Err(Box::new(response))
}

/// Returns the elements of a list header.
fn words<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let lists = headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
    lists.flat_map(|list| list.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii).filter(|word| !word.is_empty())
}

fn has_word(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    words(headers, name).any(|other| other.eq_ignore_ascii_case(word.as_bytes()))
}

/// The subprotocol of frisbee.
const FRPC: &str = "frpc";
