//! Channels of [frpc] configured by an [xDS](https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol) control
//! plane, as in a service mesh.
//!
//! ```no_run
//! use frpc::Channel;
//! use frpc_xds::XdsClient;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // GRPC_XDS_BOOTSTRAP names a file with the address of the control plane.
//! let xds = XdsClient::from_env()?;
//! let channel = Channel::builder().transport(frpc_http::transport()).resolver(xds).connect("xds:///orders").await?;
//! // let orders = OrdersClient::new(channel);
//! # let _ = channel;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod assembly;
mod bootstrap;
mod certificates;
mod client;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod protocol;
mod protos;
mod resolver;
mod resources;
mod routing;
mod settings;
mod stream;

pub use bootstrap::{BOOTSTRAP_LEN_MAX, Bootstrap};
pub use error::XdsError;
pub use resolver::XdsClient;
pub use settings::XdsSettings;
