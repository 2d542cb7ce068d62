//! Code generated from proto files that are hard to turn into Rust. That it compiles, without a warning, is the test.
#![allow(missing_docs, reason = "the proto files leave out comments as nobody should")]

frpc::include_protos!();

/// The same messages with `Bytes`, `BTreeMap`, boxes, and a package from elsewhere.
pub mod other {
    include!(concat!(env!("OUT_DIR"), "/other/_includes.rs"));
}

/// The well-known types as ordinary messages.
pub mod well_known {
    include!(concat!(env!("OUT_DIR"), "/well_known/_includes.rs"));
}

/// Schemas that others may have, each with what is hard about it. No warning is excused here.
pub mod schemas {
    #![deny(warnings)]
    include!(concat!(env!("OUT_DIR"), "/accepted/_includes.rs"));
}

/// The types of `google.protobuf` that prost has and frpc does not send.
pub mod google_protobuf {
    #![deny(warnings)]
    include!(concat!(env!("OUT_DIR"), "/google/_includes.rs"));
}

/// The messages of the wire vectors.
pub mod vectors {
    include!(concat!(env!("OUT_DIR"), "/vectors/vectors.rs"));
}

/// The expected output that people review.
#[allow(clippy::module_inception, reason = "the modules around the packages are called like them")]
pub mod golden {
    pub mod echo {
        include!("../../../crates/frpc-build/tests/golden/echo/_includes.rs");
    }
    pub mod fields {
        include!("../../../crates/frpc-build/tests/golden/fields/_includes.rs");
    }
    pub mod json {
        include!("../../../crates/frpc-build/tests/golden/json/_includes.rs");
    }
    pub mod shop {
        include!("../../../crates/frpc-build/tests/golden/shop/_includes.rs");
    }
}

/// A package included beside an item that has a name of Rust's prelude, as an alias of a program has.
pub mod beside {
    pub type Result<T> = std::result::Result<T, std::io::Error>;

    include!("../../../crates/frpc-build/tests/golden/echo/echo.rs");
}
