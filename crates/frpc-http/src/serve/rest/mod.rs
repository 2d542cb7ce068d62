//! REST: HTTP methods and paths from the annotations of methods, with JSON in both directions.

mod requests;
mod stream;

use frpc::{Answer, Body, Code, MethodHandle, MethodKind, RpcSystem, Status, codec::Format, shown};
use frpc_rest::{RequestParts, RouteCall, RouteMatch};
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING, CONTENT_TYPE},
    request::Parts,
};

use super::{
    bare,
    body::ResponseBody,
    coding::CallCompression,
    framed,
    request_memory::RequestMemory,
    requests::RequestBody,
    site::{ServeContext, check_codec, media_type},
};
use crate::{
    codes,
    headers::{
        metadata,
        timeout::{self, CONNECT_TIMEOUT, GRPC_TIMEOUT},
    },
    status,
};

const JSON: &str = "application/json";

/// Answers a request with a path of REST.
pub(super) async fn serve<B: RequestBody>(
    site: &ServeContext,
    found: RouteMatch<'_>,
    parts: &Parts,
    body: B,
) -> Response<ResponseBody> {
    let (http_status, status) = match found {
        RouteMatch::Found(call) => match site.endpoint.find(call.route().method()) {
            Some(method) => return serve_route(site, &call, method.over(RpcSystem::Rest), parts, body).await,
            None => (StatusCode::NOT_FOUND, Status::unimplemented("there is no such method")),
        },
        RouteMatch::OtherMethods(methods) => {
            site.endpoint.count_refused(None, RpcSystem::Rest, Code::Unimplemented);
            let methods = methods.join(", ");
            let text = format!("{} is not allowed for this path: use {methods}", shown(parts.method.as_str()));
            let mut response = failed_with(site, StatusCode::METHOD_NOT_ALLOWED, &Status::unimplemented(text));
            if let Ok(methods) = HeaderValue::try_from(methods) {
                response.headers_mut().insert(ALLOW, methods);
            }
            return response;
        }
        RouteMatch::Malformed(reason) => (StatusCode::BAD_REQUEST, Status::invalid_argument(reason)),
        RouteMatch::NotFound => (StatusCode::NOT_FOUND, Status::not_found("no method has this path")),
    };
    site.endpoint.count_refused(None, RpcSystem::Rest, status.code());
    failed_with(site, http_status, &status)
}

async fn serve_route<B: RequestBody>(
    site: &ServeContext,
    call: &RouteCall,
    method: MethodHandle,
    parts: &Parts,
    body: B,
) -> Response<ResponseBody> {
    let answered = async {
        check_codec(method.method(), Format::Json)?;
        let sent = parts.headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
        let coding = CallCompression::negotiate(sent, parts.headers.get(ACCEPT_ENCODING), &site.settings)?;
        let time = call_time(&parts.headers)?;
        let mut head = site.call_head(parts, time)?;
        let kind = method.method().kind;
        let request = if kind.has_request_stream() {
            check_content_type(call, &parts.headers)?;
            if coding.of_requests {
                return Err(Status::unimplemented("a stream of requests cannot be compressed"));
            }
            Body::Many(requests::messages(site, call, parts, body))
        } else {
            let mut holding = RequestMemory::new(&site.account);
            let mut content = bytes::Bytes::new();
            if call.route().has_body() {
                content = bare::collect_message(body, coding, time, &site.settings, &mut holding).await?;
                if !content.is_empty() {
                    check_content_type(call, &parts.headers)?;
                }
            }
            let message = message(site, call, parts, content)?;
            holding.set(message.len())?;
            holding.attach_to(&mut head);
            Body::from(message)
        };
        if kind == MethodKind::Unary {
            let answer = site.call_unary(method, Format::Json, head, request).await?;
            return whole(site, call, answer, coding);
        }
        let (answer, guard) = framed::call_guarded(site, method, Format::Json, head, request).await?;
        match kind.has_response_stream() {
            true => stream::respond(site, call, &parts.headers, answer, guard).await,
            false => whole(site, call, answer, coding),
        }
    };
    answered.await.unwrap_or_else(|status| failed(site, &status))
}

/// Returns the JSON of a request message.
fn message(site: &ServeContext, call: &RouteCall, parts: &Parts, body: bytes::Bytes) -> Result<bytes::Bytes, Status> {
    let request = RequestParts {
        query: parts.uri.query().unwrap_or_default(),
        content_type: parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default(),
        body,
        is_strict: site.settings.strict_json,
    };
    call.message(request).map_err(|error| Status::invalid_argument(error.to_string()))
}

/// Checks that a body is JSON. Browsers ask for permission before they send this type to a foreign origin, unlike
/// the types of forms.
fn check_content_type(call: &RouteCall, headers: &HeaderMap) -> Result<(), Status> {
    let given = media_type(headers);
    let is_json = given.eq_ignore_ascii_case(JSON.as_bytes()) || given.to_ascii_lowercase().ends_with(b"+json");
    if is_json || call.takes_http_body() {
        return Ok(());
    }
    let given = shown(given);
    Err(Status::invalid_argument(format!("unexpected content type \"{given}\": expected {JSON}")))
}

/// Returns the timeout set by the caller, in the header of Connect or of gRPC.
fn call_time(headers: &HeaderMap) -> Result<Option<std::time::Duration>, Status> {
    let (name, value, parsed) = match (headers.get(CONNECT_TIMEOUT), headers.get(GRPC_TIMEOUT)) {
        (Some(value), _) => (CONNECT_TIMEOUT, value, timeout::parse_connect(value.as_bytes())),
        (None, Some(value)) => (GRPC_TIMEOUT, value, timeout::parse_grpc(value.as_bytes())),
        (None, None) => return Ok(None),
    };
    parsed.map(Some).ok_or_else(|| Status::invalid_argument(format!("invalid {name} \"{}\"", shown(value))))
}

/// Builds the response with a single message.
fn whole(
    site: &ServeContext,
    call: &RouteCall,
    answer: Answer,
    coding: CallCompression,
) -> Result<Response<ResponseBody>, Status> {
    let mut content_type = Ok(HeaderValue::from_static(JSON));
    let answer = answer.map_body(|body| match body {
        Body::One(message) => match call.response(message.into_bytes()) {
            Some(response) => {
                content_type = response_type(response.content_type.as_deref());
                Body::from(response.content)
            }
            None => {
                content_type = Err(Status::internal("the response does not have the type of its method"));
                Body::from(bytes::Bytes::new())
            }
        },
        body => body,
    });
    bare::respond(site, answer, coding, content_type?, "trailer-")
}

/// Returns the header for the content type of a `google.api.HttpBody`, or of JSON.
fn response_type(content_type: Option<&str>) -> Result<HeaderValue, Status> {
    match content_type {
        None => Ok(HeaderValue::from_static(JSON)),
        Some("") => Ok(HeaderValue::from_static("application/octet-stream")),
        Some(given) => HeaderValue::from_str(given)
            .map_err(|_| Status::internal("the content type of the response is not a valid header value")),
    }
}

fn failed(site: &ServeContext, status: &Status) -> Response<ResponseBody> {
    failed_with(site, codes::connect_http_status(status.code()), status)
}

fn failed_with(site: &ServeContext, http_status: StatusCode, status: &Status) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::from(status::rest::error(status, site.endpoint.any_types())));
    *response.status_mut() = http_status;
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    let bare = headers.clone();
    metadata::extend(&mut headers, status.metadata(), "");
    // The error takes precedence: its metadata is dropped if the headers would become too large.
    *response.headers_mut() = if site.check_answer_head(&headers).is_ok() { headers } else { bare };
    response
}
