//! Tower middleware as a layer.

use std::{
    error::Error,
    fmt,
    future::{pending, poll_fn},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use tokio::sync::oneshot;

use super::{
    boxed::BoxFuture,
    layer::{Layer, Next},
};
use crate::call::{
    exchange::{Answer, Call},
    status::Status,
};

/// Converts a tower layer, such as a timeout, a limit or a stack of layers, to a [`Layer`].
///
/// The middleware is a service from [`TowerCall`] to [`Answer`]. It is created once and cloned for each call, so clones
/// must share any common state, as the limits of tower do. Its error becomes a [`Status`]: unchanged if it is one, and
/// [`Code::Unknown`](crate::Code::Unknown) otherwise. The middleware can pass a call on only once.
///
/// ```
/// use std::time::Duration;
///
/// use frpc::{Server, layers};
/// use tower::ServiceBuilder;
///
/// let stack = ServiceBuilder::new().concurrency_limit(100).timeout(Duration::from_secs(5));
/// let server = Server::builder().layer(layers::tower(stack.into_inner()));
/// # let _ = server;
/// ```
pub fn tower<L>(layer: L) -> TowerLayer<L::Service>
where
    L: tower_layer::Layer<TowerNext>,
    L::Service: tower_service::Service<TowerCall>,
{
    TowerLayer { service: Mutex::new(layer.layer(TowerNext {})) }
}

/// A [`Layer`] created by [`tower`].
pub struct TowerLayer<S> {
    /// Cloned for each call.
    service: Mutex<S>,
}

/// A call passed through tower middleware.
#[derive(Debug)]
pub struct TowerCall {
    call: Call,
    to_next: oneshot::Sender<Call>,
    answer: oneshot::Receiver<Result<Answer, Status>>,
}

impl TowerCall {
    /// Returns a reference to the call.
    pub fn get_ref(&self) -> &Call {
        &self.call
    }

    /// Returns a mutable reference to the call.
    pub fn get_mut(&mut self) -> &mut Call {
        &mut self.call
    }
}

/// The service inside the middleware: the remaining layers, then the service or the wire.
#[derive(Clone, Debug)]
pub struct TowerNext {}

impl tower_service::Service<TowerCall> for TowerNext {
    type Response = Answer;
    type Error = Status;
    type Future = BoxFuture<'static, Result<Answer, Status>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, TowerCall { call, to_next, answer }: TowerCall) -> Self::Future {
        Box::pin(async move {
            let gone = || Status::cancelled("the call was cancelled");
            to_next.send(call).map_err(|_| gone())?;
            answer.await.unwrap_or_else(|_| Err(gone()))
        })
    }
}

impl<S> Layer for TowerLayer<S>
where
    S: tower_service::Service<TowerCall, Response = Answer> + Clone + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>> + Send,
    S::Future: Send,
{
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let mut service = self.service.lock().unwrap_or_else(PoisonError::into_inner).clone();
        poll_fn(|cx| service.poll_ready(cx)).await.map_err(status)?;
        // The next service borrows from the server, but tower services must be `'static`. It therefore runs here,
        // concurrently with the middleware, and gets the call through a channel.
        let (to_next, handed_on) = oneshot::channel();
        let (answering, answer) = oneshot::channel();
        let outside = service.call(TowerCall { call, to_next, answer });
        let inside = async {
            if let Ok(call) = handed_on.await {
                // Middleware that has answered already dropped the receiver.
                let _ = answering.send(next.run(call).await);
            }
            pending::<()>().await;
        };
        tokio::select! {
            biased;
            answer = outside => answer.map_err(status),
            () = inside => unreachable!("the inner service never completes"),
        }
    }
}

fn status(error: impl Into<Box<dyn Error + Send + Sync>>) -> Status {
    match error.into().downcast::<Status>() {
        Ok(status) => *status,
        Err(error) => Status::unknown(error.to_string()).with_source(Arc::from(error)),
    }
}

impl<S> fmt::Debug for TowerLayer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tower").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tower::{ServiceBuilder, limit::ConcurrencyLimitLayer, timeout::TimeoutLayer};

    use super::*;
    use crate::{
        call::{exchange::Body, head::Head, method::Method, status::Code},
        codec::Format,
        service::{endpoint::Endpoint, handle::Service, services::Services},
    };

    /// Echoes a request, or never answers.
    struct Echo;

    impl Service for Echo {
        const NAME: &'static str = "Echo";
        const METHODS: &'static [Method] = &[Method::unary("Echo", "Say", 10), Method::unary("Echo", "Wait", 11)];

        async fn call(&self, method: usize, call: Call) -> Result<Answer, Status> {
            match method {
                0 if call.head().metadata().contains_key("refuse") => Err(Status::aborted("as told")),
                0 => Ok(Answer::new(call.into_parts().1)),
                _ => pending().await,
            }
        }
    }

    async fn call(layer: impl Layer, path: &str, head: Head) -> Result<Answer, Status> {
        let endpoint = Endpoint::new(Services::new().add_service(Echo).layer(layer)).unwrap();
        endpoint.call(endpoint.find(path).unwrap(), Format::Polyglot, head, Body::from("hi")).await
    }

    #[tokio::test]
    async fn calls_and_responses_pass_through_middleware() {
        let answer = call(tower(ConcurrencyLimitLayer::new(1)), "Echo/Say", Head::default()).await.unwrap();
        assert_eq!(answer.body().content_len(), Some(2));
    }

    #[tokio::test]
    async fn the_status_of_a_handler_is_passed_unchanged() {
        let mut head = Head::default();
        head.metadata_mut().insert("refuse", "yes").unwrap();
        let limit = ServiceBuilder::new().concurrency_limit(1).into_inner();
        let status = call(tower(limit), "Echo/Say", head).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Aborted, "as told"));
    }

    #[tokio::test(start_paused = true)]
    async fn middleware_errors_become_statuses() {
        let limit = TimeoutLayer::new(Duration::from_secs(5));
        let status = call(tower(limit), "Echo/Wait", Head::default()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unknown);
        assert!(status.message().contains("timed out"), "{status}");
        assert!(std::error::Error::source(&status).unwrap().is::<tower::timeout::error::Elapsed>());
    }

    #[tokio::test]
    async fn middleware_can_change_the_head() {
        let tag = tower_layer::layer_fn(|next: TowerNext| {
            tower::util::MapRequest::new(next, |mut call: TowerCall| {
                call.get_mut().head_mut().metadata_mut().insert("refuse", "yes").unwrap();
                call
            })
        });
        assert_eq!(call(tower(tag), "Echo/Say", Head::default()).await.unwrap_err().code(), Code::Aborted);
    }
}
