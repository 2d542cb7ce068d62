use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
};

use futures_core::Stream;
use tokio::sync::mpsc;

use crate::Status;

/// A stream of messages, as methods take and return them on either side. Made from any stream or iterator, or fed by a
/// [`StreamSender`].
///
/// ```
/// use frpc::{Status, Streaming};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Status> {
/// let mut numbers = Streaming::from_iter([1, 2]);
/// while let Some(number) = numbers.message().await? {
///     println!("{number}");
/// }
/// # Ok(())
/// # }
/// ```
pub struct Streaming<T> {
    messages: Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>,
}

impl<T> Streaming<T> {
    /// The messages of a stream. An error ends it.
    pub fn new(messages: impl Stream<Item = Result<T, Status>> + Send + 'static) -> Self {
        Self { messages: Box::pin(messages) }
    }

    /// A stream of what its sender is given. Sending waits while so many messages have not been taken.
    pub fn channel(capacity: usize) -> (StreamSender<T>, Self)
    where
        T: Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(capacity);
        (StreamSender { sender }, Self::new(Received(receiver)))
    }

    /// The next message, or `None` at the end.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has taken nothing.
    pub async fn message(&mut self) -> Result<Option<T>, Status> {
        poll_fn(|cx| self.messages.as_mut().poll_next(cx)).await.transpose()
    }
}

impl<T: Send + 'static> FromIterator<T> for Streaming<T> {
    /// A stream of what the iterator has, all of it there already.
    fn from_iter<I: IntoIterator<Item = T>>(messages: I) -> Self {
        let messages: Vec<T> = messages.into_iter().collect();
        Self::new(Ready(messages.into_iter()))
    }
}

impl<T> Stream for Streaming<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.messages.as_mut().poll_next(cx)
    }
}

impl<T> fmt::Debug for Streaming<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streaming").finish_non_exhaustive()
    }
}

/// Feeds a [`Streaming`]. The stream ends when its senders are gone.
#[derive(Clone, Debug)]
pub struct StreamSender<T> {
    sender: mpsc::Sender<Result<T, Status>>,
}

impl<T> StreamSender<T> {
    /// Sends a message, waiting for room. Fails when nobody reads any more.
    pub async fn send(&self, message: T) -> Result<(), Status> {
        let sent = self.sender.send(Ok(message)).await;
        sent.map_err(|_| Status::cancelled("nobody reads this stream any more"))
    }

    /// Ends the stream with a status.
    pub async fn fail(self, status: Status) {
        // Who does not read any more does not miss the status.
        let _ = self.sender.send(Err(status)).await;
    }
}

struct Received<T>(mpsc::Receiver<Result<T, Status>>);

impl<T> Stream for Received<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx)
    }
}

struct Ready<T>(std::vec::IntoIter<T>);

impl<T> Unpin for Ready<T> {}

impl<T> Stream for Ready<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.next().map(Ok))
    }
}
