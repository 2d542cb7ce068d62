//! Encodes and decodes the same prost structs with frpc and with prost.
//!
//! Both rows of a group have the same throughput unit, the bytes that prost makes of the value, so their ratio is that
//! of the times.

#[allow(unreachable_pub, unused)] // Not every bench needs all of it.
mod samples;

use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use frpc::{codec::DecodedContent, prost};

use samples::codec::{Blob, Catalogue, CopiedBlob, Shelf};

fn codec(criterion: &mut Criterion) {
    compare(criterion, "echo", &samples::echo());
    compare(criterion, "record", &samples::record());
    let shelf = Shelf { items: (0..1000).map(samples::item).collect() };
    compare(criterion, "list", &Catalogue { name: "Spring".into(), shelf: Some(shelf) });
    compare(criterion, "blob", &Blob { content: vec![7; MIB].into() });
    compare(criterion, "copied_blob", &CopiedBlob { content: vec![7; MIB] });
}

fn compare<M>(criterion: &mut Criterion, name: &str, message: &M)
where
    M: frpc::codec::Message + prost::Message + Clone + PartialEq,
{
    let of_frpc = frpc::codec::encode(message);
    let of_prost = Bytes::from(message.encode_to_vec());
    assert!(frpc::codec::decode(&of_frpc).is_ok_and(|content| content == DecodedContent::Message(message.clone())));
    assert!(M::decode(of_prost.clone()).is_ok_and(|decoded| decoded == *message));

    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Bytes(of_prost.len() as u64));
    group.bench_function("encode/frpc", |bencher| {
        bencher.iter(|| keep(&frpc::codec::encode(black_box(message))));
    });
    group.bench_function("encode/prost", |bencher| {
        bencher.iter(|| keep(&black_box(message).encode_to_vec()));
    });
    group.bench_function("encode/prost, into Bytes", |bencher| {
        bencher.iter(|| keep(&Bytes::from(black_box(message).encode_to_vec())));
    });
    group.bench_function("encode/frpc, into a buffer", |bencher| {
        let mut out = Vec::with_capacity(of_frpc.len());
        bencher.iter(|| {
            out.clear();
            frpc::codec::encode_to(black_box(message), &mut out);
            keep(&out);
        });
    });
    group.bench_function("encode/prost, into a buffer", |bencher| {
        let mut out = Vec::with_capacity(of_prost.len());
        bencher.iter(|| {
            out.clear();
            black_box(message).encode(&mut out).expect("a vector grows");
            keep(&out);
        });
    });
    group.bench_function("decode/frpc", |bencher| {
        bencher.iter(|| keep(&frpc::codec::decode::<M>(black_box(&of_frpc))));
    });
    group.bench_function("decode/prost", |bencher| {
        bencher.iter(|| keep(&M::decode(black_box(&of_prost).clone())));
    });
}

/// Makes the optimizer believe that `value` is used. By reference: a copy would count as work of the codec.
fn keep<T>(value: &T) {
    black_box(value);
}

const MIB: usize = 1 << 20;

criterion_group!(benches, codec);
criterion_main!(benches);
