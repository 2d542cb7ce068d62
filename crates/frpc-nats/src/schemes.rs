//! The transport and the resolvers of channels.

use std::{io, sync::Arc};

use frpc::{
    ConnectError, ConnectSettings, Connected, Transport,
    client::connect,
    codec::Format,
    fleet::{Resolve, ResolverFactory},
};
use futures_util::future::BoxFuture;

use crate::{
    client::{LinkSettings, NatsCaller},
    cluster::NatsCluster,
    names::NatsTarget,
    resolve::KvResolver,
};

/// The addresses `nats://CLUSTER/SERVICE` and `nats+direct://CLUSTER/SERVICE` for channels.
///
/// The first makes calls through NATS. The second finds the servers of an [`Announcement`](crate::Announcement) and
/// calls them directly, over any other wire.
///
/// The cluster is the host and port of one of its servers, or a name from [`cluster`](Self::cluster). With `?format=json`,
/// messages are JSON, for services that do not know Protobuf.
///
/// ```no_run
/// # async fn example() -> Result<(), frpc::ConnectError> {
/// use async_nats::ConnectOptions;
/// use frpc::Channel;
/// use frpc_nats::{NatsCluster, NatsTransport};
///
/// let production = NatsCluster::new("tls://one:4222,tls://two:4222")
///     .options(|| ConnectOptions::new().add_root_certificates("/etc/ca.pem".into()));
/// let nats = NatsTransport::new().cluster("production", production);
/// let channel = Channel::builder()
///     .transport(nats.clone())
///     .resolver(nats)
///     .connect("nats+direct://production/orders")
///     .await?;
/// # let _ = channel;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct NatsTransport {
    clusters: Vec<(String, NatsCluster)>,
    bucket: Option<String>,
}

impl NatsTransport {
    /// Creates a transport without named clusters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a cluster under a name.
    #[must_use]
    pub fn cluster(mut self, name: impl Into<String>, cluster: NatsCluster) -> Self {
        self.clusters.push((name.into(), cluster));
        self
    }

    /// Sets the key-value bucket with the announcements. Default `frpc`.
    #[must_use]
    pub fn bucket(self, bucket: impl Into<String>) -> Self {
        Self { bucket: Some(bucket.into()), ..self }
    }

    fn find(&self, name: &str) -> NatsCluster {
        let found = self.clusters.iter().rev().find(|(known, _)| known == name);
        found.map_or_else(|| NatsCluster::new(format!("nats://{name}")), |(_, cluster)| cluster.clone())
    }
}

/// Returns the transport without named clusters, for [`ChannelBuilder::transport`](frpc::ChannelBuilder::transport) and
/// [`ChannelBuilder::resolver`](frpc::ChannelBuilder::resolver).
pub fn transport() -> NatsTransport {
    NatsTransport::new()
}

/// Adds [`transport`] to the defaults of the process: see [`frpc::register_transport`] and
/// [`frpc::fleet::register_resolver`].
pub fn register() {
    frpc::register_transport(transport());
    frpc::fleet::register_resolver(transport());
}

impl Transport for NatsTransport {
    fn schemes(&self) -> &[&str] {
        &["nats"]
    }

    fn connect(&self, url: String, settings: ConnectSettings) -> BoxFuture<'static, Result<Connected, ConnectError>> {
        let target = NatsTarget::parse(&url).map(|target| LinkSettings {
            cluster: self.find(target.cluster),
            service: target.service.to_owned(),
            format: if target.is_json { Format::Json } else { Format::Proto },
            message_len_max: usize::try_from(settings.message_len_max).unwrap_or(usize::MAX),
        });
        Box::pin(async move {
            let link = target.map_err(ConnectError::Address)?;
            let pause = settings.retry.pause;
            let caller = connect(&url, &settings, || NatsCaller::connect(link.clone(), pause)).await?;
            Ok(Connected::Calls(Arc::new(caller)))
        })
    }
}

impl ResolverFactory for NatsTransport {
    fn schemes(&self) -> &[&str] {
        &["nats+direct"]
    }

    fn resolver(&self, target: &str) -> io::Result<Arc<dyn Resolve>> {
        let NatsTarget { cluster, service, .. } = NatsTarget::parse(target)?;
        let bucket = self.bucket.clone().unwrap_or_else(|| crate::announce::BUCKET.to_owned());
        Ok(Arc::new(KvResolver::new(self.find(cluster), bucket, service.to_owned())))
    }
}
