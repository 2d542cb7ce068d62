//! Targets of channels: `xds:///SERVICE`.

use std::{io, sync::Arc};

use frpc::fleet::{Endpoints, Refresh, Resolve, ResolverFactory};
use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::sync::watch;

use crate::{
    assembly::{Assembly, Incomplete},
    bootstrap::Bootstrap,
    client::ClientState,
    error::XdsError,
    settings::XdsSettings,
    stream as stream_to_plane,
};

/// A client of an xDS control plane, shared by any number of channels. Cheap to clone.
///
/// It is the [`ResolverFactory`] of these targets:
///
/// | target | addresses of endpoints |
/// |---|---|
/// | `xds:///orders` | gRPC: `grpc://`, or `grpcs://` if the cluster has TLS |
/// | `xds+tcp:///orders` | frisbee, with TLS if the cluster has it |
///
/// All channels share one stream to the control plane. It is opened with the first channel, on the runtime of this channel,
/// and closed after the last clone and the last channel are gone. If this runtime ends, another channel opens it again. While
/// the control plane is gone, channels use its last resources.
#[derive(Clone, Debug)]
pub struct XdsClient(Arc<ClientState>);

impl XdsClient {
    /// Creates a client with the bootstrap in the [environment](Bootstrap::from_env) and default settings.
    ///
    /// # Errors
    ///
    /// There is no bootstrap, or it is invalid.
    pub fn from_env() -> Result<Self, XdsError> {
        Ok(Self::new(Bootstrap::from_env()?, XdsSettings::default()))
    }

    /// Creates a client.
    pub fn new(bootstrap: Bootstrap, settings: XdsSettings) -> Self {
        Self(Arc::new(ClientState::new(bootstrap, settings)))
    }
}

impl ResolverFactory for XdsClient {
    fn schemes(&self) -> &[&str] {
        &["xds", "xds+grpc", "xds+tcp"]
    }

    fn resolver(&self, target: &str) -> io::Result<Arc<dyn Resolve>> {
        let parts = target.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.strip_prefix('/')?)));
        let (scheme, service) = match parts.filter(|(_, service)| !service.is_empty()) {
            Some(("xds" | "xds+grpc", service)) => ("grpc", service),
            Some(("xds+tcp", service)) => ("tcp", service),
            _ => return Err(XdsError::Target(target.to_owned()).into()),
        };
        let (client, service, scheme) = (self.0.clone(), service.to_owned(), scheme.to_owned());
        Ok(Arc::new(XdsResolver { client, service, scheme }))
    }
}

/// Finds the endpoints of one service.
#[derive(Debug)]
struct XdsResolver {
    client: Arc<ClientState>,
    service: String,
    scheme: String,
}

/// The state of a stream of endpoints.
struct Following {
    client: Arc<ClientState>,
    assembly: Assembly,
    changes: watch::Receiver<u64>,
    /// The last error. It is reported once.
    error: Option<String>,
}

impl Resolve for XdsResolver {
    fn resolve(&self, _: Refresh) -> BoxStream<'static, io::Result<Endpoints>> {
        // The control plane sends changes unasked, so there is nothing to ask for after a failure.
        let assembly = Assembly::new(self.client.clone(), self.service.clone(), self.scheme.clone());
        let (client, changes) = (self.client.clone(), self.client.changes());
        let following = Following { client, assembly, changes, error: None };
        stream::unfold(following, async |mut following| Some((following.next().await?, following))).boxed()
    }
}

impl Following {
    async fn next(&mut self) -> Option<io::Result<Endpoints>> {
        loop {
            // Before the look, so that a later change is noticed.
            self.changes.borrow_and_update();
            stream_to_plane::ensure(&self.client);
            match self.assembly.update() {
                Ok(None) => self.error = None,
                Ok(Some(endpoints)) => {
                    self.error = None;
                    return Some(Ok(endpoints));
                }
                Err(Incomplete::Waiting) => {}
                Err(Incomplete::Missing(why) | Incomplete::Failed(why)) => {
                    if self.error.as_ref() != Some(&why) {
                        self.error = Some(why.clone());
                        return Some(Err(io::Error::new(io::ErrorKind::NotFound, why)));
                    }
                }
            }
            self.changes.changed().await.ok()?;
        }
    }
}
