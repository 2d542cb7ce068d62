//! Messages of the proto file, and its services with the feature `tonic`.

#![allow(missing_docs, reason = "generated")]

include!(concat!(env!("OUT_DIR"), "/_.rs"));
