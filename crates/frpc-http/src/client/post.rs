//! Requests by POST, for calls of protocols that are not of this crate.

use std::sync::Arc;

use bytes::Bytes;
use frpc::{Call, ConnectError, ConnectSettings, Status};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};

use super::{
    caller::media_type,
    dial::Dialer,
    exchange::{Deadlines, Exchange, Head, TimeoutHeader},
    failures::of_http,
    outgoing::Content,
    pool::Pool,
    settings::Client,
    target::Target,
};
use crate::headers::timeout;

/// Sends calls of other protocols by POST to one path of a server, on the connections of a [`Client`]. Made by
/// [`Client::poster`]. Cheap to clone.
#[derive(Clone)]
pub struct Poster {
    pool: Arc<Pool>,
    /// The headers that all requests have.
    base: Arc<HeaderMap>,
}

impl Client {
    /// Connects to an address that begins with `http://` or `https://`, for protocols that send all calls to its path.
    ///
    /// # Errors
    ///
    /// If the address is none, or nobody answers there.
    pub async fn poster(&self, url: String, connect: ConnectSettings) -> Result<Poster, ConnectError> {
        let target = Target::parse(&url).map_err(ConnectError::Address)?;
        let dialer = Dialer::new(url, target, self.settings.clone(), connect).map_err(ConnectError::Address)?;
        let pool = Pool::connect(dialer).await?;
        let mut base = HeaderMap::new();
        if let Some(user_agent) = &self.settings.user_agent {
            base.insert(header::USER_AGENT, user_agent.clone());
        }
        Ok(Poster { pool, base: Arc::new(base) })
    }
}

impl Poster {
    /// Sends this content for a call, with its metadata and with its time as `connect-timeout-ms`, and returns the response, whose
    /// content has no more than the [message_len_max](ConnectSettings::message_len_max) bytes of the channel.
    ///
    /// # Errors
    ///
    /// If the time of the call is up, the connection was lost, or the response is none of HTTP's successes and of another type than the
    /// request, as those of proxies are.
    pub fn post(
        &self,
        call: &Call,
        content_type: &'static str,
        content: Bytes,
    ) -> impl Future<Output = Result<Response<Bytes>, Status>> + Send + use<> {
        let Self { pool, base } = self.clone();
        let (deadlines, metadata) = (Deadlines::of(call), call.head().metadata().clone());
        async move {
            let mut headers = (*base).clone();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
            headers.insert(header::ACCEPT, HeaderValue::from_static(content_type));
            let path = match &*pool.dialer().target.path {
                "" => "/",
                path => path,
            };
            let path = path.parse().map_err(|error| Status::internal(format!("{path} is no path of HTTP: {error}")))?;
            let timeout: Option<TimeoutHeader> = Some((timeout::CONNECT_TIMEOUT, timeout::connect as _));
            let headers = Arc::new(headers);
            let head = Head { method: Method::POST, path, headers, metadata, timeout, said: None };
            let exchange = Exchange::begin(pool.clone(), head, Content::Whole(content), deadlines).await?;
            let len_max = usize::try_from(pool.dialer().connect.message_len_max).unwrap_or(usize::MAX);
            let reading = async |exchange: Exchange| {
                let (parts, mut received) = exchange.response().await?;
                let content = received.all(len_max).await?;
                if parts.status == StatusCode::PAYLOAD_TOO_LARGE {
                    let why = "the server does not take requests of this length (413)";
                    return Err(Status::resource_exhausted(why));
                }
                if !parts.status.is_success() && media_type(&parts.headers) != content_type {
                    return Err(of_http(parts.status));
                }
                Ok(Response::from_parts(parts, content))
            };
            exchange.within_time(reading).await
        }
    }
}
