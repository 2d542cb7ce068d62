//! The generated code of the proto files of gRPC, each package in the module of its name.
#![allow(missing_docs, reason = "not everything in the proto files has a comment")]

include!("../generated/_includes.rs");
