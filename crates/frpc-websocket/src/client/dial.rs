//! Establishing connections.

use std::io;

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::BytesMut;
use frpc::{ByteStream, ConnectError, ConnectSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{answer, settings::Client, target::WebSocketUrl};
use crate::{decoder::Role, handshake::accept_key, mask::MaskGenerator, socket::WebSocket};

impl Client {
    /// Connects a WebSocket, with a subprotocol or without one, for use by a [`Transport`](frpc::Transport).
    ///
    /// ```no_run
    /// use frpc::ConnectSettings;
    /// use frpc_websocket::{Client, MessageKind};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut socket = Client::new().connect("ws://localhost:8080/chat", None, &ConnectSettings::default()).await?;
    /// socket.send(MessageKind::Text, b"hello").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the URL is invalid, no server is reachable, or the server refuses the handshake.
    pub async fn connect(
        &self,
        url: &str,
        subprotocol: Option<&str>,
        settings: &ConnectSettings,
    ) -> Result<WebSocket, ConnectError> {
        let target = WebSocketUrl::parse(url).map_err(ConnectError::Address)?;
        frpc::client::connect(url, settings, || attempt(self, &target, subprotocol, settings)).await
    }
}

async fn attempt(
    client: &Client,
    target: &WebSocketUrl,
    subprotocol: Option<&str>,
    settings: &ConnectSettings,
) -> io::Result<WebSocket> {
    let io = client.connector.connect((&*target.host, target.port), &settings.sockets).await?;
    let io = if target.is_secure { secure(io, target, settings).await? } else { io };
    upgrade(io, client, target, &settings.authority(target.authority.as_str()), subprotocol).await
}

#[cfg(feature = "tls")]
async fn secure(
    io: Box<dyn ByteStream>,
    target: &WebSocketUrl,
    settings: &ConnectSettings,
) -> io::Result<Box<dyn ByteStream>> {
    super::tls::handshake(io, target, settings).await
}

#[cfg(not(feature = "tls"))]
async fn secure(_: Box<dyn ByteStream>, _: &WebSocketUrl, _: &ConnectSettings) -> io::Result<Box<dyn ByteStream>> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "wss:// needs TLS: enable the feature `tls` of frisbee-rpc-websocket",
    ))
}

/// Performs the handshake on a stream.
async fn upgrade(
    mut io: Box<dyn ByteStream>,
    client: &Client,
    target: &WebSocketUrl,
    host: &str,
    subprotocol: Option<&str>,
) -> io::Result<WebSocket> {
    let mut masks = MaskGenerator::new();
    let key = BASE64_STANDARD.encode([masks.next(), masks.next(), masks.next(), masks.next()].concat());
    let mut request = format!(
        "GET {} HTTP/1.1\r\nhost: {}\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: {key}\r\n",
        target.path, host,
    )
    .into_bytes();
    if let Some(subprotocol) = subprotocol {
        request.extend_from_slice(format!("sec-websocket-protocol: {subprotocol}\r\n").as_bytes());
    }
    for (name, value) in &client.headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            request.extend_from_slice(part);
        }
    }
    request.extend_from_slice(b"\r\n");
    io.write_all(&request).await?;
    io.flush().await?;
    let accept = accept_key(key.as_bytes());
    let mut read = BytesMut::with_capacity(READ_LEN);
    loop {
        if io.read_buf(&mut read).await? == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the server closed the connection before it answered the handshake",
            ));
        }
        if let Some(len) = answer::read(&read, &accept, subprotocol)? {
            return Ok(WebSocket::new(io, Role::Client).with_unread(&read[len..]).with_subprotocol(subprotocol));
        }
    }
}

/// The initial capacity for the response and the first frames after it.
const READ_LEN: usize = 4 * 1024;
