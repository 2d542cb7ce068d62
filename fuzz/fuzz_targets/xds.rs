//! A control plane that sends anything: resources, responses and pauses, on streams that begin again. Each step is a kind,
//! the length of its content in two bytes, and the content.
#![no_main]

use frisbee_fuzz::fuzz_target;
use frpc_xds::{Bootstrap, fuzzing::HostilePlane};

fuzz_target!(|input: &[u8]| {
    let (mut plane, mut rest) = (HostilePlane::default(), input);
    while let Some((&[kind, high, low], after)) = rest.split_first_chunk() {
        let (content, after) = after.split_at(usize::from(u16::from_be_bytes([high, low])).min(after.len()));
        rest = after;
        let version = kind / 9;
        match kind % 9 {
            kind @ 0..4 => plane.send(kind, version, content),
            4 => plane.send_any(content),
            5 => plane.wait(version),
            6 => plane.reconnect(version % 2 == 1),
            _ => {
                let _ = str::from_utf8(content).map(Bootstrap::from_json);
            }
        }
    }
});
