use std::time::Duration;

use frisbee::{Address, Connection};
use futures_core::Stream;
use futures_util::StreamExt;

use crate::{Channel, Extensions, Metadata, Status, Streaming, call::extensions::Extras, codec};

/// What a call sends: a message, or a stream of them, and what goes with it.
///
/// A handler also learns from it who calls: [`peer_addr`](Self::peer_addr),
/// [`peer_certificates`](Self::peer_certificates) and the [`connection`](Self::connection) itself.
#[derive(Clone, Debug)]
pub struct Request<T> {
    message: T,
    extras: Extras,
    timeout: Option<Duration>,
    connection: Option<Connection>,
}

/// What a call brings back: a message, or a stream of them.
#[derive(Clone, Debug)]
pub struct Response<T> {
    message: T,
    extras: Extras,
}

macro_rules! envelope {
    ($name:ident { $($field:ident: $default:expr),* }) => {
        impl<T> $name<T> {
            /// Wraps a message.
            pub fn new(message: T) -> Self {
                Self { message, extras: Extras::default(), $($field: $default),* }
            }

            /// The message.
            pub fn get_ref(&self) -> &T {
                &self.message
            }

            /// The message, to be changed.
            pub fn get_mut(&mut self) -> &mut T {
                &mut self.message
            }

            /// The message alone.
            pub fn into_inner(self) -> T {
                self.message
            }

            /// The same with another message.
            pub fn map<U>(self, change: impl FnOnce(T) -> U) -> $name<U> {
                $name { message: change(self.message), extras: self.extras, $($field: self.$field),* }
            }

            /// Names and values for the other side; see [`Metadata`] for how far they get.
            pub fn metadata(&self) -> &Metadata {
                self.extras.metadata()
            }

            /// The metadata, to be changed.
            pub fn metadata_mut(&mut self) -> &mut Metadata {
                self.extras.metadata_mut()
            }

            /// Values for other code on this side.
            pub fn extensions(&self) -> &Extensions {
                self.extras.extensions()
            }

            /// The extensions, to be changed.
            pub fn extensions_mut(&mut self) -> &mut Extensions {
                self.extras.extensions_mut()
            }
        }

        impl<T> From<T> for $name<T> {
            fn from(message: T) -> Self {
                Self::new(message)
            }
        }
    };
}

envelope!(Request { timeout: None, connection: None });
envelope!(Response {});

impl<T> Request<T> {
    pub(crate) fn received(message: T, connection: Option<Connection>) -> Self {
        Self { connection, ..Self::new(message) }
    }

    /// Ends the call when it takes longer than this, streams included, instead of after the timeout of the channel.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = Some(timeout);
    }

    /// How long the call may take, if the request says so itself. The wire of today does not carry it.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// The connection that a received request came on, for packets and streams of the handler's own. `None` for a
    /// request that was not received, or came from within the process.
    pub fn connection(&self) -> Option<&Connection> {
        self.connection.as_ref()
    }

    /// The address that a received request came from.
    pub fn peer_addr(&self) -> Option<&Address> {
        self.connection.as_ref().map(Connection::peer_addr)
    }

    /// The certificate chain that the peer proved to own, its own certificate first.
    #[cfg(feature = "tls")]
    pub fn peer_certificates(
        &self,
    ) -> Option<std::sync::Arc<Vec<frisbee::rustls::pki_types::CertificateDer<'static>>>> {
        self.connection.as_ref()?.peer_certificates()
    }

    /// A channel to the services that the peer offers on the same connection.
    pub fn channel(&self) -> Result<Channel, Status> {
        match &self.connection {
            Some(connection) => Channel::over(connection),
            None => Err(Status::failed_precondition("the request came on no connection")),
        }
    }
}

/// What client methods take: a message, or a [`Request`] with one.
pub trait IntoRequest<T> {
    /// The request.
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

/// What client methods take that send a stream: a [`Streaming`], any other stream of messages, or a [`Request`] with one.
pub trait IntoStreamingRequest {
    /// What the stream is of.
    type Message;

    /// The request.
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

/// What can be made a [`Streaming`] of.
pub trait IntoStreaming {
    /// What the stream is of.
    type Message;

    /// The stream.
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
