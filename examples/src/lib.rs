//! Parts that several examples share: certificates, the PostgreSQL proxy, the server of a page, and the services that the load tools speak.

pub mod browser;
pub mod certificates;
pub mod postgres;
#[cfg(test)]
mod tests;

// Tests name what users name.
#[cfg(test)]
extern crate self as examples;

/// Made of `proto/benchmark.proto`.
pub mod benchmark {
    #![allow(missing_docs, reason = "the schema has none")]
    frpc::include_proto!("_");
}

/// The code of the guide, which has to compile.
#[cfg(doctest)]
#[doc = include_str!("../../docs/routers.md")]
pub struct RoutersGuide;
