//! Code generated from proto files that are hard to turn into Rust. That it compiles, without a warning, is the test.
#![allow(
    missing_docs,
    clippy::large_enum_variant,
    clippy::module_inception,
    clippy::wrong_self_convention,
    reason = "the proto files name things, nest them and leave out comments as nobody should"
)]

frpc::include_protos!();

/// The same messages with `Bytes`, `BTreeMap`, boxes, and a package from elsewhere.
pub mod other {
    include!(concat!(env!("OUT_DIR"), "/other/_includes.rs"));
}

/// The well-known types as ordinary messages.
pub mod well_known {
    include!(concat!(env!("OUT_DIR"), "/well_known/_includes.rs"));
}

/// The messages of the wire vectors.
pub mod vectors {
    include!(concat!(env!("OUT_DIR"), "/vectors/vectors.rs"));
}

/// The expected output that people review.
pub mod golden {
    pub mod echo {
        include!("../../../crates/frpc-build/tests/golden/echo/_includes.rs");
    }
    pub mod fields {
        include!("../../../crates/frpc-build/tests/golden/fields/_includes.rs");
    }
    pub mod shop {
        include!("../../../crates/frpc-build/tests/golden/shop/_includes.rs");
    }
}
