//! Helpers shared by tests: virtual time, gates, event logs and peers for raw frames. The feature `full` adds test
//! services and routers, certificates, engines, peers written in Go, PostgreSQL, NATS and name servers, and log capture.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod events;
pub mod frames;
mod gate;
pub mod http2;
mod time;

#[cfg(feature = "full")]
pub mod calls;
#[cfg(feature = "full")]
mod certificates;
#[cfg(feature = "full")]
mod databases;
#[cfg(feature = "full")]
mod directory;
#[cfg(feature = "full")]
mod engines;
#[cfg(feature = "full")]
mod foreign;
#[cfg(feature = "full")]
mod go;
#[cfg(feature = "full")]
mod installed;
#[cfg(feature = "full")]
pub mod interop;
#[cfg(feature = "full")]
mod kubernetes;
#[cfg(feature = "full")]
mod log;
#[cfg(feature = "full")]
mod nats;
#[cfg(feature = "full")]
mod nats_broker;
#[cfg(all(unix, feature = "full"))]
mod postgres;
#[cfg(feature = "full")]
mod process;
#[cfg(feature = "full")]
pub mod sockets;
#[cfg(all(unix, feature = "full"))]
mod unbound;

pub use events::EventLog;
pub use frames::Peer;
pub use gate::Gate;
pub use time::{DAY, MILLI, SECOND, assert_elapsed, in_virtual_time, settle, until};

#[cfg(feature = "full")]
pub use self::{
    certificates::{Identity, PemFile, localhost, trusting},
    databases::{EtcdServer, RedisServer},
    directory::Directory,
    engines::{can_be_had, engines, rings},
    foreign::{
        foreign_browser, foreign_packages, foreign_program, foreign_python, foreign_runtime, has_wasm,
        typescript_client,
    },
    go::{GoPeers, GoServer},
    installed::is_installed,
    kubernetes::KubeApiServer,
    log::{ThreadLog, hear_log},
    nats::{NatsProgram, NatsServer, foreign_nats_peer},
    nats_broker::NatsBroker,
    time::{in_real_time, in_real_time_within},
};

#[cfg(all(unix, feature = "full"))]
pub use self::{postgres::Postgres, unbound::Unbound};

/// Messages and service of a plain unary call.
#[cfg(feature = "full")]
pub mod echo {
    #![allow(missing_docs, reason = "the schema has none")]
    frpc::include_proto!("echo");
}

/// A service whose messages have required fields, with and without their check.
#[cfg(feature = "full")]
pub mod contracts {
    #![allow(missing_docs, reason = "the schema has none")]

    pub mod required {
        include!(concat!(env!("OUT_DIR"), "/required/contracts.rs"));
    }
    pub mod optional {
        include!(concat!(env!("OUT_DIR"), "/optional/contracts.rs"));
    }
}

/// An echo service of edition 2023.
#[cfg(feature = "full")]
pub mod editions {
    #![allow(missing_docs, reason = "the schema has none")]
    include!(concat!(env!("OUT_DIR"), "/editions/editions.rs"));
}

/// Messages with an enum, and an echo service for them.
#[cfg(feature = "full")]
pub mod paint;

#[cfg(feature = "full")]
pub mod rest;

/// Two versions of one proto file.
#[cfg(feature = "full")]
pub mod schemas {
    #![allow(missing_docs, reason = "the schemas have none")]

    pub mod old {
        include!(concat!(env!("OUT_DIR"), "/old/schemas.rs"));
    }

    pub mod new {
        include!(concat!(env!("OUT_DIR"), "/new/schemas.rs"));
    }
}
