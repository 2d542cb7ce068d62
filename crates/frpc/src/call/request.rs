//! Requests and responses of callers and handlers: a message or stream, with metadata and extensions.

use std::time::Duration;

use frisbee::clock::Instant;
use futures_core::Stream;
use futures_util::StreamExt;

use super::{
    extensions::{Extensions, HeadExtras},
    head::Head,
    metadata::Metadata,
    status::Status,
    streaming::Streaming,
};
use crate::codec;

/// A request: a message or a stream of messages, with the head of the call.
///
/// Handlers can also identify the caller: see [`peer_addr`](Self::peer_addr),
/// [`peer_certificates`](Self::peer_certificates) and [`connection`](Self::connection).
#[derive(Clone, Debug)]
pub struct Request<T> {
    message: T,
    head: Head,
}

/// A response: a message or a stream of messages, with metadata, trailers and extensions.
#[derive(Clone, Debug)]
pub struct Response<T> {
    message: T,
    extras: HeadExtras,
}

macro_rules! envelope {
    ($name:ident { $beside:ident: $type:ty }) => {
        impl<T> $name<T> {
            /// Wraps a message.
            pub fn new(message: T) -> Self {
                Self { message, $beside: <$type>::default() }
            }

            /// Returns a reference to the message.
            pub fn get_ref(&self) -> &T {
                &self.message
            }

            /// Returns a mutable reference to the message.
            pub fn get_mut(&mut self) -> &mut T {
                &mut self.message
            }

            /// Returns the message and drops everything else.
            pub fn into_inner(self) -> T {
                self.message
            }

            /// Converts the message and keeps everything else.
            pub fn map<U>(self, change: impl FnOnce(T) -> U) -> $name<U> {
                $name { message: change(self.message), $beside: self.$beside }
            }

            pub(crate) fn try_map<U>(self, change: impl FnOnce(T) -> Result<U, Status>) -> Result<$name<U>, Status> {
                Ok($name { message: change(self.message)?, $beside: self.$beside })
            }

            /// Returns the metadata for the other side. Not every wire carries it; see [`Metadata`].
            pub fn metadata(&self) -> &Metadata {
                self.$beside.metadata()
            }

            /// Returns a mutable reference to the metadata.
            pub fn metadata_mut(&mut self) -> &mut Metadata {
                self.$beside.metadata_mut()
            }

            /// Returns the values attached for other code on this side.
            pub fn extensions(&self) -> &Extensions {
                self.$beside.extensions()
            }

            /// Returns a mutable reference to the extensions.
            pub fn extensions_mut(&mut self) -> &mut Extensions {
                self.$beside.extensions_mut()
            }
        }

        impl<T> From<T> for $name<T> {
            fn from(message: T) -> Self {
                Self::new(message)
            }
        }
    };
}

envelope!(Request { head: Head });
envelope!(Response { extras: HeadExtras });

impl<T> Request<T> {
    pub(crate) fn from_parts(head: Head, message: T) -> Self {
        Self { message, head }
    }

    pub(crate) fn into_parts(self) -> (Head, T) {
        (self.head, self.message)
    }

    pub(crate) fn head_mut(&mut self) -> &mut Head {
        &mut self.head
    }

    /// Returns the head: metadata, timeout and extensions.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Limits the duration of the whole call, streams included. Replaces the timeout of the channel.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.head.set_timeout(timeout);
    }

    /// Returns the timeout set by the caller, or the remaining time in a handler. Plain fRPC does not carry timeouts.
    pub fn timeout(&self) -> Option<Duration> {
        self.head.timeout()
    }

    /// Returns the deadline of a received request, if the wire carries one.
    pub fn deadline(&self) -> Option<Instant> {
        self.head.deadline()
    }
}

impl<T> Response<T> {
    pub(crate) fn from_parts(extras: HeadExtras, message: T) -> Self {
        Self { message, extras }
    }

    pub(crate) fn into_parts(self) -> (HeadExtras, T) {
        (self.extras, self.message)
    }

    /// Returns the metadata sent after the messages. Trailers of a stream arrive with [its end](Streaming::trailers).
    pub fn trailers(&self) -> &Metadata {
        self.extras.trailers()
    }

    /// Returns a mutable reference to the trailers.
    pub fn trailers_mut(&mut self) -> &mut Metadata {
        self.extras.trailers_mut()
    }
}

/// An argument of client methods: a message, or a [`Request`] with one.
pub trait IntoRequest<T> {
    /// Converts the argument to a request.
    fn into_request(self) -> Request<T>;
}

impl<T> IntoRequest<T> for T {
    fn into_request(self) -> Request<T> {
        Request::new(self)
    }
}

impl<T> IntoRequest<T> for Request<T> {
    fn into_request(self) -> Request<T> {
        self
    }
}

/// An argument of client methods that send a stream: a [`Streaming`], another stream of messages, or a [`Request`] with
/// one of these.
pub trait IntoStreamingRequest {
    /// The message type.
    type Message;

    /// Converts the argument to a request.
    fn into_streaming_request(self) -> Request<Streaming<Self::Message>>;
}

impl<T: IntoStreaming> IntoStreamingRequest for T {
    type Message = T::Message;

    fn into_streaming_request(self) -> Request<Streaming<T::Message>> {
        Request::new(self.into_streaming())
    }
}

impl<T: IntoStreaming> IntoStreamingRequest for Request<T> {
    type Message = T::Message;

    fn into_streaming_request(self) -> Request<Streaming<T::Message>> {
        self.map(T::into_streaming)
    }
}

/// A type that can be converted to a [`Streaming`].
pub trait IntoStreaming {
    /// The message type.
    type Message;

    /// Converts the value to a stream.
    fn into_streaming(self) -> Streaming<Self::Message>;
}

impl<T> IntoStreaming for Streaming<T> {
    type Message = T;

    fn into_streaming(self) -> Self {
        self
    }
}

impl<S: Stream<Item: codec::Message> + Send + 'static> IntoStreaming for S {
    type Message = S::Item;

    fn into_streaming(self) -> Streaming<S::Item> {
        Streaming::new(self.map(Ok))
    }
}
