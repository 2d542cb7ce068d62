//! The messages of the proto file, and with the feature `tonic` its services.

#![allow(missing_docs, reason = "generated")]

include!(concat!(env!("OUT_DIR"), "/_.rs"));
