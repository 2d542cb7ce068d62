//! Parts that several examples share: certificates, the PostgreSQL proxy, and the services that the load tools speak.

pub mod certificates;
pub mod postgres;

/// Made of `proto/benchmark.proto`.
pub mod benchmark {
    #![allow(missing_docs, reason = "the schema has none")]
    frpc::include_proto!("_");
}
