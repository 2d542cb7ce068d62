//! Streams of typed messages, and the sender of a stream.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_core::Stream;
use tokio::sync::mpsc;

use super::{
    metadata::Metadata,
    packed::{BatchSource, ContentSource, MessagePrefix, PackedMessages, PollNext, ReceivedMessages, UnpackedContents},
    status::Status,
};

/// A stream of messages, the argument or result of streaming methods on both sides. Create one from any stream or
/// iterator, or feed it through a [`StreamSender`].
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
/// [Trailers](Self::trailers) are metadata sent after the last message. Not every wire carries them; see [`Metadata`].
pub struct Streaming<T> {
    messages: StreamingSource<T>,
    metadata: Option<MetadataSlot>,
    trailers: Option<MetadataSlot>,
}

/// The source of the messages.
enum StreamingSource<T> {
    Boxed(Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>),
    /// A stream type of this crate.
    Source(Box<dyn BatchSource<T>>),
    /// Not boxed: the trailers slot is then the only additional allocation.
    Channel(mpsc::Receiver<Result<T, Status>>),
    /// The end was read. Many streams must not be polled after their end, and their memory is freed early.
    Over,
}

/// A write-once cell for the metadata or trailers of a stream. Metadata is set before the first message, trailers
/// before the end. For [callers](crate::Caller) that return a stream before they know its metadata. Cheap to clone; all
/// clones share one value.
#[derive(Clone, Debug, Default)]
pub struct MetadataSlot(Arc<OnceLock<Metadata>>);

impl MetadataSlot {
    /// Creates an empty slot.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the value, unless one is set already.
    pub fn set(&self, metadata: Metadata) {
        let _ = self.0.set(metadata);
    }

    /// Returns the value, if set.
    pub fn get(&self) -> Option<&Metadata> {
        self.0.get()
    }
}

impl<T> Streaming<T> {
    /// Wraps a stream of messages. Wires send nothing after its first error.
    pub fn new(messages: impl Stream<Item = Result<T, Status>> + Send + 'static) -> Self {
        Self::of(StreamingSource::Boxed(Box::pin(messages)))
    }

    /// Creates a stream from a source that can move several messages at a time.
    pub(crate) fn from_source(source: impl BatchSource<T> + 'static) -> Self {
        Self::of(StreamingSource::Source(Box::new(source)))
    }

    /// Creates a stream already at its end.
    pub(crate) fn over() -> Self {
        Self::of(StreamingSource::Over)
    }

    fn of(messages: StreamingSource<T>) -> Self {
        Self { messages, metadata: None, trailers: None }
    }

    /// Creates a stream fed by a sender. Sending waits while `capacity` messages are queued.
    pub fn channel(capacity: usize) -> (StreamSender<T>, Self)
    where
        T: Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(capacity);
        let trailers = MetadataSlot::default();
        let messages = Self::of(StreamingSource::Channel(receiver)).with_trailers_slot(Some(trailers.clone()));
        (StreamSender { sender, trailers }, messages)
    }

    /// Sets the trailers sent after the last message, replacing earlier ones.
    pub fn with_trailers(self, trailers: Metadata) -> Self {
        let slot = MetadataSlot::new();
        slot.set(trailers);
        self.with_trailers_from(slot)
    }

    /// Uses the metadata in `slot`, to be set before the first message.
    pub fn with_metadata_from(self, slot: MetadataSlot) -> Self {
        self.with_metadata_slot(Some(slot))
    }

    /// Uses the trailers in `slot`, to be set before the stream ends.
    pub fn with_trailers_from(self, slot: MetadataSlot) -> Self {
        self.with_trailers_slot(Some(slot))
    }

    /// Returns the next message, or `None` at the end.
    ///
    /// # Cancel safety
    ///
    /// No message is lost if the returned future is dropped.
    pub async fn message(&mut self) -> Result<Option<T>, Status> {
        NextMessage(self).await.transpose()
    }

    /// Reads to the end and returns the trailers, or `None` if the stream has none. Discards all unread messages. Later
    /// calls return the same trailers.
    ///
    /// # Errors
    ///
    /// Returns the status of a failed stream. Trailers of such a stream are in the [metadata](Status::metadata) of the
    /// status.
    ///
    /// # Cancel safety
    ///
    /// If the returned future is dropped, some messages may already be discarded. The next call continues reading and
    /// returns the trailers.
    pub async fn trailers(&mut self) -> Result<Option<Metadata>, Status> {
        while self.message().await?.is_some() {}
        Ok(self.trailers.as_ref().and_then(|slot| slot.get()).cloned())
    }

    /// Returns the metadata sent by the service before the messages, if any. It is available once the first message or
    /// the end has arrived.
    pub fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()?.get()
    }

    /// Uses the metadata in this slot.
    pub(crate) fn with_metadata_slot(self, metadata: Option<MetadataSlot>) -> Self {
        Self { metadata, ..self }
    }

    /// Returns the slot of the metadata, for a stream that wraps this one. It may be empty until the first message.
    pub fn metadata_slot(&self) -> Option<MetadataSlot> {
        self.metadata.clone()
    }

    /// Returns the slot of the trailers, for a stream that wraps this one or for the wire that sends its end. It may be
    /// empty until the end.
    pub fn trailers_slot(&self) -> Option<MetadataSlot> {
        self.trailers.clone()
    }

    /// Uses the trailers in this slot at the end.
    pub(crate) fn with_trailers_slot(self, trailers: Option<MetadataSlot>) -> Self {
        Self { trailers, ..self }
    }

    /// Converts the messages through another source. Keeps metadata and trailers.
    pub(crate) fn changed<U, S: BatchSource<U> + 'static>(self, change: impl FnOnce(Self) -> S) -> Streaming<U> {
        let (metadata, trailers) = (self.metadata.clone(), self.trailers_slot());
        Streaming::from_source(change(self)).with_metadata_slot(metadata).with_trailers_slot(trailers)
    }

    /// Calls `end` once, with the outcome of the stream: success, a status, or [`Cancelled`](crate::Code::Cancelled) if
    /// the stream is dropped before its end. Keeps metadata and trailers.
    pub fn on_end(self, end: impl FnOnce(Result<(), &Status>) + Send + 'static) -> Self
    where
        T: Send + 'static,
    {
        self.changed(|messages| WatchedStream { messages, end: Some(end) })
    }

    /// Converts each message. A failed conversion becomes an error item. Keeps metadata and trailers.
    pub fn map_messages<U, F>(self, change: F) -> Streaming<U>
    where
        T: Send + 'static,
        F: Fn(T) -> Result<U, Status> + Send + 'static,
    {
        self.changed(|messages| MapMessages { messages, change })
    }

    /// Polls for the next message.
    // A call for each message of a stream shows in its cost.
    #[inline(always)]
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> PollNext<T> {
        let mut next = match &mut self.messages {
            StreamingSource::Boxed(messages) => messages.as_mut().poll_next(cx),
            StreamingSource::Source(source) => source.poll_next(cx),
            StreamingSource::Channel(receiver) => receiver.poll_recv(cx),
            StreamingSource::Over => return Poll::Ready(None),
        };
        self.check_end(&mut next);
        next
    }

    /// Polls for messages like [`BatchSource::poll_into`].
    pub(crate) fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        full: usize,
        prefix: MessagePrefix,
    ) -> PollNext<Option<T>> {
        let StreamingSource::Source(source) = &mut self.messages else {
            return self.poll(cx).map(|next| next.map(|message| message.map(Some)));
        };
        let mut next = source.poll_into(cx, out, full, prefix);
        self.check_end(&mut next);
        next
    }

    /// Polls for received messages like [`BatchSource::poll_several`].
    pub(crate) fn poll_several(&mut self, cx: &mut Context<'_>) -> PollNext<ReceivedMessages<T>> {
        let StreamingSource::Source(source) = &mut self.messages else {
            return self.poll(cx).map(|next| next.map(|message| message.map(ReceivedMessages::One)));
        };
        let mut next = source.poll_several(cx);
        self.check_end(&mut next);
        next
    }

    /// Drops the source at the end, and reads the refusal of a server in an error.
    #[inline(always)]
    fn check_end<N>(&mut self, next: &mut PollNext<N>) {
        match next {
            // Now, because readers may keep the finished stream for its trailers.
            Poll::Ready(None) => self.end(),
            Poll::Ready(Some(Err(status))) => status.receive_refusal(),
            _ => {}
        }
    }

    #[cold]
    fn end(&mut self) {
        self.messages = StreamingSource::Over;
    }
}

/// For authors of wires with the frames of gRPC: a byte of flags, the length of the message in four bytes, the message.
impl Streaming<Bytes> {
    /// Creates a stream of received messages. `poll_frames` returns the next ones.
    pub fn from_frames<F>(poll_frames: F) -> Self
    where
        F: FnMut(&mut Context<'_>) -> Poll<Option<Result<MessageFrames, Status>>> + Send + 'static,
    {
        Self::from_source(UnpackedContents::new(ReceivedFrames(poll_frames)))
    }

    /// Polls for messages, and appends their frames to `out`, without flags. Stops when none is ready or `out` has
    /// `full` bytes, but accepts at least one message. Returns a message that has its own buffer, without its frame.
    ///
    /// With any result, even an error or `Pending`, `out` may have grown. It grows by one message above `full`.
    pub fn poll_frames(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        full: usize,
    ) -> Poll<Option<Result<Option<Bytes>, Status>>> {
        self.poll_into(cx, out, full, MessagePrefix::FlagsAndLength)
    }
}

/// Messages received from a wire, for [`Streaming::from_frames`].
#[derive(Clone, Debug)]
pub enum MessageFrames {
    /// One message, without its frame.
    One(Bytes),
    /// Whole frames of messages, without flags. Their messages are decoded from this buffer, so none gets its own.
    Several(Bytes),
}

struct ReceivedFrames<F>(F);

impl<F> ContentSource for ReceivedFrames<F>
where
    F: FnMut(&mut Context<'_>) -> Poll<Option<Result<MessageFrames, Status>>> + Send,
{
    fn poll_contents(&mut self, cx: &mut Context<'_>) -> PollNext<ReceivedMessages<Bytes>> {
        (self.0)(cx).map_ok(|frames| match frames {
            MessageFrames::One(message) => ReceivedMessages::One(message),
            MessageFrames::Several(frames) => ReceivedMessages::Several(PackedMessages::of_frames(frames)),
        })
    }
}

impl<T: Send + 'static> FromIterator<T> for Streaming<T> {
    /// Creates a stream of all items of an iterator, collected up front.
    fn from_iter<I: IntoIterator<Item = T>>(messages: I) -> Self {
        let messages: Vec<T> = messages.into_iter().collect();
        Self::new(ReadyMessages(messages.into_iter()))
    }
}

/// The future of [`Streaming::message`].
struct NextMessage<'a, T>(&'a mut Streaming<T>);

impl<T> Future for NextMessage<'_, T> {
    type Output = Option<Result<T, Status>>;

    // A call for each message of a stream shows in its cost.
    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(cx)
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

/// The sending half of a [`Streaming`]. The stream ends after its last sender is dropped.
#[derive(Clone, Debug)]
pub struct StreamSender<T> {
    sender: mpsc::Sender<Result<T, Status>>,
    trailers: MetadataSlot,
}

impl<T> StreamSender<T> {
    /// Sends a message, waiting for room. Fails if the stream was dropped.
    ///
    /// # Cancel safety
    ///
    /// If the returned future is dropped, the message is lost without being sent, and the sender loses its position in
    /// the queue of waiting senders.
    pub async fn send(&self, message: T) -> Result<(), Status> {
        let sent = self.sender.send(Ok(message)).await;
        sent.map_err(|_| Status::cancelled("the reader dropped this stream"))
    }

    /// Ends the stream with trailers after all other senders are dropped. If several senders finish, the first trailers
    /// apply.
    pub fn finish(self, trailers: Metadata) {
        // Set before this sender is dropped: the drop makes the end visible to the reader.
        self.trailers.set(trailers);
    }

    /// Ends the stream with a status, waiting for room.
    ///
    /// # Cancel safety
    ///
    /// If the returned future is dropped, the status is lost and the sender is dropped: the reader sees a successful
    /// end.
    pub async fn fail(self, status: Status) {
        // Without a reader, the status has no use.
        let _ = self.sender.send(Err(status)).await;
    }
}

struct ReadyMessages<T>(std::vec::IntoIter<T>);

impl<T> Unpin for ReadyMessages<T> {}

impl<T> Stream for ReadyMessages<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.next().map(Ok))
    }
}

/// A stream that converts each message of another.
struct MapMessages<A, F> {
    messages: Streaming<A>,
    change: F,
}

impl<A: Send, B, F: Fn(A) -> Result<B, Status> + Send> BatchSource<B> for MapMessages<A, F> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> PollNext<B> {
        let next = self.messages.poll(cx);
        next.map(|message| message.map(|message| message.and_then(&self.change)))
    }
}

/// A stream that reports its end to a callback.
struct WatchedStream<T, F: FnOnce(Result<(), &Status>)> {
    messages: Streaming<T>,
    end: Option<F>,
}

impl<T, F: FnOnce(Result<(), &Status>)> WatchedStream<T, F> {
    fn report_end<N>(&mut self, next: PollNext<N>) -> PollNext<N> {
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

impl<T: Send, F: FnOnce(Result<(), &Status>) + Send> BatchSource<T> for WatchedStream<T, F> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> PollNext<T> {
        let next = self.messages.poll(cx);
        self.report_end(next)
    }

    fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        full: usize,
        prefix: MessagePrefix,
    ) -> PollNext<Option<T>> {
        let next = self.messages.poll_into(cx, out, full, prefix);
        self.report_end(next)
    }

    fn poll_several(&mut self, cx: &mut Context<'_>) -> PollNext<ReceivedMessages<T>> {
        let next = self.messages.poll_several(cx);
        self.report_end(next)
    }
}

impl<T, F: FnOnce(Result<(), &Status>)> Drop for WatchedStream<T, F> {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end(Err(&Status::cancelled("the stream was dropped before its end")));
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
    async fn trailers_follow_the_messages() {
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
    async fn reading_trailers_discards_unread_messages() {
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
    async fn trailers_of_a_failed_stream_are_its_error() {
        let (sender, mut numbers) = Streaming::channel(2);
        sender.send(1).await.unwrap();
        sender.clone().finish(trailers("a"));
        sender.fail(Status::aborted("no more")).await;
        assert_eq!(numbers.trailers().await.unwrap_err().message(), "no more");
    }

    #[tokio::test]
    async fn the_first_trailers_arrive_after_the_last_sender() {
        let (sender, mut numbers) = Streaming::channel(1);
        sender.clone().finish(trailers("a"));
        assert_eq!(numbers.trailers().now_or_never().map(Result::ok), None, "there is a sender left");
        sender.send(1).await.unwrap();
        assert_eq!(numbers.message().await.unwrap(), Some(1), "a dropped wait for trailers loses nothing");
        sender.finish(trailers("b"));
        assert_eq!(numbers.trailers().await.unwrap(), Some(trailers("a")));
    }

    #[tokio::test]
    async fn with_trailers_replaces_the_trailers_of_the_sender() {
        let (sender, numbers) = Streaming::<u8>::channel(1);
        sender.finish(trailers("a"));
        assert_eq!(numbers.with_trailers(trailers("b")).trailers().await.unwrap(), Some(trailers("b")));
    }

    #[tokio::test]
    async fn a_stream_is_not_polled_after_its_end() {
        let mut rest = vec![2, 1];
        let mut is_over = false;
        let mut numbers = Streaming::new(stream::poll_fn(move |_| {
            assert!(!is_over, "polled after the end");
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
    async fn mapped_messages_keep_the_trailers() {
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
    async fn a_failing_map_is_an_error() {
        let numbers = Streaming::from_iter(["1", "one"]).with_trailers(trailers("a"));
        let mut parsed = numbers.map_messages(|text| text.parse().map_err(|_| Status::invalid_argument(text)));
        assert_eq!(parsed.message().await.unwrap(), Some(1_u8));
        assert_eq!(parsed.trailers().await.unwrap_err().message(), "one");
    }

    #[tokio::test]
    async fn sending_fails_after_the_receiver_is_dropped() {
        let (sender, numbers) = Streaming::channel(1);
        drop(numbers);
        assert_eq!(sender.send(1).await.unwrap_err().code(), crate::Code::Cancelled);
        sender.finish(trailers("a"));
    }
}
