//! What several examples share: the services that the load tools speak.

/// Made of `proto/benchmark.proto`.
pub mod benchmark {
    #![allow(missing_docs, reason = "the schema has none")]
    frpc::include_proto!("_");
}
