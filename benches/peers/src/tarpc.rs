//! Settings of tarpc's server and client alike.

#![allow(missing_docs, reason = "generated")]

use bytes::Bytes;

#[tarpc::service]
pub trait Benchmark {
    async fn string(message: String) -> String;
    async fn bytes(message: Bytes) -> Bytes;
}
