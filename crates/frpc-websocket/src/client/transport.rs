//! Frisbee over WebSocket, for channels.

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
            Ok(Connected::Frisbee(Box::new(socket.into_stream())))
        })
    }
}

/// Has all channels of the process connect to addresses that begin with `ws://` or `wss://` from now on.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// frpc_websocket::register();
/// let channel = frpc::Channel::connect("ws://localhost:7300").await?;
/// // let greeter = GreeterClient::new(channel);
/// # let _ = channel;
/// # Ok(())
/// # }
/// ```
pub fn register() {
    frpc::register_transport(Client::new());
}
