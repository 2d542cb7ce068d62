//! Dispatch of HTTP requests to the protocols.

mod bare;
mod body;
mod coding;
#[cfg(not(feature = "http2"))]
mod complete_body;
mod connect;
mod framed;
mod grpc;
#[cfg(feature = "http2")]
mod grpc_call;
mod grpc_web;
mod mounted;
mod page;
mod remainder;
mod request_memory;
mod requests;
mod responses;
mod rest;
mod site;
mod twirp;
mod upgrade;

use frpc::{Code, RpcSystem, Status};
#[cfg(feature = "http2")]
use frpc::{Dispatch, MethodKind};
use frpc_rest::RouteMatch;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
    header::{CONNECTION, CONTENT_LENGTH, ORIGIN, TRANSFER_ENCODING},
    request::Parts,
};
use http_body::Body;

#[cfg_attr(
    not(feature = "tower"),
    expect(unreachable_pub, reason = "others see it only as the body of a tower service")
)]
pub use self::body::ResponseBody;
#[cfg(not(feature = "http2"))]
pub(crate) use self::complete_body::CompleteBody;
#[cfg(feature = "http2")]
pub(crate) use self::grpc_call::{GrpcCall, GrpcReply, is_short_message, ok_trailers};
#[cfg(fuzzing)]
pub(crate) use self::grpc_web::TextDecoder;
#[cfg(test)]
pub(crate) use self::page::tests::check_page;
pub(crate) use self::{
    body::GuardedBody,
    page::{EscapedHtml, headers as page_headers},
    remainder::{DiscardOnDrop, UnreadFlag},
    requests::RequestBody,
    site::{ServeContext, refuse},
    upgrade::UpgradeSlot,
};
use self::{grpc::GrpcDialect, site::media_type};

use crate::{headers::request_len, hosts};

/// Answers a request, including the CORS headers for browsers.
pub(crate) async fn respond<B: RequestBody>(site: &ServeContext, parts: Parts, body: B) -> Response<ResponseBody> {
    let is_head = parts.method == Method::HEAD;
    if let Some(refusal) = refuse_host(site, &parts.uri, &parts.headers) {
        return response_to(is_head, refusal);
    }
    let cors = site.additions.cors.as_ref();
    if let Some((status, headers)) =
        cors.and_then(|cors| cors.preflight(&parts.method, &parts.headers, site.additions.rest.is_on()))
    {
        let mut response = Response::new(ResponseBody::empty());
        (*response.status_mut(), *response.headers_mut()) = (status, headers);
        return response;
    }
    let origin = cors.and_then(|_| parts.headers.get(ORIGIN).cloned());
    let mut response = match site.additions.mounts.at(parts.uri.path()) {
        // Boxed to keep ordinary calls small.
        Some(mount) => Box::pin(mounted::serve(site, &**mount, parts, body)).await,
        None => by_protocol(site, &parts, body).await,
    };
    if let Some(cors) = cors {
        cors.expose(response.headers_mut(), origin.as_ref());
    }
    response_to(is_head, response)
}

/// Turns the response to a GET into one to a HEAD, if the request is one: the same headers without the body.
pub(crate) fn response_to(is_head: bool, mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    if is_head {
        let body = std::mem::replace(response.body_mut(), ResponseBody::empty());
        if let Some(len) = body.size_hint().exact() {
            response.headers_mut().insert(CONTENT_LENGTH, len.into());
        }
    }
    response
}

/// Refuses a request for a host outside the allowed hosts.
fn refuse_host(site: &ServeContext, uri: &Uri, headers: &HeaderMap) -> Option<Response<ResponseBody>> {
    let hosts = site.additions.hosts.as_ref()?;
    let is_allowed = hosts.allows(uri, headers);
    (!is_allowed).then(|| refuse(StatusCode::MISDIRECTED_REQUEST, "this server does not serve this host\n"))
}

/// Refuses HTTP/1.1 requests that hyper accepts but intermediaries may read as a different request.
///
/// Such a request does not have exactly one host, or has a body coding other than `chunked`. Requests for a foreign
/// host are refused here as well, before an upgrade.
pub(crate) fn refuse_http1<B>(site: &ServeContext, request: &Request<B>) -> Option<Response<ResponseBody>> {
    let headers = request.headers();
    let mut codings = headers.get_all(TRANSFER_ENCODING).into_iter();
    let is_chunked = codings.next().is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    let mut response = if request.version() == Version::HTTP_11 && !hosts::has_one_host(headers) {
        refuse(
            StatusCode::BAD_REQUEST,
            "a request must have exactly one `host` header, with a host and an optional port\n",
        )
    } else if !is_chunked || codings.next().is_some() {
        refuse(StatusCode::NOT_IMPLEMENTED, "unsupported transfer-encoding: send chunked, once\n")
    } else {
        return refuse_host(site, request.uri(), headers);
    };
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    Some(response)
}

/// Refuses an HTTP/2 request with a head above the limit, with the error of its protocol.
pub(crate) fn refuse_head(site: &ServeContext, parts: &Parts) -> Option<Response<ResponseBody>> {
    let (len, max) = (request_len(&parts.method, &parts.uri, &parts.headers), site.settings.head_len_max);
    if len <= usize::try_from(max).unwrap_or(usize::MAX) {
        return None;
    }
    let dialect = GrpcDialect::of(media_type(&parts.headers)).filter(|dialect| dialect.is_enabled(&site.settings));
    Some(match dialect {
        Some(dialect) => {
            let text = format!("the request head has {len} bytes and exceeds the limit of {max}");
            grpc::failed(site, dialect, &Status::resource_exhausted(text))
        }
        None => {
            let refusal = refuse(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "the request head is too large\n");
            response_to(parts.method == Method::HEAD, refusal)
        }
    })
}

/// Returns `true` if requests or responses of this content type may be streams.
pub(crate) fn may_stream(content_type: &[u8]) -> bool {
    let may = [&b"application/grpc"[..], b"application/connect+"];
    may.iter().any(|may| content_type.get(..may.len()).is_some_and(|start| start.eq_ignore_ascii_case(may)))
}

/// Returns `true` if unary handlers run in separate tasks. Requests over HTTP/2 have no order to keep.
#[cfg(feature = "http2")]
pub(crate) fn spawns_unary(site: &ServeContext) -> bool {
    matches!(site.endpoint.dispatch(), Dispatch::Spawned | Dispatch::Limited(_))
}

/// Returns `true` if the handler of a request runs in a separate task: a call with streams, a mount, a path of REST, or
/// a unary call if the server spawns them.
#[cfg(feature = "http2")]
pub(crate) fn needs_task(site: &ServeContext, parts: &Parts) -> bool {
    let path = parts.uri.path();
    if site.additions.mounts.at(path).is_some() {
        return true;
    }
    let path = twirp::path(&site.settings, path, media_type(&parts.headers)).unwrap_or(path);
    match site.endpoint.find(path) {
        Some(found) => found.method().kind != MethodKind::Unary || spawns_unary(site),
        None => site.additions.rest.is_on(),
    }
}

/// Answers a request in the protocol given by its content type and path.
async fn by_protocol<B: RequestBody>(site: &ServeContext, parts: &Parts, body: B) -> Response<ResponseBody> {
    let ServeContext { endpoint, settings, .. } = site;
    let (media_type, path) = (media_type(&parts.headers), parts.uri.path());
    let dialect = GrpcDialect::of(media_type).or_else(|| GrpcDialect::of_codec(media_type, endpoint, path));
    if let Some(dialect) = dialect.filter(|dialect| dialect.is_enabled(settings)) {
        return grpc::serve(site, dialect, parts, body).await;
    }
    let twirp_path = twirp::path(settings, path, media_type);
    if site.additions.rest.is_on()
        && endpoint.find(twirp_path.unwrap_or(path)).is_none()
        && let Some(found) = site.additions.rest.find(&parts.method, path)
        && !matches!(found, RouteMatch::NotFound)
    {
        // Boxed to keep ordinary calls small.
        return Box::pin(rest::serve(site, found, parts, body)).await;
    }
    if let Some(path) = twirp_path {
        return twirp::serve(site, path, parts, body).await;
    }
    if settings.page && path == "/" && matches!(parts.method, Method::GET | Method::HEAD) {
        let (headers, html) = page::render(endpoint);
        let mut response = Response::new(ResponseBody::from(html));
        *response.headers_mut() = headers;
        return response;
    }
    if !settings.connect {
        let text = "unsupported content type: no enabled protocol uses it\n";
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
    }
    match endpoint.find(path) {
        Some(method) => connect::serve(site, method.over(RpcSystem::Connect), media_type, parts, body).await,
        None => {
            if site.additions.rest.is_on() {
                return Box::pin(rest::serve(site, RouteMatch::NotFound, parts, body)).await;
            }
            endpoint.count_refused(None, RpcSystem::Connect, Code::Unimplemented);
            refuse(StatusCode::NOT_FOUND, "there is no such method\n")
        }
    }
}
