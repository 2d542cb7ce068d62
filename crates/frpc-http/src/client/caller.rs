//! Calls to one server: the parts shared by all protocols.

use std::{
    borrow::Cow,
    ptr,
    sync::{Arc, OnceLock, PoisonError, RwLock},
    time::Duration,
};

use bytes::Bytes;
use frpc::{Metadata, Method, Status, codec::Format};
use http::{HeaderMap, header, uri::PathAndQuery};

#[cfg(feature = "http2")]
use super::http2::MethodHead;
use super::{outgoing::EnvelopeEncoder, pool::ConnectionPool, target::RpcProtocol};
use crate::headers::{metadata, timeout};

/// Makes calls to one server.
pub(super) struct HttpCaller {
    pub(super) pool: Arc<ConnectionPool>,
    pub(super) framing: EnvelopeEncoder,
    /// The headers of all calls.
    pub(super) base: Arc<HeaderMap>,
    /// `base` with the timeout of the first gRPC call. Most other calls have the same timeout and reuse it.
    pub(super) usual: OnceLock<(Duration, Arc<HeaderMap>)>,
    paths: RwLock<Vec<(&'static Method, PathAndQuery)>>,
    /// The heads of unary gRPC calls.
    #[cfg(feature = "http2")]
    heads: RwLock<Vec<(&'static Method, Arc<MethodHead>)>>,
}

impl HttpCaller {
    pub(super) fn new(pool: Arc<ConnectionPool>, framing: EnvelopeEncoder, base: HeaderMap) -> Self {
        Self {
            pool,
            framing,
            base: Arc::new(base),
            usual: OnceLock::new(),
            paths: RwLock::default(),
            #[cfg(feature = "http2")]
            heads: RwLock::default(),
        }
    }

    pub(super) fn protocol(&self) -> RpcProtocol {
        self.pool.dialer().target.protocol
    }

    pub(super) fn format(&self) -> Format {
        self.pool.dialer().settings.format
    }

    /// Returns the message format of a call, for protocols limited to Protobuf and JSON: Connect and Twirp.
    pub(super) fn format_of(&self, method: &Method) -> Result<Format, Status> {
        match method.codec() {
            None => Ok(self.format()),
            Some("json") => Ok(Format::Json),
            Some("proto") => Ok(Format::Proto),
            Some(codec) => Err(Status::unimplemented(format!(
                "{method} was not called: its messages use the codec `{codec}`, and this protocol supports only \
                 Protobuf and JSON; connect to a `grpc://` address"
            ))),
        }
    }

    pub(super) fn len_max(&self) -> usize {
        self.pool.dialer().message_len_max()
    }

    /// Returns the request path of a method. The prefix is the same for all calls.
    pub(super) fn path(&self, prefix: &str, method: &'static Method) -> Result<PathAndQuery, Status> {
        let paths = self.paths.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, path)) = paths.iter().find(|(known, _)| ptr::eq(*known, method)) {
            return Ok(path.clone());
        }
        drop(paths);
        let path = self.parse_path(prefix, method)?;
        let mut paths = self.paths.write().unwrap_or_else(PoisonError::into_inner);
        if paths.len() < PATHS_MAX {
            paths.push((method, path.clone()));
        }
        Ok(path)
    }

    fn parse_path(&self, prefix: &str, method: &Method) -> Result<PathAndQuery, Status> {
        let parts = [&*self.pool.dialer().target.path, prefix, "/", method.service, "/", method.name];
        let path = Bytes::from(parts.concat());
        PathAndQuery::from_maybe_shared(path.clone())
            .map_err(|error| Status::internal(format!("{path:?} is not a valid HTTP path: {error}")))
    }

    /// Returns the headers shared by gRPC calls with this timeout, and the timeout contained in them.
    pub(super) fn headers_with_timeout(&self, time: Option<Duration>) -> (Arc<HeaderMap>, Option<Duration>) {
        let (headers, said) = self.shared_headers(time);
        (headers.clone(), said)
    }

    fn shared_headers(&self, time: Option<Duration>) -> (&Arc<HeaderMap>, Option<Duration>) {
        let Some(time) = time else { return (&self.base, None) };
        let (said, headers) = self.usual.get_or_init(|| {
            let mut headers = (*self.base).clone();
            headers.insert(timeout::GRPC_TIMEOUT, timeout::grpc(time));
            (time, Arc::new(headers))
        });
        if *said == time { (headers, Some(time)) } else { (&self.base, None) }
    }

    /// Returns the head of gRPC calls of a method with this timeout, and the timeout contained in it.
    #[cfg(feature = "http2")]
    pub(super) fn method_head(
        &self,
        method: &'static Method,
        time: Option<Duration>,
    ) -> Result<(Arc<MethodHead>, Option<Duration>), Status> {
        let (headers, said) = self.shared_headers(time);
        let heads = self.heads.read().unwrap_or_else(PoisonError::into_inner);
        let mut same =
            heads.iter().filter(|(known, head)| ptr::eq(*known, method) && Arc::ptr_eq(&head.headers, headers));
        if let Some((_, head)) = same.next() {
            return Ok((head.clone(), said));
        }
        drop(heads);
        let (path, headers) = (self.path("", method)?, headers.clone());
        let head = Arc::new(MethodHead { method: http::Method::POST, path, headers });
        let mut heads = self.heads.write().unwrap_or_else(PoisonError::into_inner);
        if heads.len() < PATHS_MAX {
            heads.push((method, head.clone()));
        }
        Ok((head, said))
    }
}

/// The maximum number of methods whose paths are kept.
const PATHS_MAX: usize = 64;

/// Adds the metadata of a call to its headers. A `user-agent` in the metadata replaces the default one.
pub(super) fn add_metadata(headers: &mut HeaderMap, metadata: &Metadata) {
    if !metadata.is_empty() {
        if metadata.contains_key(header::USER_AGENT.as_str()) {
            headers.remove(header::USER_AGENT);
        }
        metadata::extend(headers, metadata, "");
    }
}

/// Returns the content type of a response, in lower case and without parameters.
pub(super) fn media_type(headers: &HeaderMap) -> Cow<'_, str> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Cow::default() };
    match str::from_utf8(value.as_bytes()) {
        // Most servers send it in this form already.
        Ok(found) if !found.bytes().any(|byte| byte.is_ascii_uppercase() || matches!(byte, b';' | b' ' | b'\t')) => {
            Cow::Borrowed(found)
        }
        _ => {
            let found = String::from_utf8_lossy(value.as_bytes());
            Cow::Owned(found.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
        }
    }
}
