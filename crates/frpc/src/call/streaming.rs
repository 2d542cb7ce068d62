use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

use futures_core::Stream;
use tokio::sync::mpsc;

use super::{
    metadata::Metadata,
    packed::{PollNext, Received, Source},
    status::Status,
};

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
///
/// [Trailers](Self::trailers) are metadata that follow the last message. [`Metadata`] says how far they get.
pub struct Streaming<T> {
    messages: Messages<T>,
    metadata: Option<MetadataSlot>,
    trailers: Option<MetadataSlot>,
}

/// The source of the messages.
enum Messages<T> {
    Boxed(Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>),
    /// One of this crate.
    Source(Box<dyn Source<T>>),
    /// Not boxed, so that the slot for the trailers is no additional allocation.
    Channel(mpsc::Receiver<Result<T, Status>>),
    /// The end was read. Many streams must not be polled behind it, and what they held is needed no more.
    Over,
}

/// The place of metadata in front of a stream, filled before its first message, or behind it, filled before its end. For
/// [callers](crate::Caller) that hand out a stream before they know. Cheap to clone; all clones are the same place.
#[derive(Clone, Debug, Default)]
pub struct MetadataSlot(Arc<OnceLock<Metadata>>);

impl MetadataSlot {
    /// Makes an empty place.
    pub fn new() -> Self {
        Self::default()
    }

    /// Fills the place, unless it is filled.
    pub fn set(&self, metadata: Metadata) {
        let _ = self.0.set(metadata);
    }

    /// Returns what it was filled with.
    pub fn get(&self) -> Option<&Metadata> {
        self.0.get()
    }
}

impl<T> Streaming<T> {
    /// Makes a stream of the messages of another. An error ends it.
    pub fn new(messages: impl Stream<Item = Result<T, Status>> + Send + 'static) -> Self {
        Self::of(Messages::Boxed(Box::pin(messages)))
    }

    /// Makes a stream of the messages of one that may move several at once.
    pub(crate) fn from_source(source: impl Source<T> + 'static) -> Self {
        Self::of(Messages::Source(Box::new(source)))
    }

    /// Makes a stream that has ended.
    pub(crate) fn over() -> Self {
        Self::of(Messages::Over)
    }

    fn of(messages: Messages<T>) -> Self {
        Self { messages, metadata: None, trailers: None }
    }

    /// Makes a stream of what its sender is given. Sending waits while `capacity` messages have not been taken.
    pub fn channel(capacity: usize) -> (StreamSender<T>, Self)
    where
        T: Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(capacity);
        let trailers = MetadataSlot::default();
        let messages = Self::of(Messages::Channel(receiver)).with_trailers_slot(Some(trailers.clone()));
        (StreamSender { sender, trailers }, messages)
    }

    /// Puts trailers behind the last message, in place of those that the stream had.
    pub fn with_trailers(self, trailers: Metadata) -> Self {
        let slot = MetadataSlot::new();
        slot.set(trailers);
        self.with_trailers_from(slot)
    }

    /// Takes the metadata in front of the messages from a place that is filled before the first of them.
    pub fn with_metadata_from(self, slot: MetadataSlot) -> Self {
        self.with_metadata_slot(Some(slot))
    }

    /// Takes the trailers from a place that is filled before the stream ends.
    pub fn with_trailers_from(self, slot: MetadataSlot) -> Self {
        self.with_trailers_slot(Some(slot))
    }

    /// Returns the next message, or `None` at the end.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has taken nothing.
    pub async fn message(&mut self) -> Result<Option<T>, Status> {
        poll_fn(|cx| self.poll(cx)).await.transpose()
    }

    /// Reads on to the end and returns the trailers, or `None` if the stream has none. Discards the messages that have
    /// not been read. Can be called again, and returns the same trailers.
    ///
    /// # Errors
    ///
    /// Returns the status with which the stream ends, if it does not end well. Trailers of such a stream are the
    /// [metadata](Status::metadata) of the status.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have discarded messages, as the whole call would have. The next call reads on and returns the
    /// trailers.
    pub async fn trailers(&mut self) -> Result<Option<Metadata>, Status> {
        while self.message().await?.is_some() {}
        Ok(self.trailers.as_ref().and_then(|slot| slot.get()).cloned())
    }

    /// Returns the metadata that the service sent in front of the messages, if any, once the first of them or the end has
    /// arrived.
    pub fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()?.get()
    }

    /// Takes the metadata in front of the messages from this place.
    pub(crate) fn with_metadata_slot(self, metadata: Option<MetadataSlot>) -> Self {
        Self { metadata, ..self }
    }

    /// Returns the place of the trailers, for a stream that wraps this one and for the wire that sends its end. It may be
    /// empty until the end.
    pub(crate) fn trailers_slot(&self) -> Option<MetadataSlot> {
        self.trailers.clone()
    }

    /// Takes the trailers from this place at the end.
    pub(crate) fn with_trailers_slot(self, trailers: Option<MetadataSlot>) -> Self {
        Self { trailers, ..self }
    }

    /// Makes a stream of this one. Metadata and trailers stay.
    pub(crate) fn changed<U, S: Source<U> + 'static>(self, change: impl FnOnce(Self) -> S) -> Streaming<U> {
        let (metadata, trailers) = (self.metadata.clone(), self.trailers_slot());
        Streaming::from_source(change(self)).with_metadata_slot(metadata).with_trailers_slot(trailers)
    }

    /// Calls `end` once the stream is over: it has ended, well or with a status, or it is dropped before, which is a
    /// [`Cancelled`](crate::Code::Cancelled) status. Metadata and trailers stay.
    pub fn on_end(self, end: impl FnOnce(Result<(), &Status>) + Send + 'static) -> Self
    where
        T: Send + 'static,
    {
        self.changed(|messages| Watched { messages, end: Some(end) })
    }

    /// Changes each message. A message that cannot be changed becomes an error. The trailers stay.
    pub(crate) fn map_messages<U, F>(self, change: F) -> Streaming<U>
    where
        T: Send + 'static,
        F: Fn(T) -> Result<U, Status> + Send + 'static,
    {
        self.changed(|messages| MapMessages { messages, change })
    }

    /// Polls for the next message.
    #[inline]
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> PollNext<T> {
        let next = match &mut self.messages {
            Messages::Boxed(messages) => messages.as_mut().poll_next(cx),
            Messages::Source(source) => source.poll_next(cx),
            Messages::Channel(receiver) => receiver.poll_recv(cx),
            Messages::Over => return Poll::Ready(None),
        };
        self.unless_over(next)
    }

    /// Polls for messages as [`Source::poll_into`] does.
    pub(crate) fn poll_into(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>, full: usize) -> PollNext<Option<T>> {
        let Messages::Source(source) = &mut self.messages else {
            return self.poll(cx).map(|next| next.map(|message| message.map(Some)));
        };
        let next = source.poll_into(cx, out, full);
        self.unless_over(next)
    }

    /// Polls for what is here as [`Source::poll_several`] does.
    pub(crate) fn poll_several(&mut self, cx: &mut Context<'_>) -> PollNext<Received<T>> {
        let Messages::Source(source) = &mut self.messages else {
            return self.poll(cx).map(|next| next.map(|message| message.map(Received::One)));
        };
        let next = source.poll_several(cx);
        self.unless_over(next)
    }

    fn unless_over<N>(&mut self, next: Poll<Option<N>>) -> Poll<Option<N>> {
        if let Poll::Ready(None) = next {
            self.messages = Messages::Over;
        }
        next
    }
}

impl<T: Send + 'static> FromIterator<T> for Streaming<T> {
    /// Makes a stream of what the iterator has, all of it there already.
    fn from_iter<I: IntoIterator<Item = T>>(messages: I) -> Self {
        let messages: Vec<T> = messages.into_iter().collect();
        Self::new(Ready(messages.into_iter()))
    }
}

impl<T> Stream for Streaming<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(cx)
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
    trailers: MetadataSlot,
}

impl<T> StreamSender<T> {
    /// Sends a message, waiting for room. Fails when nobody reads any more.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has not sent the message, which is lost, and has lost its place among those that wait.
    pub async fn send(&self, message: T) -> Result<(), Status> {
        let sent = self.sender.send(Ok(message)).await;
        sent.map_err(|_| Status::cancelled("nobody reads this stream any more"))
    }

    /// Ends the stream with trailers, once the other senders are gone. If several senders finish, the trailers of the
    /// first count.
    pub fn finish(self, trailers: Metadata) {
        // Filled before this sender is dropped, without which the reader sees no end.
        self.trailers.set(trailers);
    }

    /// Ends the stream with a status, waiting for room.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has dropped the sender, and has not sent the status: to the reader, the stream ends well.
    pub async fn fail(self, status: Status) {
        // A reader that is gone does not miss the status.
        let _ = self.sender.send(Err(status)).await;
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

/// A stream with each message changed.
struct MapMessages<A, F> {
    messages: Streaming<A>,
    change: F,
}

impl<A: Send, B, F: Fn(A) -> Result<B, Status> + Send> Source<B> for MapMessages<A, F> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> PollNext<B> {
        let next = self.messages.poll(cx);
        next.map(|message| message.map(|message| message.and_then(&self.change)))
    }
}

/// A stream whose end is told of.
struct Watched<T, F: FnOnce(Result<(), &Status>)> {
    messages: Streaming<T>,
    end: Option<F>,
}

impl<T, F: FnOnce(Result<(), &Status>)> Watched<T, F> {
    fn look<N>(&mut self, next: PollNext<N>) -> PollNext<N> {
        let ended = match &next {
            Poll::Ready(None) => Ok(()),
            Poll::Ready(Some(Err(status))) => Err(status),
            _ => return next,
        };
        if let Some(end) = self.end.take() {
            end(ended);
        }
        next
    }
}

impl<T: Send, F: FnOnce(Result<(), &Status>) + Send> Source<T> for Watched<T, F> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> PollNext<T> {
        let next = self.messages.poll(cx);
        self.look(next)
    }

    fn poll_into(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>, full: usize) -> PollNext<Option<T>> {
        let next = self.messages.poll_into(cx, out, full);
        self.look(next)
    }

    fn poll_several(&mut self, cx: &mut Context<'_>) -> PollNext<Received<T>> {
        let next = self.messages.poll_several(cx);
        self.look(next)
    }
}

impl<T, F: FnOnce(Result<(), &Status>)> Drop for Watched<T, F> {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end(Err(&Status::cancelled("nobody read the stream to its end")));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt, stream};

    use super::*;

    fn trailers(value: &'static str) -> Metadata {
        let mut trailers = Metadata::new();
        trailers.insert("served-by", value).unwrap();
        trailers
    }

    #[tokio::test]
    async fn trailers_come_behind_the_messages() {
        let (sender, mut numbers) = Streaming::channel(2);
        sender.send(1).await.unwrap();
        sender.send(2).await.unwrap();
        sender.finish(trailers("a"));
        assert_eq!(numbers.message().await.unwrap(), Some(1));
        assert_eq!(numbers.message().await.unwrap(), Some(2));
        assert_eq!(numbers.message().await.unwrap(), None);
        assert_eq!(numbers.trailers().await.unwrap(), Some(trailers("a")));
        assert_eq!(numbers.trailers().await.unwrap(), Some(trailers("a")), "they are there for all who ask");
    }

    #[tokio::test]
    async fn trailers_discard_the_messages_that_nobody_read() {
        let mut numbers = Streaming::from_iter([1, 2, 3]).with_trailers(trailers("a"));
        assert_eq!(numbers.message().await.unwrap(), Some(1));
        assert_eq!(numbers.trailers().await.unwrap(), Some(trailers("a")));
        assert_eq!(numbers.message().await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_stream_without_trailers_has_none() {
        assert_eq!(Streaming::from_iter([1]).trailers().await.unwrap(), None);
        let (sender, mut numbers) = Streaming::<u8>::channel(1);
        drop(sender);
        assert_eq!(numbers.trailers().await.unwrap(), None);
    }

    #[tokio::test]
    async fn trailers_of_a_stream_that_fails_are_its_status() {
        let (sender, mut numbers) = Streaming::channel(2);
        sender.send(1).await.unwrap();
        sender.clone().finish(trailers("a"));
        sender.fail(Status::aborted("no more")).await;
        assert_eq!(numbers.trailers().await.unwrap_err().message(), "no more");
    }

    #[tokio::test]
    async fn trailers_wait_for_the_last_sender_and_are_those_of_the_first_that_finished() {
        let (sender, mut numbers) = Streaming::channel(1);
        sender.clone().finish(trailers("a"));
        assert_eq!(numbers.trailers().now_or_never().map(Result::ok), None, "there is a sender left");
        sender.send(1).await.unwrap();
        assert_eq!(numbers.message().await.unwrap(), Some(1), "a dropped wait for trailers loses nothing");
        sender.finish(trailers("b"));
        assert_eq!(numbers.trailers().await.unwrap(), Some(trailers("a")));
    }

    #[tokio::test]
    async fn known_trailers_replace_those_of_the_sender() {
        let (sender, numbers) = Streaming::<u8>::channel(1);
        sender.finish(trailers("a"));
        assert_eq!(numbers.with_trailers(trailers("b")).trailers().await.unwrap(), Some(trailers("b")));
    }

    #[tokio::test]
    async fn a_stream_is_not_polled_behind_its_end() {
        let mut rest = vec![2, 1];
        let mut is_over = false;
        let mut numbers = Streaming::new(stream::poll_fn(move |_| {
            assert!(!is_over, "polled behind the end");
            let next = rest.pop();
            is_over = next.is_none();
            Poll::Ready(next.map(Ok))
        }));
        assert_eq!(numbers.by_ref().filter_map(async |next| next.ok()).collect::<Vec<u8>>().await, [1, 2]);
        assert_eq!(numbers.message().await.unwrap(), None);
        assert_eq!(numbers.trailers().await.unwrap(), None);
        assert!(numbers.next().await.is_none());
    }

    #[tokio::test]
    async fn changed_messages_keep_the_trailers() {
        let (sender, numbers) = Streaming::channel(1);
        let mut texts = numbers.map_messages(|number: u8| Ok(number.to_string()));
        sender.send(7).await.unwrap();
        sender.finish(trailers("a"));
        assert_eq!(texts.message().await.unwrap().as_deref(), Some("7"));
        assert_eq!(texts.trailers().await.unwrap(), Some(trailers("a")));

        let mut known = Streaming::from_iter([7]).with_trailers(trailers("b")).map_messages(|number: u8| Ok(number));
        assert_eq!(known.trailers().await.unwrap(), Some(trailers("b")));
    }

    #[tokio::test]
    async fn a_message_that_cannot_be_changed_is_an_error() {
        let numbers = Streaming::from_iter(["1", "one"]).with_trailers(trailers("a"));
        let mut parsed = numbers.map_messages(|text| text.parse().map_err(|_| Status::invalid_argument(text)));
        assert_eq!(parsed.message().await.unwrap(), Some(1_u8));
        assert_eq!(parsed.trailers().await.unwrap_err().message(), "one");
    }

    #[tokio::test]
    async fn sending_fails_once_nobody_reads() {
        let (sender, numbers) = Streaming::channel(1);
        drop(numbers);
        assert_eq!(sender.send(1).await.unwrap_err().code(), crate::Code::Cancelled);
        sender.finish(trailers("a"));
    }
}
