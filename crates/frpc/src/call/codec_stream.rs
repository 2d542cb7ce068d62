//! Streams that decode or encode their messages.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tracing::error;

use super::{
    method::Method,
    packed::{BatchSource, MessagePrefix, PackedMessages, PollNext, ReceivedMessages},
    status::Status,
    streaming::Streaming,
    unknown_json::UnknownJson,
};
use crate::codec::{CodecError, DecodeContext, Format, MemoryBudget, Message, json::Types};

/// A stream of messages decoded from received contents.
pub(crate) struct DecodedStream<F> {
    contents: Streaming<Bytes>,
    /// Unread messages of the last packed batch.
    packed: PackedMessages,
    method: &'static Method,
    format: Format,
    memory: MemoryBudget,
    unknown: UnknownJson,
    any_types: &'static Types,
    /// Converts a decoding error to the status yielded by the stream.
    failed: F,
}

/// A stream of messages encoded in a format.
pub(crate) struct EncodedStream<M> {
    messages: Streaming<M>,
    format: Format,
    any_types: &'static Types,
}

/// A stream of contents that catches panics. A panic ends it with a status.
pub(crate) struct WithoutPanics<S>(Option<S>);

impl Streaming<Bytes> {
    /// Decodes each message. `failed` converts decoding errors to statuses.
    pub(crate) fn decoded<M, F>(
        self,
        method: &'static Method,
        format: Format,
        memory: MemoryBudget,
        unknown: UnknownJson,
        any_types: &'static Types,
        failed: F,
    ) -> Streaming<M>
    where
        M: Message,
        F: Fn(&Method, CodecError) -> Status + Send + 'static,
    {
        self.changed(|contents| DecodedStream {
            contents,
            packed: PackedMessages::default(),
            method,
            format,
            memory,
            unknown,
            any_types,
            failed,
        })
    }
}

impl<M: Message> Streaming<M> {
    /// Encodes each message.
    pub(crate) fn encoded(self, format: Format, any_types: &'static Types) -> Streaming<Bytes> {
        self.changed(|messages| EncodedStream { messages, format, any_types })
    }

    /// Encodes each message. A panic of the inner stream ends the new one with a status.
    pub(crate) fn encoded_without_panics(self, format: Format, any_types: &'static Types) -> Streaming<Bytes> {
        self.changed(|messages| WithoutPanics(Some(EncodedStream { messages, format, any_types })))
    }
}

impl<F> DecodedStream<F> {
    fn decode_json<M: Message>(&self, content: &Bytes) -> Result<M, CodecError> {
        let mut reading = DecodeContext { any_types: self.any_types, ..DecodeContext::within(self.memory) };
        self.unknown.decode(self.method, Format::Json, content, &mut reading)
    }
}

impl<M: Message, F: Fn(&Method, CodecError) -> Status + Send> BatchSource<M> for DecodedStream<F> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> PollNext<M> {
        loop {
            match self.packed.next_part() {
                Some(Ok((bytes, part))) => {
                    let message = match self.format {
                        Format::Json => {
                            let content = bytes.slice(part);
                            self.decode_json(&content)
                        }
                        format => format.decode_part(bytes, part, self.memory),
                    };
                    return Poll::Ready(Some(message.map_err(|error| (self.failed)(self.method, error))));
                }
                Some(Err(status)) => {
                    // The rest of the stream cannot be trusted after malformed packed messages.
                    self.contents = Streaming::over();
                    return Poll::Ready(Some(Err(status)));
                }
                // Frees the buffer before waiting: an idle stream holds no old messages.
                None => self.packed = PackedMessages::default(),
            }
            match ready!(self.contents.poll_several(cx)?) {
                Some(ReceivedMessages::Several(packed)) => self.packed = packed,
                Some(ReceivedMessages::One(content)) => {
                    let message = match self.format {
                        Format::Json => self.decode_json(&content),
                        format => format.decode_within(&content, self.memory),
                    };
                    return Poll::Ready(Some(message.map_err(|error| (self.failed)(self.method, error))));
                }
                None => return Poll::Ready(None),
            }
        }
    }
}

impl<M: Message> BatchSource<Bytes> for EncodedStream<M> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> PollNext<Bytes> {
        let next = ready!(self.messages.poll(cx));
        Poll::Ready(next.map(|message| Ok(self.format.encode_with(&message?, self.any_types)?.into_bytes())))
    }

    fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        full: usize,
        prefix: MessagePrefix,
    ) -> PollNext<Option<Bytes>> {
        loop {
            let next = self.messages.poll(cx);
            // By reference: a move of each message shows in the cost of a stream.
            let message = match &next {
                Poll::Ready(Some(Ok(message))) => message,
                _ => return next.map(|next| next.map(|message| message.map(|_| None))),
            };
            let open = prefix.open(out);
            match self.format.encode_to(message, self.any_types, open.out, prefix.copied_len_max()) {
                Ok(None) => open.close(),
                Ok(apart) => return Poll::Ready(Some(Ok(apart))),
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
            if out.len() >= full {
                return Poll::Ready(Some(Ok(None)));
            }
        }
    }
}

impl<S: BatchSource<Bytes>> WithoutPanics<S> {
    fn poll_with<T>(&mut self, poll: impl FnOnce(&mut S) -> PollNext<T>) -> PollNext<T> {
        let Some(source) = &mut self.0 else { return Poll::Ready(None) };
        catch_unwind(AssertUnwindSafe(|| poll(source))).unwrap_or_else(|panic| {
            self.0 = None;
            Poll::Ready(Some(Err(panicked(&*panic))))
        })
    }
}

impl<S: BatchSource<Bytes>> BatchSource<Bytes> for WithoutPanics<S> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> PollNext<Bytes> {
        self.poll_with(|source| source.poll_next(cx))
    }

    fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        full: usize,
        prefix: MessagePrefix,
    ) -> PollNext<Option<Bytes>> {
        self.poll_with(|source| source.poll_into(cx, out, full, prefix))
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Status {
    let message = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    let message = message.unwrap_or("no message");
    error!(message, "a request stream panicked");
    Status::internal(format!("the request stream panicked: {message}"))
}
