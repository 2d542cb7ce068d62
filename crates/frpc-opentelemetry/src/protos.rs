//! Generated code of the metrics service of OpenTelemetry, with a module for each package. Collectors and tests serve it.
#![allow(missing_docs, reason = "not everything in the proto files has a comment")]

include!("../generated/_includes.rs");
