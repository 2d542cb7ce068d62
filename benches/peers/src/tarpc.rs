//! The benchmark service for tarpc, shared by its server and client.

#![allow(missing_docs, reason = "generated")]

use bytes::Bytes;

#[tarpc::service]
pub trait Benchmark {
    async fn string(message: String) -> String;
    async fn bytes(message: Bytes) -> Bytes;
}
