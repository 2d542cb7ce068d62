//! The page for browsers.

use bytes::Bytes;
use frpc_http::{Mount, MountContext};
use futures_util::future::BoxFuture;
use http::{
    HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{
        ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
        X_FRAME_OPTIONS,
    },
};

use crate::AdminAccess;

/// The page with a live view of the process, for a path of `frpc_http::Http`. Made by [`Admin::page`](crate::Admin::page).
///
/// It calls `frpc.admin.v1.Admin/Watch` on the same port, so add the service, too. It loads no external resources.
#[derive(Clone, Debug)]
pub struct AdminPage {
    access: AdminAccess,
}

impl AdminPage {
    pub(crate) fn new(access: AdminAccess) -> Self {
        Self { access }
    }
}

impl Mount for AdminPage {
    fn respond<'a>(&'a self, context: MountContext, request: Request<Bytes>) -> BoxFuture<'a, Response<Bytes>> {
        let response = match *request.method() {
            Method::GET | Method::HEAD => match self.access.check_page(&context.head()) {
                Ok(()) => page(),
                Err(status) => text(StatusCode::FORBIDDEN, format!("{}\n", status.message())),
            },
            _ => {
                let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n".to_owned());
                response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
                response
            }
        };
        Box::pin(std::future::ready(response))
    }
}

fn text(code: StatusCode, text: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(text));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

fn page() -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(PAGE));
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

const PAGE: &[u8] = include_bytes!("page.html");

const HEADERS: [(HeaderName, &str); 6] = [
    (CONTENT_TYPE, "text/html; charset=utf-8"),
    (CACHE_CONTROL, "no-store"),
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (REFERRER_POLICY, "no-referrer"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
];
