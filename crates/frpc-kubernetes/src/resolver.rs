//! The resolver of a target, and the one for all targets of a process.

use std::{fmt, io, sync::Arc};

use frpc::fleet::{Endpoints, Refresh, Resolve, ResolverFactory};
use futures_util::stream::{self, BoxStream, StreamExt};

use crate::{
    api::SliceApi,
    config::ClusterConfig,
    select::EndpointRules,
    settings::ResolverSettings,
    target::{SCHEMES, ServiceTarget},
    watch::SliceWatcher,
};

/// Finds the pods of one Service.
///
/// ```no_run
/// use frpc::{Channel, Target};
/// use frpc_kubernetes::{ClusterConfig, KubernetesResolver, ResolverSettings};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let settings = ResolverSettings { zone: Some("eu-west-1a".into()), ..ResolverSettings::default() };
/// let orders = KubernetesResolver::new("kubernetes:///orders.shop:rpc", &ClusterConfig::from_env()?, &settings)?;
/// let channel = Channel::connect(Target::resolved_by(orders)).await?;
/// # let _ = channel;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct KubernetesResolver {
    api: SliceApi,
    rules: EndpointRules,
    settings: ResolverSettings,
}

impl KubernetesResolver {
    /// Creates a resolver. The [crate](crate) describes the targets.
    ///
    /// # Errors
    ///
    /// The target is not valid.
    pub fn new(target: &str, config: &ClusterConfig, settings: &ResolverSettings) -> io::Result<Self> {
        let target = ServiceTarget::parse(target)?;
        let namespace = target.namespace.as_deref().unwrap_or(&config.namespace);
        let api = SliceApi::new(config.clone(), namespace, &target.service, settings);
        let rules = EndpointRules::new(target.clone(), namespace, settings);
        Ok(Self { api, rules, settings: settings.clone() })
    }
}

impl Resolve for KubernetesResolver {
    fn resolve(&self, refresh: Refresh) -> BoxStream<'static, io::Result<Endpoints>> {
        let watcher = SliceWatcher::new(self.api.clone(), self.rules.clone(), &self.settings, refresh);
        stream::unfold(watcher, async |mut watcher| Some((watcher.next().await, watcher))).boxed()
    }
}

impl fmt::Debug for KubernetesResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubernetesResolver").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// Adds targets with the scheme `kubernetes` to channels.
///
/// Pass it to [`ChannelBuilder::resolver`](frpc::ChannelBuilder::resolver), or once to
/// [`register_resolver`](frpc::fleet::register_resolver).
#[derive(Clone, Debug)]
pub struct KubernetesResolvers {
    config: ClusterConfig,
    settings: ResolverSettings,
}

impl KubernetesResolvers {
    /// Uses this cluster with default settings.
    pub fn new(config: ClusterConfig) -> Self {
        Self { config, settings: ResolverSettings::default() }
    }

    /// Replaces all settings.
    pub fn settings(self, settings: ResolverSettings) -> Self {
        Self { settings, ..self }
    }
}

impl ResolverFactory for KubernetesResolvers {
    fn schemes(&self) -> &[&str] {
        &SCHEMES
    }

    fn resolver(&self, target: &str) -> io::Result<Arc<dyn Resolve>> {
        Ok(Arc::new(KubernetesResolver::new(target, &self.config, &self.settings)?))
    }
}
