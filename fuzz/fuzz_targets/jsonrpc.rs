//! Reads any bytes as JSON-RPC. The result does not depend on chunk boundaries, and input counts as JSON exactly if
//! serde_json accepts it.
#![no_main]

use arbitrary::Arbitrary;
use frisbee_fuzz::fuzz_target;
use frpc_jsonrpc::fuzzing;

#[derive(Arbitrary, Debug)]
struct Input {
    first: u8,
    cuts: Vec<u8>,
    bytes: Vec<u8>,
}

fuzz_target!(|input: Input| {
    if let Ok(text) = str::from_utf8(&input.bytes) {
        let expected = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        let depth_is_plain = text.matches(['{', '[']).count() < 100;
        if depth_is_plain {
            assert_eq!(fuzzing::is_value(text), expected, "{text}");
        }
    }
    // Most inputs should resemble JSON-RPC.
    let opening: &[u8] = match input.first % 4 {
        0 => b"",
        1 => b"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"id\":1}\n",
        2 => b"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"params\":[",
        _ => b"Content-Length: 38\r\n\r\n{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"id\":1}\r\n",
    };
    let bytes = [opening, &input.bytes].concat();
    let whole = fuzzing::messages([&bytes[..]]);
    let mut rest = &bytes[..];
    let mut chunks = Vec::new();
    for cut in &input.cuts {
        let (chunk, behind) = rest.split_at(usize::from(*cut).min(rest.len()));
        chunks.push(chunk);
        rest = behind;
    }
    chunks.push(rest);
    assert_eq!(fuzzing::messages(chunks), whole);
});
