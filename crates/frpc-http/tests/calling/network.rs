//! Connections in memory: the client gets one end, and the test decides who serves the other.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use frpc::{Channel, ChannelBuilder};
use frpc_http::Client;
use tokio::{
    io::{DuplexStream, duplex},
    sync::mpsc,
};

/// An address in memory, with a replaceable listener.
#[derive(Clone, Default)]
pub(crate) struct Network {
    listener: Arc<Mutex<Option<mpsc::UnboundedSender<DuplexStream>>>>,
    attempts: Arc<AtomicUsize>,
}

impl Network {
    /// Replaces the current listener.
    pub(crate) fn listen(&self) -> mpsc::UnboundedReceiver<DuplexStream> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.listener.lock().unwrap() = Some(sender);
        receiver
    }

    /// Passes all connections to a server.
    pub(crate) fn serve(&self, server: Arc<frpc::Server>) {
        let mut connections = self.listen();
        tokio::spawn(async move {
            while let Some(connection) = connections.recv().await {
                server.attach(connection);
            }
        });
    }

    /// Refuses all connections.
    pub(crate) fn close(&self) {
        *self.listener.lock().unwrap() = None;
    }

    /// Returns the number of connection attempts.
    pub(crate) fn attempts(&self) -> usize {
        self.attempts.load(Ordering::Relaxed)
    }

    /// Returns a channel that connects here.
    pub(crate) fn channel(&self, client: Client) -> ChannelBuilder {
        let (listener, attempts) = (self.listener.clone(), self.attempts.clone());
        let connect = move || {
            attempts.fetch_add(1, Ordering::Relaxed);
            let (ours, theirs) = duplex(64 * 1024);
            let listener = listener.lock().unwrap();
            let is_sent = listener.as_ref().is_some_and(|listener| listener.send(theirs).is_ok());
            async move { if is_sent { Ok(ours) } else { Err(io::ErrorKind::ConnectionRefused.into()) } }
        };
        Channel::builder().transport(client.connector(connect))
    }
}
