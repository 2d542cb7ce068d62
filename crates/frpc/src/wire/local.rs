//! Calls to services in the same process.

use std::{
    future::{self, Future},
    pin::Pin,
    sync::Arc,
    task::Poll,
};

use bytes::Bytes;
use frisbee::Router;
use futures_core::Stream;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use tokio::{sync::oneshot, task::JoinSet};

use crate::{
    BoxService, Collision, Method, Services, Status, Streaming,
    service::service::{Flow, Service},
    service::services::ServiceSet,
    wire::frisbee::client::Deadline,
};

/// What can be called [in this process](crate::Channel::in_process): a service, a [`BoxService`], or [`Services`].
pub trait InProcess: sealed::IntoLocal {}

impl<T: sealed::IntoLocal> InProcess for T {}

pub(crate) mod sealed {
    use super::{Arc, Local};

    /// Services whose types are not told.
    pub struct AnyServices(pub(crate) Arc<dyn Local>);

    pub trait IntoLocal {
        fn into_local(self) -> AnyServices;
    }
}

impl<T: Service> sealed::IntoLocal for T {
    fn into_local(self) -> sealed::AnyServices {
        Services::new().add_service(self).into_local()
    }
}

impl sealed::IntoLocal for BoxService {
    fn into_local(self) -> sealed::AnyServices {
        Services::new().add_services([self]).into_local()
    }
}

impl<S: ServiceSet, R: Router> sealed::IntoLocal for Services<S, R> {
    fn into_local(self) -> sealed::AnyServices {
        sealed::AnyServices(match self.check() {
            Ok(()) => Arc::new(self),
            Err(collision) => Arc::new(collision),
        })
    }
}

type Answering<'a> = Pin<Box<dyn Future<Output = Result<Flow, Status>> + Send + 'a>>;

/// Services without their types.
pub(crate) trait Local: Send + Sync {
    fn call<'a>(&'a self, method: &'a Method, input: Flow) -> Answering<'a>;
}

impl<S: ServiceSet, R: Router> Local for Services<S, R> {
    fn call<'a>(&'a self, method: &'a Method, input: Flow) -> Answering<'a> {
        Box::pin(self.call_in_process(method, input))
    }
}

/// Services that no server would serve.
impl Local for Collision {
    fn call<'a>(&'a self, _: &'a Method, _: Flow) -> Answering<'a> {
        Box::pin(future::ready(Err(Status::failed_precondition(self.to_string()))))
    }
}

impl dyn Local {
    pub(crate) async fn one(&self, method: &Method, input: Flow, deadline: Option<Deadline>) -> Result<Bytes, Status> {
        let (input, mut failure) = watched(input);
        let answer = tokio::select! {
            biased;
            answer = self.bounded(method, input, deadline) => match failure.try_recv() {
                Ok(status) => Err(status),
                Err(_) => answer,
            },
            Ok(status) = &mut failure => Err(status),
        };
        match answer? {
            Flow::One(content) | Flow::Last(content, _) => Ok(content.into_bytes()),
            Flow::Many(_) => Err(Status::internal("the handler answered with a stream")),
        }
    }

    /// As over a wire, the handler is under way when this returns, and its refusal comes with the first message.
    pub(crate) fn many(self: &Arc<Self>, method: &Method, input: Flow, deadline: Option<Deadline>) -> Streaming<Bytes> {
        let (services, method) = (self.clone(), *method);
        let (input, failure) = watched(input);
        let mut handler = JoinSet::new();
        handler.spawn(async move { services.bounded(&method, input, deadline).await });
        let answered = async move {
            let joined = handler.join_next().await.expect("there is one handler");
            match joined.unwrap_or_else(|error| Err(Status::internal(error.to_string())))? {
                Flow::Many(contents) => Ok(contents),
                Flow::One(_) | Flow::Last(..) => Err(Status::internal("the handler answered with one message")),
            }
        };
        let contents = until_failure(stream::once(answered).try_flatten(), failure);
        match deadline {
            None => Streaming::new(contents),
            Some(deadline) => Streaming::new(stream::try_unfold(Box::pin(contents), move |mut contents| async move {
                let next = deadline.bound(contents.try_next()).await?;
                Ok(next.map(|content| (content, contents)))
            })),
        }
    }

    async fn bounded(&self, method: &Method, input: Flow, deadline: Option<Deadline>) -> Result<Flow, Status> {
        match deadline {
            Some(deadline) => deadline.bound(self.call(method, input)).await,
            None => self.call(method, input).await,
        }
    }
}

/// The requests of a call, and their failure if there will be one. As over a wire, it ends the call whatever the handler
/// makes of it.
fn watched(input: Flow) -> (Flow, oneshot::Receiver<Status>) {
    let (sender, failure) = oneshot::channel();
    let input = match input {
        Flow::Many(contents) => {
            let mut sender = Some(sender);
            Flow::Many(Streaming::new(contents.inspect_err(move |status| {
                if let Some(sender) = sender.take() {
                    // A call that is over does not fail any more.
                    let _ = sender.send(status.clone());
                }
            })))
        }
        input => input,
    };
    (input, failure)
}

fn until_failure(
    contents: impl Stream<Item = Result<Bytes, Status>> + Send + 'static,
    failure: oneshot::Receiver<Status>,
) -> impl Stream<Item = Result<Bytes, Status>> + Send + 'static {
    let mut contents = Some(Box::pin(contents));
    let mut failure = failure.fuse();
    stream::poll_fn(move |cx| {
        let Some(answers) = &mut contents else { return Poll::Ready(None) };
        let next = answers.poll_next_unpin(cx);
        match failure.poll_unpin(cx) {
            Poll::Ready(Ok(status)) => {
                contents = None;
                Poll::Ready(Some(Err(status)))
            }
            _ => next,
        }
    })
}
