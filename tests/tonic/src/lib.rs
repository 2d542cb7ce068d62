//! The same two services with the code of tonic and with ours, for tests of either's clients against the other's servers.

mod on_frpc;
mod on_tonic;

pub use on_frpc::Ours;
pub use on_tonic::Theirs;

/// The code that tonic's build makes.
pub mod theirs {
    #![allow(missing_docs, reason = "generated")]
    #![allow(clippy::all, reason = "generated")]

    /// A greeter.
    pub mod helloworld {
        include!(concat!(env!("OUT_DIR"), "/theirs/helloworld.rs"));
    }

    /// All kinds of calls.
    pub mod routeguide {
        include!(concat!(env!("OUT_DIR"), "/theirs/routeguide.rs"));
    }
}

/// The code that frpc-build makes.
pub mod ours {
    #![allow(missing_docs, reason = "generated")]

    /// A greeter.
    pub mod helloworld {
        include!(concat!(env!("OUT_DIR"), "/ours/helloworld.rs"));
    }

    /// All kinds of calls.
    pub mod routeguide {
        include!(concat!(env!("OUT_DIR"), "/ours/routeguide.rs"));
    }
}
