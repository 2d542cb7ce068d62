//! Requests for a mount.

use bytes::Bytes;
use frpc::{Code, Status};
use http::{
    Extensions, HeaderMap, HeaderValue, Request, Response, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
    request::Parts,
};

use super::{
    bare, body::ResponseBody, coding::CallCompression, request_memory::RequestMemory, requests::RequestBody,
    site::ServeContext,
};
use crate::{
    headers::timeout::{self, CONNECT_TIMEOUT},
    mount::{Mount, MountContext},
};

/// Reads the body of a request, then passes the request to the mount.
pub(super) async fn serve<B: RequestBody>(
    site: &ServeContext,
    mount: &dyn Mount,
    parts: Parts,
    body: B,
) -> Response<ResponseBody> {
    // Released once the mount has answered.
    let mut holding = RequestMemory::new(&site.account);
    let received = async {
        let visit = mount_context(site, &parts.headers, &parts.extensions)?;
        let sent = parts.headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
        let coding = CallCompression::negotiate(sent, None, &site.settings)?;
        let body = bare::collect_message(body, coding, visit.time, &site.settings, &mut holding).await?;
        Ok::<_, Status>((visit, body))
    };
    match received.await {
        Ok((visit, body)) => mount.respond(visit, Request::from_parts(parts, body)).await.map(ResponseBody::from),
        Err(status) => refuse(&status),
    }
}

/// Returns the context of a request.
///
/// # Errors
///
/// If its metadata is invalid or too large.
pub(super) fn mount_context(
    site: &ServeContext,
    headers: &HeaderMap,
    extensions: &Extensions,
) -> Result<MountContext, Status> {
    Ok(MountContext {
        endpoint: site.endpoint.clone(),
        peer: site.peer(extensions).cloned(),
        metadata: site.metadata(headers)?,
        time: headers.get(CONNECT_TIMEOUT).and_then(|value| timeout::parse_connect(value.as_bytes())),
        drain: site.drain.clone(),
    })
}

/// Returns an error response for a request that never reached its mount.
pub(super) fn refuse(status: &Status) -> Response<ResponseBody> {
    let code = match status.code() {
        Code::ResourceExhausted => StatusCode::PAYLOAD_TOO_LARGE,
        Code::DeadlineExceeded => StatusCode::REQUEST_TIMEOUT,
        Code::Unimplemented => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        _ => StatusCode::BAD_REQUEST,
    };
    let mut response = Response::new(ResponseBody::from(Bytes::from(format!("{}\n", status.message()))));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
