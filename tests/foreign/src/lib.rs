//! A server for clients of others: the service of gRPC's own tests, a greeter, health checks and reflection on every wire.

mod greeter;
mod test_service;

pub use greeter::Host;
pub use test_service::Testing;

/// The generated code.
pub mod protos {
    #![allow(missing_docs, reason = "the schema has hardly any")]
    frpc::include_protos!();
}
