//! Unary calls: the body is the message, and a failure is an HTTP error status with JSON.

use frpc::{Body, MethodHandle, Status, codec::Format};
use http::{
    HeaderValue, Response,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE},
    request::Parts,
};

use super::{
    head::{ConnectContentType, call_time, check_version, unsupported},
    query::ConnectQuery,
};
use crate::{
    codes,
    headers::{CONNECT_PROTOCOL_VERSION, metadata},
    serve::{
        bare,
        body::ResponseBody,
        coding::CallCompression,
        request_memory::RequestMemory,
        requests::RequestBody,
        site::{ServeContext, check_codec},
    },
    status,
};

/// Answers a POST request. Its body is the message.
pub(super) async fn post<B: RequestBody>(
    site: &ServeContext,
    method: MethodHandle,
    format: Format,
    parts: &Parts,
    body: B,
) -> Response<ResponseBody> {
    let answered = async {
        let version = parts.headers.get(CONNECT_PROTOCOL_VERSION).map(HeaderValue::as_bytes);
        check_codec(method.method(), format)?;
        check_version(version, "1", site.settings.connect_version_required)?;
        let sent = parts.headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
        let coding = CallCompression::negotiate(sent, parts.headers.get(ACCEPT_ENCODING), &site.settings)?;
        let time = call_time(&parts.headers)?;
        let mut head = site.call_head(parts, time)?;
        let mut holding = RequestMemory::new(&site.account);
        let message = bare::collect_message(body, coding, time, &site.settings, &mut holding).await?;
        holding.attach_to(&mut head);
        let answer = site.call_unary(method, format, head, Body::from(message)).await?;
        let content_type = HeaderValue::from_static(ConnectContentType::Message(format).media_type());
        bare::respond(site, answer, coding, content_type, "trailer-")
    };
    answered.await.unwrap_or_else(|status| failed(site, &status))
}

/// Answers a GET request. Its query contains the message.
pub(super) async fn get(site: &ServeContext, method: MethodHandle, parts: &Parts) -> Response<ResponseBody> {
    let query = ConnectQuery::parse(parts.uri.query().unwrap_or_default());
    let format = match query.encoding.as_deref() {
        Some(b"json") => Format::Json,
        Some(b"proto") => Format::Proto,
        _ => return unsupported(method.method().kind),
    };
    let answered = async {
        check_codec(method.method(), format)?;
        check_version(query.connect.as_deref(), "v1", site.settings.connect_version_required)?;
        let accepted = parts.headers.get(ACCEPT_ENCODING);
        let coding = CallCompression::negotiate(query.compression.as_deref(), accepted, &site.settings)?;
        let mut head = site.call_head(parts, call_time(&parts.headers)?)?;
        let message = bare::inflate(query.message()?, coding, &site.settings)?;
        let mut holding = RequestMemory::new(&site.account);
        holding.set(message.len())?;
        holding.attach_to(&mut head);
        let answer = site.call_unary(method, format, head, Body::from(message)).await?;
        let content_type = HeaderValue::from_static(ConnectContentType::Message(format).media_type());
        bare::respond(site, answer, coding, content_type, "trailer-")
    };
    answered.await.unwrap_or_else(|status| failed(site, &status))
}

fn failed(site: &ServeContext, status: &Status) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::from(status::connect::error(status)));
    *response.status_mut() = codes::connect_http_status(status.code());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut headers = response.headers().clone();
    metadata::extend(&mut headers, status.metadata(), "");
    // The error takes precedence: its metadata is dropped if the headers would become too large.
    if site.check_answer_head(&headers).is_ok() {
        *response.headers_mut() = headers;
    }
    response
}
