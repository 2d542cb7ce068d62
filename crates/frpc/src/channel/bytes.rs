//! Calls with messages in bytes, for programs that learn of methods while they run.

use tokio::time::Instant;

use super::{Channel, Route};
use crate::{
    call::{
        deadline::Deadline,
        exchange::{Answer, Call},
        status::Status,
    },
    codec::Format,
};

impl Channel {
    /// Returns the format that the messages of a [`call`](Self::call) have to be in: that of the transport. Over frisbee it is
    /// [`Format::Proto`], or [`Format::Polyglot`] if the peer speaks plain fRPC and nothing else.
    ///
    /// # Errors
    ///
    /// If the connection was lost, and there can be no other.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing has happened.
    pub async fn call_format(&self) -> Result<Format, Status> {
        match &self.route {
            Route::Frisbee(connection) => connection.bytes_format(Deadline::after(self.timeout)).await,
            Route::Other(caller) => Ok(caller.format()),
        }
    }

    /// Makes a call of any kind with messages in bytes, for programs that learn of methods while they run, such as proxies and
    /// tools. All others use generated clients.
    ///
    /// Where peers of frisbee find methods by their paths, as all but plain ones do, the operation of the method is of no
    /// importance, and a method without [types](crate::Method::types) is not compared with that of the peer. Besides the
    /// format that [`call_format`](Self::call_format) returns, such a peer takes [`Format::Json`] if its messages have it. A plain
    /// peer takes polyglot and nothing else, at the method's operation; [`encode_with`](crate::codec::encode_with) and
    /// [`decode_with`](crate::codec::decode_with) are for messages without a type.
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
    /// [`Code::Internal`](crate::Code::Internal) if the body is not that of a method of this kind: one message, or a stream.
    ///
    /// # Cancel safety
    ///
    /// As for [every call](Self#cancel-safety).
    pub async fn call(&self, mut call: Call) -> Result<Answer, Status> {
        self.inherit(call.head_mut());
        self.call_since(call, Instant::now()).await
    }
}
