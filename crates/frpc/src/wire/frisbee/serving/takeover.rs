//! Takeover of a connection after an answer.

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};

use frisbee::{Connection, Packet, Raw, TrySendError};
use tokio::sync::oneshot;

use crate::call::{request::Response, status::Status};

/// Requests the connection for a handler, as part of its response. The first response sent gets it.
#[derive(Clone, Debug)]
pub(crate) struct TakeoverRequest(Arc<Mutex<Option<oneshot::Sender<Raw>>>>);

impl TakeoverRequest {
    /// Sends the answer, and ends RPC on the connection after it.
    ///
    /// If the answer cannot be sent, the connection is closed and there is nothing to take over.
    pub(crate) fn after(self, reply: Packet, connection: &Connection) {
        match connection.try_send(reply) {
            Err(TrySendError::Full(reply)) => {
                let connection = connection.clone();
                tokio::spawn(async move {
                    let _ = connection.send(reply).await;
                    self.run(&connection);
                });
            }
            Ok(_) | Err(TrySendError::Failed(_)) => self.run(connection),
        }
    }

    /// Ends RPC on the connection now. Packets already queued are still written.
    fn run(&self, connection: &Connection) {
        let Some(taker) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let taking = connection.takeover();
        tokio::spawn(async move {
            if let Ok(raw) = taking.await {
                // The handler may have lost interest. Then the connection closes.
                let _ = taker.send(raw);
            }
        });
    }
}

impl<T> Response<T> {
    /// Makes this the last answer on its connection, and returns a future for the connection as a plain byte stream.
    ///
    /// RPC ends once the answer is sent. For unary calls. After the answer, the caller does the same with
    /// [`Channel::into_raw`](crate::Channel::into_raw), and sends first.
    ///
    /// ```
    /// # use frpc::{Request, Response, Status};
    /// use tokio::io::AsyncWriteExt;
    ///
    /// async fn log_in(request: Request<String>) -> Result<Response<String>, Status> {
    ///     let (response, raw) = Response::new("welcome".to_owned()).then_take_over();
    ///     tokio::spawn(async move {
    ///         if let Ok(mut raw) = raw.await {
    ///             raw.skip_heartbeats();
    ///             tokio::io::copy(&mut raw, &mut tokio::io::sink()).await.ok();
    ///         }
    ///     });
    ///     Ok(response)
    /// }
    /// ```
    pub fn then_take_over(mut self) -> (Self, impl Future<Output = Result<Raw, Status>> + Send + use<T>) {
        let (taker, taken) = oneshot::channel();
        self.extensions_mut().insert(TakeoverRequest(Arc::new(Mutex::new(Some(taker)))));
        let raw = async { taken.await.map_err(|_| Status::unavailable("the connection could not be taken over")) };
        (self, raw)
    }
}
