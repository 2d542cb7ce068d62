//! Layers: code that runs around every call.

use std::{fmt, future::Future, sync::Arc};

use super::{boxed::BoxFuture, handle::Service};
use crate::call::{
    exchange::{Answer, Call},
    method::Method,
    status::Status,
};

/// Code around calls on a server or a channel, for authentication, limits or logs.
///
/// A layer sees the [`Call`] with its method, head and body. It may change the head, answer without calling the
/// service, or pass the call on and inspect the answer. The first layer added is the outermost: it sees the call first
/// and the answer last.
///
/// - For all services: [`ServerBuilder::layer`](crate::ServerBuilder::layer),
///   [`Services::layer`](crate::Services::layer).
/// - For one service: [`Layered`].
/// - For the calls of a channel or of one client: [`Channel::layer`](crate::Channel::layer).
///
/// Calls without layers have no extra cost. Each layer costs one allocation per call.
///
/// ```
/// use frpc::{Answer, Call, Layer, Next, Status};
///
/// struct Stopwatch;
///
/// impl Layer for Stopwatch {
///     async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
///         let (method, start) = (call.method(), std::time::Instant::now());
///         let answer = next.run(call).await;
///         println!("{method} took {:?}", start.elapsed());
///         answer
///     }
/// }
/// ```
///
/// [`interceptor`] turns a function into a layer that checks or changes calls. [`layers`](crate::layers) has ready-made
/// layers.
pub trait Layer: Send + Sync + 'static {
    /// Handles a call, usually by passing it to [`Next::run`].
    fn call(&self, call: Call, next: Next<'_>) -> impl Future<Output = Result<Answer, Status>> + Send;
}

/// The remaining layers of a call, followed by the service or the wire.
pub struct Next<'a> {
    layers: &'a [Arc<dyn AnyLayer>],
    end: FinalStep<'a>,
}

/// The final step of a call, after all layers.
pub(crate) type FinalStep<'a> = &'a (dyn Fn(Call) -> BoxFuture<'a, Result<Answer, Status>> + Send + Sync);

impl Next<'_> {
    /// Passes the call on and returns its answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the call.
    pub async fn run(self, call: Call) -> Result<Answer, Status> {
        match self.layers.split_first() {
            Some((layer, layers)) => layer.call(call, Next { layers, end: self.end }).await,
            None => (self.end)(call).await,
        }
    }
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("layers", &self.layers.len()).finish_non_exhaustive()
    }
}

/// A [`Layer`] with its type erased.
trait AnyLayer: Send + Sync {
    fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Answer, Status>>;
}

impl<L: Layer> AnyLayer for L {
    fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Answer, Status>> {
        Box::pin(Layer::call(self, call, next))
    }
}

/// Layers from the outermost to the innermost. Most services and channels have none.
#[derive(Clone, Default)]
pub(crate) struct LayerStack(Option<Arc<Vec<Arc<dyn AnyLayer>>>>);

impl LayerStack {
    /// Adds an innermost layer.
    pub(crate) fn with(mut self, layer: impl Layer) -> Self {
        let layers = self.0.get_or_insert_default();
        Arc::make_mut(layers).push(Arc::new(layer));
        self
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Sends a call through the layers.
    pub(crate) async fn call<'a>(&'a self, call: Call, end: FinalStep<'a>) -> Result<Answer, Status> {
        let layers = self.0.as_ref().map_or(&[][..], |layers| layers);
        Next { layers, end }.run(call).await
    }
}

impl fmt::Debug for LayerStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.0.as_ref().map_or(0, |layers| layers.len());
        f.debug_tuple("Layers").field(&len).finish()
    }
}

/// Creates a layer from a function that checks each call before it is passed on, and may change its head. An error of
/// the function becomes the answer.
///
/// ```
/// use frpc::{Call, Status, interceptor};
///
/// let authentication = interceptor(|call: &mut Call| match call.head().metadata().get("authorization") {
///     Some("Bearer s3cret") => Ok(()),
///     _ => Err(Status::unauthenticated("no valid token")),
/// });
/// # let _ = authentication;
/// ```
pub fn interceptor<F>(intercept: F) -> Interceptor<F>
where
    F: Fn(&mut Call) -> Result<(), Status> + Send + Sync + 'static,
{
    Interceptor(intercept)
}

/// A [`Layer`] made by [`interceptor`].
#[derive(Clone, Copy)]
pub struct Interceptor<F>(F);

impl<F> Layer for Interceptor<F>
where
    F: Fn(&mut Call) -> Result<(), Status> + Send + Sync + 'static,
{
    async fn call(&self, mut call: Call, next: Next<'_>) -> Result<Answer, Status> {
        (self.0)(&mut call)?;
        next.run(call).await
    }
}

impl<F> fmt::Debug for Interceptor<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interceptor").finish_non_exhaustive()
    }
}

/// A service with its own layers, inside the layers for all services.
///
/// ```
/// # use frpc::generated::{Answer, Call, Method, Service, Status};
/// # struct EchoServer;
/// # impl Service for EchoServer {
/// #     const NAME: &'static str = "Echo";
/// #     const METHODS: &'static [Method] = &[];
/// #     async fn call(&self, _: usize, call: Call) -> Result<Answer, Status> { call.unknown() }
/// # }
/// use std::time::Duration;
///
/// use frpc::{Layered, Server, layers::Timeout};
///
/// let slow = Layered::new(EchoServer, Timeout::new(Duration::from_secs(60)));
/// let server = Server::builder().add_service(slow);
/// # let _ = server;
/// ```
#[derive(Clone, Debug)]
pub struct Layered<T> {
    service: T,
    layers: LayerStack,
}

impl<T: Service> Layered<T> {
    /// Wraps a service in a layer.
    pub fn new(service: T, layer: impl Layer) -> Self {
        Self { service, layers: LayerStack::default().with(layer) }
    }

    /// Adds a layer inside the existing ones, closest to the service.
    pub fn layer(self, layer: impl Layer) -> Self {
        Self { layers: self.layers.with(layer), ..self }
    }
}

impl<T: Service> Service for Layered<T> {
    const NAME: &'static str = T::NAME;
    const METHODS: &'static [Method] = T::METHODS;

    fn served_with(&self, methods: &[&'static Method]) {
        self.service.served_with(methods);
    }

    fn shutting_down(&self) {
        self.service.shutting_down();
    }

    async fn call(&self, method: usize, call: Call) -> Result<Answer, Status> {
        self.layers.call(call, &|call| Box::pin(self.service.call(method, call))).await
    }
}
