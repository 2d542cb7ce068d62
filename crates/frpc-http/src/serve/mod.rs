//! From a request of HTTP to a response, by protocol.

mod body;
mod grpc;
mod grpc_web;
mod remainder;
mod requests;
mod site;

use http::{HeaderValue, Request, Response, StatusCode, header::CONTENT_TYPE};

use self::{body::ResponseBody, grpc::Dialect, site::refuse};
pub(crate) use self::{remainder::Remainder, requests::RequestBody, site::Site};

/// Answers a request, by the protocol that its content type names.
pub(crate) async fn respond<B: RequestBody>(site: &Site, request: Request<B>) -> Response<ResponseBody> {
    let (parts, body) = request.into_parts();
    let content_type = parts.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    if let Some(dialect) = Dialect::of(content_type)
        && dialect.is_on(&site.settings)
    {
        return grpc::serve(site, dialect, parts, body).await;
    }
    refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "no protocol that is served here has this content type\n")
}
