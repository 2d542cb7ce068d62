//! Generated code of the heads of records.

pub(crate) use frpc_record_v1::*;

mod frpc_record_v1 {
    #![allow(missing_docs, reason = "not everything in the proto file has a comment")]
    #![allow(unreachable_pub, reason = "generated code is public")]

    include!("../generated/frpc.record.v1.rs");
}
