//! Size and speed of two messages in frpc's encoding and in other formats, as a markdown table.

#[allow(unreachable_pub, unused)] // Not every bench needs all of it.
mod samples;

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use frpc::{codec::json, prost::Message as _};

fn main() {
    println!("\n| message | format | bytes | encode, ns | decode, ns |\n|---|---|--:|--:|--:|");
    rows!("echo", samples::codec::Echo, samples::pbjson::Echo, samples::echo());
    rows!("30 fields", samples::codec::Record, samples::pbjson::Record, samples::record());
}

/// A macro and no function, because the bounds that rkyv asks for would be longer than the rest.
macro_rules! rows {
    ($name:literal, $message:ty, $of_pbjson:ty, $value:expr) => {{
        let value = $value;
        let frpc = frpc::codec::encode(&value);
        let prost = frpc::prost::bytes::Bytes::from(value.encode_to_vec());
        let proto_json = json::to_vec(&value).expect("every value has a form");
        let of_pbjson = <$of_pbjson>::decode(prost.clone()).expect("the fields are the same");
        let pbjson = serde_json::to_vec(&of_pbjson).expect("a struct is JSON");
        assert_eq!(json::from_slice(&pbjson).as_ref(), Ok(&value));
        let json = serde_json::to_vec(&value).expect("a struct is JSON");
        let postcard = postcard::to_stdvec(&value).expect("a struct is postcard");
        let rkyv = rkyv::to_bytes::<RkyvError>(&value).expect("memory is all it takes");

        row(
            $name,
            "frpc",
            frpc.len(),
            nanos(|| frpc::codec::encode(black_box(&value))),
            nanos(|| frpc::codec::decode::<$message>(black_box(&frpc))),
        );
        row(
            $name,
            "prost",
            prost.len(),
            nanos(|| black_box(&value).encode_to_vec()),
            nanos(|| <$message>::decode(black_box(&prost).clone())),
        );
        row(
            $name,
            "frpc, JSON",
            proto_json.len(),
            nanos(|| json::to_vec(black_box(&value))),
            nanos(|| json::from_slice::<$message>(black_box(&proto_json))),
        );
        row(
            $name,
            "pbjson with serde_json",
            pbjson.len(),
            nanos(|| serde_json::to_vec(black_box(&of_pbjson))),
            nanos(|| serde_json::from_slice::<$of_pbjson>(black_box(&pbjson))),
        );
        row(
            $name,
            "serde_json, not the JSON of proto3",
            json.len(),
            nanos(|| serde_json::to_vec(black_box(&value))),
            nanos(|| serde_json::from_slice::<$message>(black_box(&json))),
        );
        row(
            $name,
            "postcard",
            postcard.len(),
            nanos(|| postcard::to_stdvec(black_box(&value))),
            nanos(|| postcard::from_bytes::<$message>(black_box(&postcard))),
        );
        row(
            $name,
            "rkyv",
            rkyv.len(),
            nanos(|| rkyv::to_bytes::<RkyvError>(black_box(&value))),
            nanos(|| rkyv::from_bytes::<$message, RkyvError>(black_box(&rkyv))),
        );
        row(
            $name,
            "rkyv, checked access",
            rkyv.len(),
            nanos(|| rkyv::to_bytes::<RkyvError>(black_box(&value))),
            nanos(|| rkyv::access::<rkyv::Archived<$message>, RkyvError>(black_box(&rkyv)).is_ok()),
        );
    }};
}
use rows;

type RkyvError = rkyv::rancor::Error;

fn row(message: &str, format: &str, len: usize, encode: f64, decode: f64) {
    println!("| {message} | {format} | {len} | {encode:.0} | {decode:.0} |");
}

/// Returns the time of one run: the best of many rounds, which other work on the machine disturbs least.
fn nanos<T>(run: impl Fn() -> T) -> f64 {
    let round = || {
        let start = Instant::now();
        for _ in 0..RUNS_PER_ROUND {
            black_box(&run());
        }
        start.elapsed()
    };
    let best: Option<Duration> = (0..ROUNDS).map(|_| round()).min();
    best.unwrap_or_default().as_secs_f64() * 1e9 / f64::from(RUNS_PER_ROUND)
}

const ROUNDS: u32 = 200;
const RUNS_PER_ROUND: u32 = 2_000;
