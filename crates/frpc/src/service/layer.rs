//! Layers: code around every call.

use std::{fmt, future::Future, sync::Arc};

use super::{boxed::BoxFuture, handle::Service};
use crate::call::{
    exchange::{Answer, Call},
    method::Method,
    status::Status,
};

/// Code around calls, on a server or a channel: authentication, limits, logs.
///
/// A layer sees the [`Call`] with its method, head and body. It may change the head, answer by itself, or hand the call on
/// and look at the answer. The layer that was added first sees a call first and its answer last.
///
/// - For all services: [`ServerBuilder::layer`](crate::ServerBuilder::layer), [`Services::layer`](crate::Services::layer).
/// - For one service: [`Layered`].
/// - For the calls of a channel or of one client: [`Channel::layer`](crate::Channel::layer).
///
/// Without layers, calls cost nothing more. With some, each call costs an allocation for each layer.
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
/// [`interceptor`] makes a layer of a function that only looks at calls, and [`layers`](crate::layers) has ready-made ones.
pub trait Layer: Send + Sync + 'static {
    /// Handles a call, usually by [running](Next::run) what is next.
    fn call(&self, call: Call, next: Next<'_>) -> impl Future<Output = Result<Answer, Status>> + Send;
}

/// The rest of the way of a call behind a layer: more layers, and then the service or the wire.
pub struct Next<'a> {
    layers: &'a [Arc<dyn AnyLayer>],
    end: End<'a>,
}

/// The way of a call behind all layers.
pub(crate) type End<'a> = &'a (dyn Fn(Call) -> BoxFuture<'a, Result<Answer, Status>> + Send + Sync);

impl Next<'_> {
    /// Hands the call on, and returns its answer.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the call is given up.
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

/// [`Layer`] without its type.
trait AnyLayer: Send + Sync {
    fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Answer, Status>>;
}

impl<L: Layer> AnyLayer for L {
    fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Answer, Status>> {
        Box::pin(Layer::call(self, call, next))
    }
}

/// Layers in the order in which they see a call. Most services and channels have none.
#[derive(Clone, Default)]
pub(crate) struct Layers(Option<Arc<Vec<Arc<dyn AnyLayer>>>>);

impl Layers {
    /// Returns the same with a layer behind the others.
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
    pub(crate) async fn call<'a>(&'a self, call: Call, end: End<'a>) -> Result<Answer, Status> {
        let layers = self.0.as_ref().map_or(&[][..], |layers| layers);
        Next { layers, end }.run(call).await
    }
}

impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.0.as_ref().map_or(0, |layers| layers.len());
        f.debug_tuple("Layers").field(&len).finish()
    }
}

/// Makes a layer of a function that looks at each call before it goes on, and may change its head. An error is the answer
/// then.
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

/// A service with layers of its own, behind those for all services.
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
    layers: Layers,
}

impl<T: Service> Layered<T> {
    /// Puts a layer around a service.
    pub fn new(service: T, layer: impl Layer) -> Self {
        Self { service, layers: Layers::default().with(layer) }
    }

    /// Puts another layer between those that are there and the service.
    pub fn layer(self, layer: impl Layer) -> Self {
        Self { layers: self.layers.with(layer), ..self }
    }
}

impl<T: Service> Service for Layered<T> {
    const NAME: &'static str = T::NAME;
    const METHODS: &'static [Method] = T::METHODS;

    fn beside(&self, methods: &[&'static Method]) {
        self.service.beside(methods);
    }

    fn shutting_down(&self) {
        self.service.shutting_down();
    }

    async fn call(&self, method: usize, call: Call) -> Result<Answer, Status> {
        self.layers.call(call, &|call| Box::pin(self.service.call(method, call))).await
    }
}
