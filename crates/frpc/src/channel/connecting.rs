//! Connecting to one server, with the settings of a channel.

use std::{io, sync::Arc, time::Duration};

use frisbee::{Address, Router};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time,
};

#[cfg(feature = "tls")]
use crate::client::transport::ConnectTls;
use crate::{
    client::{
        caller::Caller,
        transport::{ConnectSettings, Connected, Transport, transport_for},
    },
    error::ConnectError,
    fleet::EndpointNames,
    service::set::ServiceSet,
    wire::frisbee::{
        calling::connection::ClientConnection,
        dialer::{AnswerRouter, ConnectionFactory},
    },
};

/// Connects to servers.
pub(super) struct ServerDialer<S, R> {
    pub(super) factory: ConnectionFactory<S, R>,
    pub(super) settings: ConnectSettings,
    pub(super) transports: Vec<Arc<dyn Transport>>,
}

/// A connection to one server.
pub(super) enum Dialed {
    Frisbee(ClientConnection),
    Calls(Arc<dyn Caller>),
}

impl<S: ServiceSet, R: Router> ServerDialer<S, R> {
    /// Connects to an address, directly or through the transport for its scheme.
    pub(super) async fn dial(&self, address: &Address, names: EndpointNames) -> Result<Dialed, ConnectError> {
        let (client, calls) = self.factory.client();
        let (stream, over_tls) = match address {
            Address::Url(url) => match self.connect_transport(url, names).await? {
                // The transport has already applied TLS where the URL asks for it.
                Connected::Frisbee(stream) => (stream, false),
                Connected::FrisbeeOverTls(stream) => (stream, true),
                Connected::Calls(caller) => {
                    self.check_unoffered(url)?;
                    return Ok(Dialed::Calls(caller));
                }
            },
            address => {
                let connection = self.secured(client, names).connect(address).await?;
                return Ok(Dialed::Frisbee(self.factory.serve(connection, calls)));
            }
        };
        let connection = client.attach_to(stream, address.clone()).await?;
        let connection = self.factory.serve(connection, calls).over_tls(over_tls);
        recognize(&connection).await;
        Ok(Dialed::Frisbee(connection))
    }

    /// Makes a connection over a custom stream.
    pub(super) async fn attach(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<ClientConnection, ConnectError> {
        let (client, calls) = self.factory.client();
        let client = self.secured(client, EndpointNames::default());
        let connection = self.factory.serve(client.attach(stream).await?, calls);
        recognize(&connection).await;
        Ok(connection)
    }

    async fn connect_transport(&self, url: &str, names: EndpointNames) -> Result<Connected, ConnectError> {
        let transport = transport_for(url, &self.transports)?;
        transport.connect(url.to_owned(), self.settings_for(names)).await
    }

    fn settings_for(&self, names: EndpointNames) -> ConnectSettings {
        let mut settings = self.settings.clone();
        #[cfg(feature = "tls")]
        if let Some(config) = names.tls {
            let name = settings.tls.take().and_then(|tls| tls.name);
            settings.tls = Some(ConnectTls { config, name });
        }
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut settings.tls {
            tls.name = names.own.as_deref().map(Into::into).or(tls.name.take());
        }
        settings.host = names.found;
        settings
    }

    /// Refuses offered services on a transport that only makes calls.
    fn check_unoffered(&self, url: &str) -> Result<(), ConnectError> {
        if self.factory.services.table().methods().next().is_none() {
            return Ok(());
        }
        let why =
            format!("{url}: services offered to the server need frisbee, because no other transport can call them");
        Err(ConnectError::Address(io::Error::new(io::ErrorKind::Unsupported, why)))
    }

    /// Enables TLS in frisbee, if configured.
    #[cfg(feature = "tls")]
    fn secured(
        &self,
        client: frisbee::Client<AnswerRouter<S, R>>,
        names: EndpointNames,
    ) -> frisbee::Client<AnswerRouter<S, R>> {
        let of_endpoint = names.tls.map(|config| ConnectTls { config, name: None });
        let Some(tls) = of_endpoint.or_else(|| self.settings.tls.clone()) else { return client };
        let name = names.own.as_deref().map(Into::into).or(tls.name);
        match name.or_else(|| names.found.as_deref().map(Into::into)) {
            None => client.tls(tls.config),
            Some(name) => client.tls_with_name(tls.config, name),
        }
    }

    #[cfg(not(feature = "tls"))]
    fn secured(
        &self,
        client: frisbee::Client<AnswerRouter<S, R>>,
        _: EndpointNames,
    ) -> frisbee::Client<AnswerRouter<S, R>> {
        client
    }
}

/// Waits until the peer is recognized, as `connect` does, so the first call knows the methods of the peer and their
/// numbers. A silent peer counts as a slow plain peer.
async fn recognize(connection: &ClientConnection) {
    let _ = time::timeout(SILENCE_BELIEVED, connection.connection.recognized()).await;
}

/// The time limit for a peer on a custom stream to identify itself.
const SILENCE_BELIEVED: Duration = Duration::from_millis(500);
