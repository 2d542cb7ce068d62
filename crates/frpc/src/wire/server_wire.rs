//! Wires of a server in addition to frisbee.

use std::{error::Error, future::Future};

use frisbee::{Drain, Protocol, ProtocolMatch, Raw};

use crate::service::endpoint::Endpoint;

/// A wire on the port of a [`Server`](crate::Server), for callers without frisbee.
///
/// It recognizes its connections by their first bytes, and turns received requests into calls of the [`Endpoint`]. The
/// endpoint contains the services of the server with their layers. It finds methods by path, and accepts any message
/// [format](crate::codec::Format). [`ServerBuilder::wire`](crate::ServerBuilder::wire) adds a wire to a server.
///
/// ```
/// use frpc::{Body, Drain, Endpoint, Head, Raw, ProtocolMatch, Server, Wire, codec::Format};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// /// `CALL package.Service/Method`, a new line, and a message in protocol buffers up to the end of the input.
/// struct Lines;
///
/// impl Wire for Lines {
///     fn recognize(&self, first: &[u8], _alpn: Option<&[u8]>) -> ProtocolMatch {
///         ProtocolMatch::by_prefix(first, b"CALL ")
///     }
///
///     async fn serve(&self, mut socket: Raw, endpoint: Endpoint, _drain: Drain) {
///         let mut input = Vec::new();
///         if (&mut socket).take(64 * 1024).read_to_end(&mut input).await.is_err() {
///             return;
///         }
///         let line = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
///         let path = String::from_utf8_lossy(&input[5..line]).into_owned();
///         let message = input.get(line + 1..).unwrap_or_default().to_vec();
///         let answer = match endpoint.find(&path) {
///             Some(method) => endpoint.call(method, Format::Proto, Head::default(), Body::from(message)).await,
///             None => Err(frpc::Status::unimplemented(path)),
///         };
///         let text = match answer.map(frpc::Answer::into_body) {
///             Ok(Body::One(content)) => content.into_bytes(),
///             Ok(_) => "streams are not for lines".into(),
///             Err(status) => status.to_string().into(),
///         };
///         let _ = socket.write_all(&text).await;
///         let _ = socket.shutdown().await;
///     }
/// }
///
/// let server = Server::builder().wire(Lines);
/// # let _ = server;
/// ```
pub trait Wire: Send + Sync + 'static {
    /// Decides by the first bytes of a connection whether it uses this wire; see [`Protocol::recognize`].
    fn recognize(&self, first: &[u8], alpn: Option<&[u8]>) -> ProtocolMatch;

    /// Returns the ALPN names of this wire for TLS handshakes of the server; see [`Protocol::alpn`].
    fn alpn(&self) -> &[&'static [u8]] {
        &[]
    }

    /// Returns the name shown in lists of connections; see [`Protocol::name`].
    fn name(&self) -> &'static str {
        "other"
    }

    /// Prepares this wire for the services of a server, before it serves connections.
    ///
    /// # Errors
    ///
    /// If the wire cannot serve them. The server then does not start.
    fn prepare(&mut self, endpoint: &Endpoint) -> Result<(), Box<dyn Error + Send + Sync>> {
        let _ = endpoint;
        Ok(())
    }

    /// Serves a recognized connection from its first byte; see [`Protocol::serve`].
    fn serve(&self, socket: Raw, endpoint: Endpoint, drain: Drain) -> impl Future<Output = ()> + Send;
}

/// Adapts a wire to the protocols of a frisbee server.
pub(crate) struct WireAdapter<W> {
    pub(crate) wire: W,
    pub(crate) endpoint: Endpoint,
}

impl<W: Wire> Protocol for WireAdapter<W> {
    fn recognize(&self, first: &[u8], alpn: Option<&[u8]>) -> ProtocolMatch {
        self.wire.recognize(first, alpn)
    }

    fn alpn(&self) -> &[&'static [u8]] {
        self.wire.alpn()
    }

    fn name(&self) -> &'static str {
        self.wire.name()
    }

    fn serve(&self, socket: Raw, drain: Drain) -> impl Future<Output = ()> + Send {
        self.wire.serve(socket, self.endpoint.clone(), drain)
    }
}
