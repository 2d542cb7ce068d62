//! Calls as POST requests.

use bytes::Bytes;
use frpc::{Body, Call, Caller, Status, client::with_own_timeout, codec::Format};
use frpc_http::Poster;
use futures_util::future::BoxFuture;

use super::answer::{ServerMessage, request};

/// A caller that sends each call as a POST request.
pub(super) struct PostCaller(pub(super) Poster);

impl PostCaller {
    async fn make(&self, call: Call) -> Result<frpc::Answer, Status> {
        if call.kind() != frpc::MethodKind::Unary {
            let why = "JSON-RPC over HTTP has no streams: use jsonrpc+tcp:// or jsonrpc+ws://; the call was not sent";
            return Err(Status::unimplemented(why));
        }
        let Body::One(message) = call.body() else {
            return Err(Status::internal("a unary call needs exactly one request message"));
        };
        let message = request(CALL_ID, call.method(), &message.clone().into_bytes())?;
        let response = self.0.post(&call, "application/json", message.into()).await?;
        let body: &Bytes = response.body();
        let broken = |why: String| Status::internal(format!("the server sent an invalid JSON-RPC answer: {why}"));
        let text = str::from_utf8(body).map_err(|error| broken(error.to_string()))?;
        let answer = ServerMessage::read(text).map_err(|fault| broken(fault.to_string()))?;
        if answer.refusal().is_none() {
            answer.call_id(CALL_ID).map_err(broken)?;
        }
        let deadline = call.time().answer(call.kind());
        let result = answer.outcome().map_err(|status| with_own_timeout(status, deadline))?;
        Ok(frpc::Answer::new(Body::from(body.slice_ref(result.as_bytes()))))
    }
}

/// The id of every call. Calls can share it, because each POST carries one call.
const CALL_ID: u64 = 1;

impl Caller for PostCaller {
    fn format(&self) -> Format {
        Format::Json
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<frpc::Answer, Status>> {
        Box::pin(self.make(call))
    }

    fn is_secure(&self) -> bool {
        self.0.is_secure()
    }
}
