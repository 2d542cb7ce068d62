//! POST requests for the protocols of other crates.

use std::sync::Arc;

use bytes::Bytes;
use frpc::{Call, ConnectError, ConnectSettings, Status};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header, response};

use super::{
    caller::media_type,
    exchange::{CallDeadlines, HttpExchange, ReceivedBody, RequestHead, TimeoutHeader},
    failures::http_failure,
    outgoing::RequestContent,
    pool::ConnectionPool,
    settings::Client,
};
use crate::headers::timeout;

/// Sends calls of another protocol as POST requests to one path of a server.
///
/// It uses the connections of a [`Client`], and is made by [`Client::poster`]. Cloning is cheap.
#[derive(Clone)]
pub struct Poster {
    pool: Arc<ConnectionPool>,
    /// The headers of all requests.
    base: Arc<HeaderMap>,
}

impl Client {
    /// Connects to an `http://` or `https://` address, for a protocol with a single path for all calls.
    ///
    /// # Errors
    ///
    /// If the address is invalid, or the server cannot be reached.
    pub async fn poster(&self, url: String, connect: ConnectSettings) -> Result<Poster, ConnectError> {
        let pool = ConnectionPool::connect(url, self.clone(), connect).await?;
        Ok(Poster { base: Arc::new(pool.base_headers()), pool })
    }
}

impl Poster {
    /// Returns `true` if the address is `https://`.
    pub fn is_secure(&self) -> bool {
        self.pool.dialer().target.is_secure
    }

    /// Sends a request for a call and returns the response.
    ///
    /// The request carries the metadata of the call, and its timeout as `connect-timeout-ms`. The response content is
    /// limited to the [`message_len_max`](ConnectSettings::message_len_max) of the channel.
    ///
    /// # Errors
    ///
    /// If the deadline passes, the connection is lost, or the response is too long. Also if the response has the status
    /// 413, or another HTTP error status with a content type other than `content_type`, as responses of proxies do.
    pub fn post(
        &self,
        call: &Call,
        content_type: &'static str,
        content: Bytes,
    ) -> impl Future<Output = Result<Response<Bytes>, Status>> + Send + use<> {
        let Self { pool, base } = self.clone();
        let (deadlines, metadata) = (CallDeadlines::of(call), call.head().metadata().clone());
        async move {
            let mut headers = (*base).clone();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
            headers.insert(header::ACCEPT, HeaderValue::from_static(content_type));
            let path = match &*pool.dialer().target.path {
                "" => "/",
                path => path,
            };
            let path =
                path.parse().map_err(|error| Status::internal(format!("{path} is not a valid HTTP path: {error}")))?;
            let timeout: Option<TimeoutHeader> = Some((timeout::CONNECT_TIMEOUT, timeout::connect as _));
            let headers = Arc::new(headers);
            let head =
                RequestHead { method: Method::POST, path, headers, metadata, timeout, said: None, is_repeated: false };
            let exchange = HttpExchange::begin(pool.clone(), head, RequestContent::Whole(content), deadlines).await?;
            let len_max = usize::try_from(pool.dialer().connect.message_len_max).unwrap_or(usize::MAX);
            let reading = async |parts: response::Parts, mut received: ReceivedBody| {
                let content = received.all(len_max).await?;
                if parts.status == StatusCode::PAYLOAD_TOO_LARGE {
                    let why = "the server refused the request as too long (HTTP 413)";
                    return Err(Status::resource_exhausted(why));
                }
                if !parts.status.is_success() && media_type(&parts.headers) != content_type {
                    return Err(http_failure(parts.status));
                }
                Ok(Response::from_parts(parts, content))
            };
            exchange.read_by_deadline(reading).await
        }
    }
}
