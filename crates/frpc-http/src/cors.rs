//! Cross-Origin Resource Sharing: access for scripts of other origins.

use std::time::Duration;

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
        ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
        ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
    },
};

/// Permission for scripts on web pages of other origins to make calls.
///
/// Without it, browsers block such calls. Pages served by this server or by its proxy need no permission.
///
/// ```
/// use frpc_http::Cors;
///
/// let cors = Cors::origins(["https://shop.example.com"]).allow_headers(["authorization"]).expose_headers(["x-request-id"]);
/// # let _ = cors;
/// ```
///
/// Scripts may send the headers of Connect and gRPC-Web and read those of the response. Metadata must be listed by
/// name.
#[derive(Clone, Debug)]
pub struct Cors {
    /// `None` allows any origin.
    origins: Option<Vec<HeaderValue>>,
    has_credentials: bool,
    allowed: HeaderValue,
    exposed: HeaderValue,
    max_age: HeaderValue,
}

impl Cors {
    /// Allows scripts of these origins, such as `https://shop.example.com`.
    ///
    /// An origin consists of the scheme, the host, and the port unless it is the default of the scheme. It has no slash
    /// at the end.
    ///
    /// # Panics
    ///
    /// If an origin is not printable ASCII.
    pub fn origins(origins: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let origin =
            |origin| HeaderValue::from_str(AsRef::<str>::as_ref(&origin)).expect("an origin is printable ASCII");
        Self::new(Some(origins.into_iter().map(origin).collect()))
    }

    /// Allows scripts of all web pages. Meant for public services and for development.
    pub fn any_origin() -> Self {
        Self::new(None)
    }

    fn new(origins: Option<Vec<HeaderValue>>) -> Self {
        let cors = Self {
            origins,
            has_credentials: false,
            allowed: HeaderValue::from_static(ALLOWED),
            exposed: HeaderValue::from_static(EXPOSED),
            max_age: HeaderValue::from_static(""),
        };
        cors.max_age(MAX_AGE)
    }

    /// Allows scripts to send these headers, such as `authorization` and names of metadata.
    ///
    /// # Panics
    ///
    /// If a name is not a valid header name.
    pub fn allow_headers(self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        Self { allowed: with_names(&self.allowed, names, ""), ..self }
    }

    /// Allows scripts to read metadata of these names, in the headers and in the trailers of a response.
    ///
    /// # Panics
    ///
    /// If a name is not a valid header name.
    pub fn expose_headers(self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let names: Vec<_> = names.into_iter().collect();
        let exposed = with_names(&self.exposed, &names, "");
        // Unary Connect calls send trailers as headers with this prefix.
        Self { exposed: with_names(&exposed, &names, "trailer-"), ..self }
    }

    /// Allows browsers to send cookies and client certificates with a call.
    ///
    /// It has no effect for [any origin](Self::any_origin): any page could otherwise act on behalf of its visitor.
    pub fn allow_credentials(self) -> Self {
        Self { has_credentials: self.origins.is_some(), ..self }
    }

    /// Sets how long browsers may cache a permission. Default 2 h, the maximum that Chrome accepts.
    pub fn max_age(self, max_age: Duration) -> Self {
        Self { max_age: HeaderValue::from(max_age.as_secs()), ..self }
    }

    /// Returns the response to a CORS preflight request. `None` if the request is not a preflight.
    pub(crate) fn preflight(
        &self,
        method: &Method,
        headers: &HeaderMap,
        has_rest: bool,
    ) -> Option<(StatusCode, HeaderMap)> {
        let methods = if has_rest { "GET, POST, PUT, PATCH, DELETE" } else { "GET, POST" };
        let asks = method == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        let origin = headers.get(ORIGIN).filter(|_| asks)?;
        let mut answer = HeaderMap::new();
        // An origin without permission gets no CORS headers, so its browser makes no call.
        if self.put_origin(&mut answer, Some(origin)) {
            answer.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(methods));
            answer.insert(ACCESS_CONTROL_ALLOW_HEADERS, self.allowed.clone());
            answer.insert(ACCESS_CONTROL_MAX_AGE, self.max_age.clone());
        }
        for name in [ACCESS_CONTROL_REQUEST_METHOD, ACCESS_CONTROL_REQUEST_HEADERS] {
            answer.append(VARY, name.into());
        }
        Some((StatusCode::NO_CONTENT, answer))
    }

    /// Allows the calling script to read the response, if its origin is allowed.
    pub(crate) fn expose(&self, answer: &mut HeaderMap, origin: Option<&HeaderValue>) {
        if self.put_origin(answer, origin) {
            answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, self.exposed.clone());
        }
    }

    /// Returns `true` if scripts of an origin may make calls.
    pub(crate) fn allows(&self, origin: &HeaderValue) -> bool {
        self.origins.as_ref().is_none_or(|origins| origins.contains(origin))
    }

    /// Adds the headers for an allowed origin. Returns `true` if the origin is allowed.
    fn put_origin(&self, answer: &mut HeaderMap, origin: Option<&HeaderValue>) -> bool {
        let Some(origins) = &self.origins else {
            answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
            return true;
        };
        // Prevents a cache from giving one origin the response of another.
        answer.append(VARY, ORIGIN.into());
        let Some(origin) = origin.filter(|origin| origins.contains(origin)) else { return false };
        answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        if self.has_credentials {
            answer.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
        true
    }
}

/// Returns the list with more names, each with a prefix.
fn with_names(list: &HeaderValue, names: impl IntoIterator<Item = impl AsRef<str>>, prefix: &str) -> HeaderValue {
    let mut list = list.to_str().expect("names are ASCII").to_owned();
    for name in names {
        let name: HeaderName = name.as_ref().parse().expect("the name of a header");
        list.push_str(", ");
        list.push_str(prefix);
        list.push_str(name.as_str());
    }
    HeaderValue::try_from(list).expect("names are ASCII")
}

/// The request headers of Connect and gRPC-Web.
const ALLOWED: &str = "content-type, connect-protocol-version, connect-timeout-ms, connect-content-encoding, \
                       connect-accept-encoding, content-encoding, grpc-timeout, grpc-encoding, grpc-accept-encoding, x-grpc-web, \
                       x-user-agent";

/// The response headers of Connect and gRPC-Web.
const EXPOSED: &str =
    "grpc-status, grpc-message, grpc-status-details-bin, grpc-encoding, content-encoding, connect-content-encoding";

const MAX_AGE: Duration = Duration::from_secs(7200);
