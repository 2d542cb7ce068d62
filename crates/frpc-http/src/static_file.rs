//! Files in memory, such as pages for browsers.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE},
};

use crate::{Mount, MountContext};

/// Serves a file in memory at a path of [`Http`](crate::Http), such as a page for browsers.
///
/// ```
/// use frpc_http::{Http, StaticFile};
///
/// // include_bytes! or std::fs::read supplies the content of a real file.
/// let http = Http::new()
///     .mount("/", StaticFile::new("text/html; charset=utf-8", "<script src=\"/page.js\"></script>"))
///     .mount("/page.js", StaticFile::new("text/javascript; charset=utf-8", "document.title = \"Hello\""));
/// # let _ = http;
/// ```
#[derive(Clone, Debug)]
pub struct StaticFile {
    content_type: &'static str,
    content: Bytes,
}

impl StaticFile {
    /// Serves this content, to GET and HEAD.
    ///
    /// # Panics
    ///
    /// If `content_type` is not a valid value of a header.
    pub fn new(content_type: &'static str, content: impl Into<Bytes>) -> Self {
        // Checked here, so that no request panics.
        let _ = HeaderValue::from_static(content_type);
        Self { content_type, content: content.into() }
    }
}

impl Mount for StaticFile {
    fn respond<'a>(&'a self, _: MountContext, request: Request<Bytes>) -> BoxFuture<'a, Response<Bytes>> {
        let headers = [(CONTENT_TYPE, HeaderValue::from_static(self.content_type))];
        answer(request.method(), headers.into_iter().collect(), self.content.clone())
    }
}

/// Returns the response with a body for GET and HEAD, and a refusal for other methods.
pub(crate) fn answer(method: &Method, headers: HeaderMap, body: Bytes) -> BoxFuture<'static, Response<Bytes>> {
    let mut response = Response::new(body);
    *response.headers_mut() = headers;
    if !matches!(*method, Method::GET | Method::HEAD) {
        response = Response::new(Bytes::from_static(b"use GET\n"));
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    Box::pin(std::future::ready(response))
}
