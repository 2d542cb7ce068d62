//! Services with erased types.

use std::{fmt, future::Future, pin::Pin};

use super::handle::Service;
use crate::call::{
    exchange::{Answer, Call},
    method::Method,
    status::Status,
};

/// A boxed future, as returned by dyn-compatible traits.
pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A service with its type erased, for lists of services and for services chosen at run time.
///
/// ```
/// # use frpc::generated::{Answer, Call, Method, Service, Status};
/// # struct EchoServer;
/// # struct TimeServer;
/// # impl Service for EchoServer {
/// #     const NAME: &'static str = "Echo";
/// #     const METHODS: &'static [Method] = &[];
/// #     async fn call(&self, _: usize, call: Call) -> Result<Answer, Status> { call.unknown() }
/// # }
/// # impl Service for TimeServer {
/// #     const NAME: &'static str = "Time";
/// #     const METHODS: &'static [Method] = &[];
/// #     async fn call(&self, _: usize, call: Call) -> Result<Answer, Status> { call.unknown() }
/// # }
/// use frpc::{BoxService, Services};
///
/// let mut services = Vec::new();
/// for name in ["echo", "time"] {
///     services.push(match name {
///         "echo" => BoxService::new(EchoServer),
///         _ => BoxService::new(TimeServer),
///     });
/// }
/// let services = Services::new().add_services(services);
/// # let _ = services;
/// ```
pub struct BoxService(Box<dyn AnyService>);

impl BoxService {
    /// Boxes a service.
    pub fn new(service: impl Service) -> Self {
        Self(Box::new(service))
    }

    /// Creates a service from methods known only at run time. `handle` gets the index of the called method.
    ///
    /// ```
    /// use frpc::{Answer, BoxService, Method};
    ///
    /// // Methods must live as long as the program.
    /// let methods: &'static [Method] = Box::leak(vec![Method::unary("echo.Echo", "Say", 60_000)].into());
    /// let echo = BoxService::of_methods(methods, |_, call| Box::pin(async { Ok(Answer::new(call.into_parts().1)) }));
    /// # let _ = echo;
    /// ```
    pub fn of_methods<H>(methods: &'static [Method], handle: H) -> Self
    where
        H: Fn(usize, Call) -> Pin<Box<dyn Future<Output = Result<Answer, Status>> + Send>> + Send + Sync + 'static,
    {
        Self(Box::new(DynamicService { methods, handle }))
    }

    pub(crate) fn methods(&self) -> &'static [Method] {
        self.0.methods()
    }

    pub(crate) fn served_with(&self, methods: &[&'static Method]) {
        self.0.served_with(methods);
    }

    pub(crate) fn shutting_down(&self) {
        self.0.shutting_down();
    }

    pub(crate) fn call(&self, method: usize, call: Call) -> BoxFuture<'_, Result<Answer, Status>> {
        self.0.call(method, call)
    }
}

impl<T: Service> From<T> for BoxService {
    fn from(service: T) -> Self {
        Self::new(service)
    }
}

impl fmt::Debug for BoxService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BoxService").field(&self.0.name()).finish()
    }
}

/// A service of methods known only at run time.
struct DynamicService<H> {
    methods: &'static [Method],
    handle: H,
}

/// The dyn-compatible part of [`Service`].
trait AnyService: Send + Sync {
    fn name(&self) -> &'static str;
    fn methods(&self) -> &'static [Method];
    fn served_with(&self, methods: &[&'static Method]);
    fn shutting_down(&self);
    fn call(&self, method: usize, call: Call) -> BoxFuture<'_, Result<Answer, Status>>;
}

impl<T: Service> AnyService for T {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn methods(&self) -> &'static [Method] {
        T::METHODS
    }

    fn served_with(&self, methods: &[&'static Method]) {
        Service::served_with(self, methods);
    }

    fn shutting_down(&self) {
        Service::shutting_down(self);
    }

    fn call(&self, method: usize, call: Call) -> BoxFuture<'_, Result<Answer, Status>> {
        Box::pin(Service::call(self, method, call))
    }
}

impl<H> AnyService for DynamicService<H>
where
    H: Fn(usize, Call) -> BoxFuture<'static, Result<Answer, Status>> + Send + Sync,
{
    fn name(&self) -> &'static str {
        self.methods.first().map_or("", |method| method.service)
    }

    fn methods(&self) -> &'static [Method] {
        self.methods
    }

    fn served_with(&self, _: &[&'static Method]) {}

    fn shutting_down(&self) {}

    fn call(&self, method: usize, call: Call) -> BoxFuture<'_, Result<Answer, Status>> {
        (self.handle)(method, call)
    }
}
