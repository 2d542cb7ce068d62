//! Where a client's calls go.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use crate::{
    IntoRequest, IntoStreamingRequest, Method, Response, Status, Streaming,
    call::{self, Answer, Call, Flow, Service},
    codec::Message,
};

/// A way to a server, shared by any number of clients. Cheap to clone.
///
/// Today it leads to a service in the same process; connections come with the next part of the work.
#[derive(Clone)]
pub struct Channel {
    service: Arc<dyn Reach>,
}

impl Channel {
    /// Calls a service in this process, through the same encoding as over a wire.
    pub fn in_process(service: impl Service) -> Self {
        Self { service: Arc::new(service) }
    }

    /// Makes a unary call.
    pub async fn unary<Q: Message, P: Message>(
        &self,
        method: &Method,
        request: impl IntoRequest<Q>,
    ) -> Result<Response<P>, Status> {
        let request = request.into_request();
        self.one(method, call::one(request.get_ref())).await
    }

    /// Makes a server-streaming call.
    pub async fn server_streaming<Q: Message, P: Message>(
        &self,
        method: &Method,
        request: impl IntoRequest<Q>,
    ) -> Result<Response<Streaming<P>>, Status> {
        let request = request.into_request();
        self.many(method, call::one(request.get_ref())).await
    }

    /// Makes a client-streaming call.
    pub async fn client_streaming<Q: Message, P: Message>(
        &self,
        method: &Method,
        requests: impl IntoStreamingRequest<Message = Q>,
    ) -> Result<Response<P>, Status> {
        self.one(method, call::many(requests.into_streaming_request().into_inner())).await
    }

    /// Makes a bidirectional call.
    pub async fn bidirectional<Q: Message, P: Message>(
        &self,
        method: &Method,
        requests: impl IntoStreamingRequest<Message = Q>,
    ) -> Result<Response<Streaming<P>>, Status> {
        self.many(method, call::many(requests.into_streaming_request().into_inner())).await
    }

    async fn one<P: Message>(&self, method: &Method, input: Flow) -> Result<Response<P>, Status> {
        match self.call(method, input).await? {
            Flow::One(content) => call::open(&content).map(Response::new),
            Flow::Many(_) => Err(Status::internal("the service answered with a stream, not with one message")),
        }
    }

    async fn many<P: Message>(&self, method: &Method, input: Flow) -> Result<Response<Streaming<P>>, Status> {
        match self.call(method, input).await? {
            Flow::Many(contents) => Ok(Response::new(call::opened(contents))),
            Flow::One(_) => Err(Status::internal("the service answered with one message, not with a stream")),
        }
    }

    async fn call(&self, method: &Method, input: Flow) -> Result<Flow, Status> {
        if !self.service.has(method) {
            return Err(Status::unimplemented(format!("no method {}/{} here", method.service, method.name)));
        }
        self.service.reach(Call::new(method.operation, input)).await.0
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").finish_non_exhaustive()
    }
}

/// A service without its type.
trait Reach: Send + Sync {
    fn has(&self, method: &Method) -> bool;

    fn reach(&self, call: Call) -> Pin<Box<dyn Future<Output = Answer> + Send + '_>>;
}

impl<T: Service> Reach for T {
    fn has(&self, method: &Method) -> bool {
        T::METHODS.contains(method)
    }

    fn reach(&self, call: Call) -> Pin<Box<dyn Future<Output = Answer> + Send + '_>> {
        Box::pin(self.call(call))
    }
}
