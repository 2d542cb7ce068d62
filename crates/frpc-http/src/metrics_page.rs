//! The counters of the process for Prometheus.

use bytes::Bytes;
use frpc::metrics::{MetricsSnapshot, TextFormat};
use futures_util::future::BoxFuture;
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{ACCEPT, ALLOW, CONTENT_TYPE},
};

use crate::{Mount, MountContext};

/// Serves the counters of all servers and channels of the process, in the text formats of Prometheus and OpenMetrics.
///
/// ```
/// use frpc_http::{Http, MetricsPage};
///
/// let http = Http::new().mount("/metrics", MetricsPage);
/// # let _ = http;
/// ```
///
/// The names and values are public to every peer of the server. They contain names of methods and targets, and no data of
/// calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct MetricsPage;

impl Mount for MetricsPage {
    fn respond<'a>(&'a self, _: MountContext, request: Request<Bytes>) -> BoxFuture<'a, Response<Bytes>> {
        let response = match *request.method() {
            Method::GET | Method::HEAD => page(&request),
            _ => {
                let mut response = Response::new(Bytes::from_static(b"use GET\n"));
                *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
                response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
                response
            }
        };
        Box::pin(std::future::ready(response))
    }
}

fn page(request: &Request<Bytes>) -> Response<Bytes> {
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format = TextFormat::accepted(accept);
    let mut response = Response::new(Bytes::from(MetricsSnapshot::take().to_text(format)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    response
}
