//! Requests and responses, as callers and handlers hold them: a message, or a stream of them, and what goes with it.

use std::time::{Duration, Instant};

use futures_core::Stream;
use futures_util::StreamExt;

use super::{
    extensions::{Extensions, Extras},
    head::Head,
    metadata::Metadata,
    streaming::Streaming,
};
use crate::codec;

/// A request: a message, or a stream of them, and what goes with it.
///
/// A handler also learns from it who calls: [`peer_addr`](Self::peer_addr),
/// [`peer_certificates`](Self::peer_certificates) and the [`connection`](Self::connection) itself.
#[derive(Clone, Debug)]
pub struct Request<T> {
    message: T,
    head: Head,
}

/// A response: a message, or a stream of them, and what goes with it.
#[derive(Clone, Debug)]
pub struct Response<T> {
    message: T,
    extras: Extras,
}

macro_rules! envelope {
    ($name:ident { $beside:ident: $type:ty }) => {
        impl<T> $name<T> {
            /// Wraps a message.
            pub fn new(message: T) -> Self {
                Self { message, $beside: <$type>::default() }
            }

            /// Returns the message.
            pub fn get_ref(&self) -> &T {
                &self.message
            }

            /// Returns the message, to be changed.
            pub fn get_mut(&mut self) -> &mut T {
                &mut self.message
            }

            /// Returns the message alone.
            pub fn into_inner(self) -> T {
                self.message
            }

            /// Returns the same with another message.
            pub fn map<U>(self, change: impl FnOnce(T) -> U) -> $name<U> {
                $name { message: change(self.message), $beside: self.$beside }
            }

            /// Returns the names and values for the other side; see [`Metadata`] for how far they get.
            pub fn metadata(&self) -> &Metadata {
                self.$beside.metadata()
            }

            /// Returns the metadata, to be changed.
            pub fn metadata_mut(&mut self) -> &mut Metadata {
                self.$beside.metadata_mut()
            }

            /// Returns the values for other code on this side.
            pub fn extensions(&self) -> &Extensions {
                self.$beside.extensions()
            }

            /// Returns the extensions, to be changed.
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
envelope!(Response { extras: Extras });

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

    /// Returns what goes with the message.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Ends the call when it takes longer than this, streams included, instead of after the timeout of the channel.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.head.set_timeout(timeout);
    }

    /// Returns how long the call may take, if its caller said so: in a handler, what is left of it. Plain fRPC does not carry
    /// it.
    pub fn timeout(&self) -> Option<Duration> {
        self.head.timeout()
    }

    /// Returns when the caller of a received request gives up, if the wire says so.
    pub fn deadline(&self) -> Option<Instant> {
        self.head.deadline()
    }
}

impl<T> Response<T> {
    pub(crate) fn from_parts(extras: Extras, message: T) -> Self {
        Self { message, extras }
    }

    pub(crate) fn into_parts(self) -> (Extras, T) {
        (self.extras, self.message)
    }

    /// Returns the names and values behind the messages. Those of a stream come with [its end](Streaming::trailers).
    pub fn trailers(&self) -> &Metadata {
        self.extras.trailers()
    }

    /// Returns the trailers, to be changed.
    pub fn trailers_mut(&mut self) -> &mut Metadata {
        self.extras.trailers_mut()
    }
}

/// The argument of client methods: a message, or a [`Request`] with one.
pub trait IntoRequest<T> {
    /// Returns the request.
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

/// The argument of client methods that send a stream: a [`Streaming`], any other stream of messages, or a [`Request`] with
/// one.
pub trait IntoStreamingRequest {
    /// The type of its messages.
    type Message;

    /// Returns the request.
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

/// A type that a [`Streaming`] can be made of.
pub trait IntoStreaming {
    /// The type of its messages.
    type Message;

    /// Returns the stream.
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
