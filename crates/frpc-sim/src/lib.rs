//! Simulations of channels to many servers, in virtual time.
//!
//! The servers run services of yours, and the channel is the real one, with its retries, picking and timeouts. Only the
//! network between them is simulated: pipes in memory, with faults set by the test. An hour takes only the time to
//! compute its calls.
//!
//! ```
//! use std::time::Duration;
//!
//! use frpc::{Channel, Server, testing::FaultRates};
//! use frpc_sim::SimNetwork;
//!
//! # fn builder() -> frpc::ServerBuilder { Server::builder() }
//! // Runs three simulations. FRPC_SIM_SEED=7 runs the one with seed 7 alone, FRPC_SIM_SEEDS=10000 more of them.
//! // Simulations run on all processors at the same time, so the closure must be `Sync`.
//! frpc_sim::run(3, async || {
//!     let network = SimNetwork::new();
//!     // With your services: `Server::builder().layer(faults).add_service(OrdersServer::new(Orders))`.
//!     let servers = network.servers(10, |faults| builder().layer(faults).without_listener());
//!     let channel = Channel::builder().transport(network.transport()).connect(network.target()).await.unwrap();
//!     servers[0].set_fault_rates(FaultRates { failed: 0.5, ..FaultRates::default() });
//!     servers[2].set_faults(|network| network.is_partitioned = true);
//!     servers[1].kill();
//!     tokio::time::sleep(Duration::from_secs(60)).await;
//!     servers[1].start();
//!     // Calls over the channel, and assertions about their outcomes.
//! # drop(channel);
//! });
//! ```
//!
//! The seed decides all random choices of the simulation and of the channel, except the order of simultaneous events in
//! tokio, so a few failures need several runs of their seed.
#![forbid(unsafe_code)]

mod faults;
mod link;
mod lock;
mod network;
mod pipe;
mod seeds;

pub use faults::{LinkFaults, NetworkFaults};
pub use link::SimStream;
pub use network::{SimNetwork, SimServer, SimTransport};
pub use seeds::run;
