//! Generated code of the proto files, with a module for each package.
#![allow(missing_docs, reason = "not everything in the proto files has a comment")]

include!("../generated/_includes.rs");
