//! Generated code of the discovery service and its resources, with a module for each package.
#![allow(missing_docs, unreachable_pub, reason = "not everything in the proto files has a comment")]

include!("../generated/_includes.rs");
