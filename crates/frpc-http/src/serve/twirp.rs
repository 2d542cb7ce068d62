//! Twirp: unary calls under a path prefix, and errors as JSON.

use frpc::{
    Body, Code, Metadata, MethodKind, RpcSystem, Status,
    codec::{CodecError, Format},
    shown,
};
use http::{
    HeaderValue, Method, Response, StatusCode,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE},
    request::Parts,
};

use super::{
    bare,
    body::ResponseBody,
    coding::CallCompression,
    request_memory::RequestMemory,
    requests::RequestBody,
    site::{ServeContext, check_codec, media_type},
};
use crate::{codes, settings::HttpSettings, status};

const PROTOBUF: &str = "application/protobuf";
const JSON: &str = "application/json";

/// Returns the method path of a Twirp request. `None` for requests of other protocols.
pub(super) fn path<'a>(settings: &HttpSettings, path: &'a str, media_type: &[u8]) -> Option<&'a str> {
    if !settings.twirp {
        return None;
    }
    if settings.twirp_prefix.is_empty() {
        // Connect calls use the same paths, so the content type decides.
        let is_json = media_type.eq_ignore_ascii_case(JSON.as_bytes());
        let is_ours = media_type.eq_ignore_ascii_case(PROTOBUF.as_bytes()) || is_json && !settings.connect;
        return is_ours.then_some(path);
    }
    path.strip_prefix(&settings.twirp_prefix)?.strip_prefix('/')
}

/// Answers a request for a method. `path` has no Twirp prefix.
pub(super) async fn serve<B: RequestBody>(
    site: &ServeContext,
    path: &str,
    parts: &Parts,
    body: B,
) -> Response<ResponseBody> {
    if parts.method != Method::POST {
        return bad_route(
            parts,
            &format!("unsupported HTTP method {}: Twirp calls must use POST", shown(parts.method.as_str())),
        );
    }
    let Some(method) = site.endpoint.find(path).map(|method| method.over(RpcSystem::Twirp)) else {
        site.endpoint.count_refused(None, RpcSystem::Twirp, Code::Unimplemented);
        return bad_route(parts, &format!("no handler for path {}", shown(parts.uri.path())));
    };
    let (format, answer_type) = match media_type(&parts.headers) {
        given if given.eq_ignore_ascii_case(PROTOBUF.as_bytes()) => (Format::Proto, PROTOBUF),
        given if given.eq_ignore_ascii_case(JSON.as_bytes()) => (Format::Json, JSON),
        given => {
            let given = shown(given);
            return bad_route(parts, &format!("unexpected Content-Type \"{given}\": expected {PROTOBUF} or {JSON}"));
        }
    };
    let answered = async {
        if method.method().kind != MethodKind::Unary {
            return Err(Status::unimplemented("the method has streams, which Twirp does not support"));
        }
        check_codec(method.method(), format)?;
        let sent = parts.headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
        let coding = CallCompression::negotiate(sent, parts.headers.get(ACCEPT_ENCODING), &site.settings)?;
        let mut head = site.call_head(parts, None)?;
        let mut holding = RequestMemory::new(&site.account);
        let message = bare::collect_message(body, coding, None, &site.settings, &mut holding).await?;
        holding.attach_to(&mut head);
        let answer = site.call_unary(method, format, head, Body::from(message)).await?;
        // Twirp has no trailers; they become ordinary headers.
        bare::respond(site, answer, coding, HeaderValue::from_static(answer_type), "")
    };
    answered.await.unwrap_or_else(|status| failed(&status))
}

fn failed(status: &Status) -> Response<ResponseBody> {
    let is_malformed = status.code() == Code::InvalidArgument
        && std::error::Error::source(status).is_some_and(|source| source.is::<CodecError>());
    let json = match is_malformed {
        true => status::twirp::error_named("malformed", status.message(), status.metadata()),
        false => status::twirp::error(status),
    };
    json_error(codes::twirp_http_status(status.code()), json)
}

/// Refuses a request that is not a valid Twirp call.
fn bad_route(parts: &Parts, message: &str) -> Response<ResponseBody> {
    let mut meta = Metadata::new();
    let _ = meta.insert("twirp_invalid_route", format!("{} {}", shown(parts.method.as_str()), shown(parts.uri.path())));
    json_error(StatusCode::NOT_FOUND, status::twirp::error_named("bad_route", message, &meta))
}

fn json_error(status: StatusCode, json: bytes::Bytes) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::from(json));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    response
}
