//! Calls with encoded messages, for programs without generated types.

use tokio::time::Instant;

use super::{Channel, ChannelTransport};
use crate::{
    call::{
        deadline::Deadline,
        exchange::{Answer, Call},
        status::Status,
    },
    codec::Format,
};

impl Channel {
    /// Returns the format for the messages of a [`call`](Self::call), as required by the transport.
    ///
    /// Over frisbee it is [`Format::Proto`], or [`Format::Polyglot`] for plain peers.
    ///
    /// # Errors
    ///
    /// The connection was lost, and the channel cannot reconnect.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn call_format(&self) -> Result<Format, Status> {
        let deadline = Deadline::after(self.timeout);
        match &self.route {
            ChannelTransport::One(server) => server.bytes_format(deadline).await,
            ChannelTransport::Many(fleet) => fleet.bytes_format(deadline).await,
        }
    }

    /// Makes a call of any kind with encoded messages, for programs such as proxies and tools that discover methods at
    /// run time.
    ///
    /// Other programs use generated clients. All frisbee peers except plain ones find methods by path: the operation of
    /// the method is ignored, and a method without [types](crate::Method::types) is not compared with the peer's. These
    /// peers accept the format returned by [`call_format`](Self::call_format), and [`Format::Json`] if their messages
    /// support it.
    ///
    /// A plain peer accepts only polyglot, at the operation of the method. [`encode_with`](crate::codec::encode_with)
    /// and [`decode_with`](crate::codec::decode_with) convert messages without a Rust type.
    ///
    /// ```
    /// # use frpc::generated::{Answer, Method, Service, Status};
    /// # struct Echo;
    /// # impl Service for Echo {
    /// #     const NAME: &'static str = "echo.Echo";
    /// #     const METHODS: &'static [Method] = &[Method::unary("echo.Echo", "Say", 10)];
    /// #     async fn call(&self, _: usize, call: Call) -> Result<Answer, Status> {
    /// #         Ok(Answer::new(call.into_parts().1))
    /// #     }
    /// # }
    /// use frpc::{Body, Call, Channel, Head};
    ///
    /// static SAY: frpc::Method = frpc::Method::unary("echo.Echo", "Say", 10);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let channel = Channel::in_process(Echo);
    /// let format = channel.call_format().await?;
    /// let call = Call::new(&SAY, format, Head::default(), Body::from(&b"bytes of a message"[..]));
    /// let Body::One(message) = channel.call(call).await?.into_body() else { panic!("it is a unary call") };
    /// assert_eq!(message.into_bytes(), "bytes of a message");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Code::Internal`](crate::Code::Internal) if the body does not match the kind of the method: one message or a
    /// stream.
    ///
    /// # Cancel safety
    ///
    /// As for [every call](Self#cancel-safety).
    pub async fn call(&self, mut call: Call) -> Result<Answer, Status> {
        self.inherit(call.head_mut());
        let start = Instant::now();
        let mut measure = self.measure(call.method(), start);
        match self.call_since(measure.with_requests(call), start).await {
            Ok(mut answer) => {
                measure.answered(&mut answer, None);
                Ok(answer)
            }
            Err(status) => Err(measure.failed(status)),
        }
    }
}
