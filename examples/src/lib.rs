//! Parts that several examples share: certificates, and the services that the load tools speak.

pub mod certificates;

/// Made of `proto/benchmark.proto`.
pub mod benchmark {
    #![allow(missing_docs, reason = "the schema has none")]
    frpc::include_proto!("_");
}
