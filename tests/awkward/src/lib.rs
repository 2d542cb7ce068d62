//! Code generated from proto files that are hard to express in Rust. The test is that it compiles without warnings.
#![allow(missing_docs, reason = "the proto files leave out comments as nobody should")]

frpc::include_protos!();

/// The same messages with `Bytes`, `BTreeMap`, boxes, and an external package.
pub mod other {
    include!(concat!(env!("OUT_DIR"), "/other/_includes.rs"));
}

/// The well-known types as ordinary messages.
pub mod well_known {
    include!(concat!(env!("OUT_DIR"), "/well_known/_includes.rs"));
}

/// Schemas users may have. Each contains one difficulty, and no warning is allowed.
pub mod schemas {
    #![deny(warnings)]
    include!(concat!(env!("OUT_DIR"), "/accepted/_includes.rs"));
}

/// The golden messages with required fields as a peer without this option has them.
pub mod optional {
    include!(concat!(env!("OUT_DIR"), "/optional/_includes.rs"));
}

/// Messages of proto2 with checked required fields.
pub mod strict {
    #![deny(warnings)]
    include!(concat!(env!("OUT_DIR"), "/strict/_includes.rs"));
}

/// The types of `google.protobuf` in prost that frpc does not send.
pub mod google_protobuf {
    #![deny(warnings)]
    include!(concat!(env!("OUT_DIR"), "/google/_includes.rs"));
}

/// The messages of the wire vectors.
pub mod vectors {
    include!(concat!(env!("OUT_DIR"), "/vectors/vectors.rs"));
}

/// Messages with field masks.
pub mod masks {
    #![deny(warnings)]
    include!(concat!(env!("OUT_DIR"), "/masks/masks.rs"));
}

/// Files of editions.
pub mod editions {
    #![deny(warnings)]
    include!(concat!(env!("OUT_DIR"), "/editions/_includes.rs"));
}

/// The reviewed golden files of the code generator.
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
    pub mod mocks {
        include!("../../../crates/frpc/generated/_includes.rs");
    }
    pub mod required {
        include!("../../../crates/frpc-build/tests/golden/required/_includes.rs");
    }
    pub mod shop {
        include!("../../../crates/frpc-build/tests/golden/shop/_includes.rs");
    }
}

/// A package included next to an item with a name from Rust's prelude, such as a program's own `Result` alias.
pub mod beside {
    pub type Result<T> = std::result::Result<T, std::io::Error>;

    include!("../../../crates/frpc-build/tests/golden/echo/echo.rs");
}
