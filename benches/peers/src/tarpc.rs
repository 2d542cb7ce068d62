//! What tarpc's server and client agree on.

#![allow(missing_docs, reason = "generated")]

use bytes::Bytes;

#[tarpc::service]
pub trait Benchmark {
    async fn string(message: String) -> String;
    async fn bytes(message: Bytes) -> Bytes;
}
