//! Channels of [`frpc`] to the pods of a Kubernetes Service: client-side balancing without a proxy.
//!
//! A target is `kubernetes:///service.namespace:port`. The channel connects to each pod, and follows the EndpointSlices
//! of the Service through a watch of the API server.
//!
//! ```no_run
//! use frpc::Channel;
//! use frpc_kubernetes::{ClusterConfig, KubernetesResolvers};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let kubernetes = KubernetesResolvers::new(ClusterConfig::from_env()?);
//! let channel = Channel::builder()
//!     .resolver(kubernetes)
//!     .transport(frpc_http::transport())
//!     .connect("kubernetes+grpc:///orders.shop:grpc")
//!     .await?;
//! // let orders = OrdersClient::new(channel);
//! # let _ = channel;
//! # Ok(())
//! # }
//! ```
//!
//! # Targets
//!
//! | text | servers |
//! |---|---|
//! | `kubernetes:///orders.shop:grpc` | the pods of the Service `orders` in the namespace `shop`, at the port with this name, over frisbee |
//! | `kubernetes:///orders.shop:7300` | the same at this port of the pods: the `targetPort` of the Service, which may differ from its `port` |
//! | `kubernetes:///orders.shop` | the same at the only port |
//! | `kubernetes:///orders:grpc` | the Service of this name in the namespace of the [`ClusterConfig`] |
//! | `kubernetes+grpc:///orders.shop:grpc` | the same for addresses of another scheme than `tcp` |
//!
//! `orders.shop.svc` and `orders.shop.svc.cluster.local` are the same as `orders.shop`.
//!
//! # Which endpoints
//!
//! - Ready endpoints. If none is ready, endpoints that terminate and still serve, as kube-proxy does.
//! - One address for each pod of a dual-stack Service: see [`ResolverSettings::prefer_ipv6`].
//! - Their zone becomes the [zone](frpc::fleet::Endpoint::zone) of the endpoint. With [`ResolverSettings::zone`], hints of
//!   the topology apply.
//!
//! # Permissions
//!
//! The account needs the verbs `list` and `watch` for `endpointslices` in the group `discovery.k8s.io`.
#![forbid(unsafe_code)]

mod api;
mod config;
mod events;
#[cfg(feature = "kubeconfig")]
mod kubeconfig;
mod resolver;
mod select;
mod settings;
mod slices;
mod target;
mod watch;

pub use config::ClusterConfig;
pub use resolver::{KubernetesResolver, KubernetesResolvers};
pub use settings::ResolverSettings;
