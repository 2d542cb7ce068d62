//! Code shared by several examples: certificates, the proxies to databases, the server of the browser page, and the
//! services of the load tools.

pub mod browser;
pub mod certificates;
pub mod gate;
#[cfg(test)]
mod tests;

// Lets tests use the same paths as users.
#[cfg(test)]
extern crate self as examples;

/// Generated from `proto/benchmark.proto`.
pub mod benchmark {
    #![allow(missing_docs, reason = "the schema has none")]
    frpc::include_proto!("_");
}

/// The code of the page about protocols, which has to compile. Other pages of the guide take theirs from examples.
#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/protocols.md")]
pub struct ProtocolsPage;

/// The code of the page about takeover, which has to compile.
#[cfg(doctest)]
#[doc = include_str!("../../docs/takeover.md")]
pub struct TakeoverPage;

/// The code of the page about publish and subscribe, which has to compile.
#[cfg(doctest)]
#[doc = include_str!("../../docs/pubsub.md")]
pub struct PubsubPage;

/// The code of the page about several servers, which has to compile.
#[cfg(doctest)]
#[doc = include_str!("../../docs/fleet.md")]
pub struct FleetPage;
