//! The time to read a request.

use std::hint::black_box;

use bench_json::{
    readers::{self, Room},
    samples::{self, Array, Floats, Numbers, Params, Sample, Strings},
};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn requests(criterion: &mut Criterion) {
    for (name, sample) in samples::all() {
        match sample {
            Sample::Numbers(bytes) => group::<Numbers>(criterion, &name, &bytes),
            Sample::Strings(bytes) => group::<Strings>(criterion, &name, &bytes),
            Sample::Floats(bytes) => group::<Floats>(criterion, &name, &bytes),
            Sample::Array(bytes) => group::<Array>(criterion, &name, &bytes),
        }
    }
}

fn group<T: Params>(criterion: &mut Criterion, name: &str, bytes: &[u8]) {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    let mut room = Room::default();
    for (reader, read) in readers::all::<T>() {
        assert!(read(bytes, &mut room).is_some(), "{reader}, {name}");
        group.bench_function(reader, |bencher| bencher.iter(|| read(black_box(bytes), &mut room)));
    }
    group.finish();
}

criterion_group!(benches, requests);
criterion_main!(benches);
