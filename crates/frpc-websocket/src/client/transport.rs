//! The frisbee transport over WebSocket.

use frpc::{ConnectError, ConnectSettings, Connected, Transport};
use futures_util::future::BoxFuture;

use super::settings::Client;

impl Transport for Client {
    fn schemes(&self) -> &[&str] {
        &["ws", "wss"]
    }

    fn connect(&self, url: String, settings: ConnectSettings) -> BoxFuture<'static, Result<Connected, ConnectError>> {
        let client = self.clone();
        Box::pin(async move {
            let socket = client.connect(&url, Some("frpc"), &settings).await?;
            let stream = Box::new(socket.into_stream());
            Ok(if url.starts_with("wss:") { Connected::FrisbeeOverTls(stream) } else { Connected::Frisbee(stream) })
        })
    }
}

/// Returns the transport of a channel over WebSocket, with default settings.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use frpc::Channel;
///
/// let channel = Channel::builder().transport(frpc_websocket::transport()).connect("ws://localhost:7300").await?;
/// // let greeter = GreeterClient::new(channel);
/// # let _ = channel;
/// # Ok(())
/// # }
/// ```
pub fn transport() -> Client {
    Client::new()
}

/// Adds [`transport`] to the defaults of the process: see [`frpc::register_transport`].
pub fn register() {
    frpc::register_transport(transport());
}
