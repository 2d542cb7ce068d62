//! Bytes of an extended peer: nothing panics, and nothing is kept beyond the limits or that was only announced.
#![no_main]

use bytes::Bytes;
use frisbee::proto::{Control, Hello};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, Vec<u8>)| {
    let (metadata_max, bytes) = input;
    let (metadata_max, content) = (usize::from(metadata_max) * 8, Bytes::from(bytes));
    let (metadata_len, messages_len) = frpc::fuzzing::read_extended(&content, metadata_max);
    assert!(metadata_len <= metadata_max);
    assert!(messages_len <= 2 * content.len());

    drop(Control::decode(7, content.clone()));
    if let Ok(hello) = Hello::decode(content) {
        let mut encoded = Vec::new();
        hello.encode(&mut encoded);
        assert_eq!(Hello::decode(encoded.into()).as_ref(), Ok(&hello), "what was read is what is said");
    }
});
