//! Connect: unary calls as plain HTTP requests, and streams as frames in a body.

mod head;
mod query;
mod streams;
mod unary;

use frpc::{MethodHandle, MethodKind};
use http::{HeaderValue, Method, Response, StatusCode, header::ALLOW, request::Parts};

use self::head::{ConnectContentType, of_content_type, unsupported};
use super::{
    body::ResponseBody,
    requests::RequestBody,
    site::{ServeContext, refuse},
};

/// Answers a request for a method.
pub(super) async fn serve<B: RequestBody>(
    site: &ServeContext,
    method: MethodHandle,
    media_type: &[u8],
    parts: &Parts,
    body: B,
) -> Response<ResponseBody> {
    let (kind, may_be_get) = (method.method().kind, method.method().has_no_side_effects);
    match parts.method {
        Method::POST => match (of_content_type(media_type), kind) {
            (Some(ConnectContentType::Message(format)), MethodKind::Unary) => {
                unary::post(site, method, format, parts, body).await
            }
            (Some(ConnectContentType::Frames(format)), kind) if kind != MethodKind::Unary => {
                streams::serve(site, method, format, parts, body).await
            }
            _ => unsupported(kind),
        },
        Method::GET | Method::HEAD if may_be_get && kind == MethodKind::Unary => unary::get(site, method, parts).await,
        _ => {
            let mut response =
                refuse(StatusCode::METHOD_NOT_ALLOWED, "this HTTP verb is not allowed for this method\n");
            let allowed = if may_be_get && kind == MethodKind::Unary { "GET, POST" } else { "POST" };
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
            response
        }
    }
}
