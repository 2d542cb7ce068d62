use crate::Streaming;

/// What a call sends: a message, or a stream of them.
#[derive(Clone, Debug)]
pub struct Request<T> {
    message: T,
}

/// What a call brings back: a message, or a stream of them.
#[derive(Clone, Debug)]
pub struct Response<T> {
    message: T,
}

macro_rules! envelope {
    ($name:ident) => {
        impl<T> $name<T> {
            /// Wraps a message.
            pub fn new(message: T) -> Self {
                Self { message }
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
                $name { message: change(self.message) }
            }
        }

        impl<T> From<T> for $name<T> {
            fn from(message: T) -> Self {
                Self::new(message)
            }
        }
    };
}

envelope!(Request);
envelope!(Response);

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

/// What client methods take that send a stream: a [`Streaming`], or a [`Request`] with one.
pub trait IntoStreamingRequest {
    /// What the stream is of.
    type Message;

    /// The request.
    fn into_streaming_request(self) -> Request<Streaming<Self::Message>>;
}

impl<T> IntoStreamingRequest for Streaming<T> {
    type Message = T;

    fn into_streaming_request(self) -> Request<Self> {
        Request::new(self)
    }
}

impl<T> IntoStreamingRequest for Request<Streaming<T>> {
    type Message = T;

    fn into_streaming_request(self) -> Self {
        self
    }
}
