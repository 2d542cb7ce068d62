//! Calls to one server: what those of all protocols have in common.

use std::sync::Arc;

use frpc::{Metadata, Method, Status, codec::Format};
use http::{HeaderMap, header, uri::PathAndQuery};

use super::{outgoing::Framing, pool::Pool, target::Protocol};
use crate::headers::metadata;

/// Makes calls to one server.
pub(super) struct HttpCaller {
    pub(super) pool: Arc<Pool>,
    pub(super) framing: Framing,
    /// The headers that all calls have.
    pub(super) base: HeaderMap,
}

impl HttpCaller {
    pub(super) fn protocol(&self) -> Protocol {
        self.pool.dialer().target.protocol
    }

    pub(super) fn format(&self) -> Format {
        self.pool.dialer().settings.format
    }

    pub(super) fn len_max(&self) -> usize {
        usize::try_from(self.pool.dialer().connect.message_len_max).unwrap_or(usize::MAX)
    }

    /// Returns the path of a method.
    pub(super) fn path(&self, prefix: &str, method: &Method) -> Result<PathAndQuery, Status> {
        let path = format!("{}{prefix}/{method}", self.pool.dialer().target.path);
        path.parse().map_err(|error| Status::internal(format!("{path} is no path of HTTP: {error}")))
    }

    /// Returns the headers of a call.
    pub(super) fn headers(&self, metadata: &Metadata) -> HeaderMap {
        let mut headers = self.base.clone();
        if !metadata.is_empty() {
            if metadata.contains_key(header::USER_AGENT.as_str()) {
                headers.remove(header::USER_AGENT);
            }
            metadata::extend(&mut headers, metadata, "");
        }
        headers
    }
}

/// Returns the type of the content, in lower case and without parameters.
pub(super) fn media_type(headers: &HeaderMap) -> String {
    let found = headers.get(header::CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let found = found.unwrap_or_default();
    found.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}
