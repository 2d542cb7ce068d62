//! Streams of stored messages for callers, who acknowledge each message.

use std::{
    collections::HashMap,
    convert::Infallible,
    fmt,
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::SystemTime,
};

use frisbee_pubsub::Message;
use futures_core::Stream;
use tokio::{sync::mpsc, task::JoinSet};

use crate::{Delivery, Durable, DurableBuilder, StreamError, durable::next_now};

/// A stored message on its way to a caller.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServedMessage {
    /// Number of the message for its [`MessageReceipt`]: its sequence number in the stream.
    pub id: u64,
    /// The message.
    pub message: Message,
    /// Time of storage.
    pub stored: SystemTime,
    /// Number of deliveries to any caller, including this one.
    pub deliveries: u64,
}

/// A caller's answer to a [`ServedMessage`], with the id of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageReceipt {
    /// The message is done with. The cluster does not deliver it again.
    Done(u64),
    /// The message is delivered again, to any caller.
    Retry(u64),
    /// The message can never be handled. It is [terminated](Delivery::terminate).
    Reject(u64),
}

/// A stream of stored messages for one caller, returned by [`DurableBuilder::serve`] and
/// [`DurableBuilder::serve_taken`].
///
/// Dropping it returns all messages without a receipt to the cluster, which delivers them to other callers.
#[must_use = "messages are delivered only while the stream is polled"]
pub struct ServedMessages {
    messages: mpsc::Receiver<Result<ServedMessage, StreamError>>,
    taken: Option<TakenMessages>,
}

/// Receipts made here for a caller without a request stream.
struct TakenMessages {
    receipts: mpsc::UnboundedSender<MessageReceipt>,
    last: Option<u64>,
}

impl DurableBuilder {
    /// Subscribes, and serves the messages to one caller, who acknowledges each by its id.
    ///
    /// Use it in a bidirectional method of a service: the requests are the receipts, the responses the messages. At most
    /// [`window`](Self::window) messages, but at least two, are on their way to a caller or without a receipt. A message
    /// returns to the cluster, and is delivered to another caller, if
    ///
    /// - the caller asks for that ([`MessageReceipt::Retry`]),
    /// - the call ends before the receipt: the caller is gone, or the stream is dropped,
    /// - there is no receipt within [`acknowledge_max`](Self::acknowledge_max), for example because this process has died.
    ///
    /// A receipt with an unknown id has no effect. When the receipts end, no further messages follow. The stream then ends
    /// after the cluster has recorded all receipts, or with the error of one that it did not record.
    ///
    /// ```
    /// # use frisbee_pubsub_nats::{MessageReceipt, Nats, ServedMessages, StreamError};
    /// # use futures_util::{Stream, StreamExt};
    /// # struct Receipt { id: u64 }
    /// # struct Status;
    /// // In a method `rpc Work(stream Receipt) returns (stream Order)`, with `receipts = request.into_inner()`:
    /// async fn work(
    ///     nats: &Nats,
    ///     receipts: impl Stream<Item = Result<Receipt, Status>> + Send + 'static,
    /// ) -> Result<ServedMessages, StreamError> {
    ///     let receipts = receipts.map(|receipt| Ok(MessageReceipt::Done(receipt?.id)));
    ///     // Map the items to responses and statuses, and return `Streaming::new(..)`.
    ///     nats.durable("ORDERS", "workers").window(16).serve::<_, Status>(receipts).await
    /// }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// A dropped call may leave the durable subscription in the cluster.
    pub async fn serve<R, E>(self, receipts: R) -> Result<ServedMessages, StreamError>
    where
        R: Stream<Item = Result<MessageReceipt, E>> + Send + 'static,
        E: Send + 'static,
    {
        self.serve_with(receipts, None).await
    }

    /// Subscribes, and serves the messages to one caller without receipts, in a method with a plain response stream.
    ///
    /// A message counts as done when the stream is polled for the next one: the wire has then taken the message, within the
    /// flow control of the call. If the caller dies, messages in buffers of the network are lost. Use
    /// [`serve`](Self::serve) if each message matters.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may leave the durable subscription in the cluster.
    pub async fn serve_taken(self) -> Result<ServedMessages, StreamError> {
        let (sender, receipts) = mpsc::unbounded_channel();
        self.serve_with(TakenReceipts(receipts), Some(TakenMessages { receipts: sender, last: None })).await
    }

    async fn serve_with<R, E>(
        mut self,
        receipts: R,
        taken: Option<TakenMessages>,
    ) -> Result<ServedMessages, StreamError>
    where
        R: Stream<Item = Result<MessageReceipt, E>> + Send + 'static,
        E: Send + 'static,
    {
        let in_flight_max = self.split_window();
        let durable = self.subscribe().await?;
        let (sender, messages) = mpsc::channel(1);
        let open = OpenMessages { in_flight: HashMap::new(), in_flight_max, settling: JoinSet::new(), failure: None };
        tokio::spawn(serve_messages(durable, open, sender, receipts));
        Ok(ServedMessages { messages, taken })
    }
}

impl Stream for ServedMessages {
    type Item = Result<ServedMessage, StreamError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { messages, taken } = self.get_mut();
        if let Some(TakenMessages { receipts, last }) = taken
            && let Some(id) = last.take()
        {
            // Without a receiver, the source has ended and has returned the message.
            let _ = receipts.send(MessageReceipt::Done(id));
        }
        let polled = messages.poll_recv(cx);
        if let (Some(taken), Poll::Ready(Some(Ok(message)))) = (taken, &polled) {
            taken.last = Some(message.id);
        }
        polled
    }
}

impl fmt::Debug for ServedMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedMessages").finish_non_exhaustive()
    }
}

/// The receipts for messages taken from the stream. At most one per message in flight is queued.
struct TakenReceipts(mpsc::UnboundedReceiver<MessageReceipt>);

impl Stream for TakenReceipts {
    type Item = Result<MessageReceipt, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|receipt| receipt.map(Ok))
    }
}

/// Moves messages from a durable subscription to a caller, and its receipts back.
async fn serve_messages<E>(
    mut durable: Durable,
    mut open: OpenMessages,
    sender: mpsc::Sender<Result<ServedMessage, StreamError>>,
    receipts: impl Stream<Item = Result<MessageReceipt, E>>,
) {
    let mut receipts = pin!(receipts);
    // Many streams must not be polled after their end.
    let has_receipts = loop {
        let has_room = open.in_flight.len() + open.settling.len() < open.in_flight_max;
        let next = async {
            // Wait for the caller first, so that no message waits in this process for one that reads nothing.
            let permit = sender.reserve().await.ok()?;
            Some((permit, durable.next().await))
        };
        tokio::select! {
            Some(settled) = open.settling.join_next() => open.note_settled(settled),
            receipt = poll_fn(|cx| receipts.as_mut().poll_next(cx)) => match receipt {
                Some(Ok(receipt)) => open.settle(receipt).await,
                Some(Err(_)) | None => break false,
            },
            () = sender.closed() => break true,
            Some((permit, next)) = next, if has_room => match next {
                Ok(delivery) => permit.send(Ok(open.insert(delivery))),
                Err(error) => {
                    permit.send(Err(error));
                    break true;
                }
            },
        }
    };
    // Receipts that arrived before the end of the call still count. Their number is limited, because a caller may send
    // any ids.
    let mut left = if has_receipts { 2 * open.in_flight_max } else { 0 };
    while left > 0
        && let Some(Ok(receipt)) = next_now(receipts.as_mut())
    {
        left -= 1;
        open.settle(receipt).await;
    }
    let buffered = durable.close().await;
    if let Err(failure) = open.close(buffered).await {
        // Fails if the caller is gone.
        let _ = sender.send(Err(failure)).await;
    }
}

/// Messages sent to a caller, until the cluster has recorded their receipts.
struct OpenMessages {
    /// Messages without a receipt.
    in_flight: HashMap<u64, Delivery>,
    /// Maximum number of messages without a receipt, or with one that the cluster has not recorded.
    in_flight_max: usize,
    settling: JoinSet<Result<(), StreamError>>,
    /// First receipt that the cluster has not recorded.
    failure: Option<StreamError>,
}

impl OpenMessages {
    fn insert(&mut self, delivery: Delivery) -> ServedMessage {
        let Delivery { ref message, sequence, stored, deliveries, .. } = delivery;
        let message = ServedMessage { id: sequence, message: message.clone(), stored, deliveries };
        // A message redelivered after its time replaces the earlier delivery.
        self.in_flight.insert(message.id, delivery);
        message
    }

    async fn settle(&mut self, receipt: MessageReceipt) {
        let (MessageReceipt::Done(id) | MessageReceipt::Retry(id) | MessageReceipt::Reject(id)) = receipt;
        let Some(delivery) = self.in_flight.remove(&id) else {
            // A caller may send unknown ids without end. Other tasks must run in between.
            return tokio::task::yield_now().await;
        };
        self.settling.spawn(async move {
            match receipt {
                MessageReceipt::Done(_) => delivery.acknowledge().await,
                MessageReceipt::Retry(_) => delivery.refuse().await,
                MessageReceipt::Reject(_) => delivery.terminate().await,
            }
        });
    }

    fn note_settled(&mut self, settled: Result<Result<(), StreamError>, tokio::task::JoinError>) {
        if let Ok(Err(error)) = settled {
            tracing::debug!("a message will be redelivered: {error}");
            self.failure.get_or_insert(error);
        }
    }

    /// Returns all messages without a receipt to the cluster, and waits for the receipts to be recorded.
    async fn close(mut self, buffered: Vec<Delivery>) -> Result<(), StreamError> {
        for delivery in std::mem::take(&mut self.in_flight).into_values().chain(buffered) {
            // If this fails, the message is redelivered when its time is over.
            let _ = delivery.refuse().await;
        }
        while let Some(settled) = self.settling.join_next().await {
            self.note_settled(settled);
        }
        self.failure.map_or(Ok(()), Err)
    }
}
