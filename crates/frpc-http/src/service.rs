//! Services as a tower service, for use in another HTTP server.

use std::{
    convert::Infallible,
    error::Error,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use frpc::{Endpoint, IntoEndpoint, ServeError};
use http::{Request, Response};
use tower_service::Service;

use crate::{
    serve::{self, ResponseBody, ServeContext},
    wire::Http,
};

/// [`frpc`] services as a tower [`Service`](tower_service::Service), made by [`Http::into_service`].
///
/// An existing HTTP server, such as one of axum, can thus serve them on its own port. Cloning is cheap.
///
/// For gRPC, the server must support HTTP/2, also without TLS. Its limits on heads, connections and streams replace
/// those of [`Http`]. Handlers learn the address of the caller only if the server inserts a [`Peer`](frpc::Peer) into
/// the extensions of each request.
#[derive(Clone, Debug)]
pub struct HttpService {
    site: Arc<ServeContext>,
}

impl Http {
    /// Converts services into a tower service for an existing HTTP server.
    ///
    /// ```
    /// # fn app(services: frpc::Services) -> Result<axum::Router, frpc::ServeError> {
    /// use axum::{Router, routing};
    /// use frpc_http::Http;
    ///
    /// // `services` is `Services::new().add_service(GreeterServer::new(Host))`.
    /// let app: Router = Router::new()
    ///     .route("/health", routing::get(async || "fine"))
    ///     .fallback_service(Http::new().into_service(services)?);
    /// # Ok(app)
    /// # }
    /// # app(frpc::Services::new()).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// If a service was added twice, or a REST annotation is invalid.
    pub fn into_service(self, services: impl IntoEndpoint) -> Result<HttpService, ServeError> {
        let endpoint = Endpoint::new(services)?;
        let account = endpoint.server_account();
        let Self { settings, mut additions } = self;
        additions.rest.prepare(&endpoint).map_err(|error| ServeError::Wire(error.into()))?;
        let site = ServeContext {
            endpoint,
            settings,
            additions,
            account,
            peer: None,
            calls: None,
            drain: None,
            answer_head_len_max: None,
        };
        Ok(HttpService { site: Arc::new(site) })
    }
}

impl<B> Service<Request<B>> for HttpService
where
    B: http_body::Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let site = self.site.clone();
        let (parts, body) = request.into_parts();
        Box::pin(async move { Ok(serve::respond(&site, parts, Box::pin(body)).await) })
    }
}
