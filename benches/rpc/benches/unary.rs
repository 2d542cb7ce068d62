//! Unary echo calls over loopback TCP: the latency of one caller, and the calls per second of many.
//!
//! The contenders take turns size by size, so that both see the same machine.

use std::time::Duration;

use bench_rpc::{Echo, OverFrpc, OverTonic, Pair};
use criterion::{
    BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main, measurement::WallTime,
};

fn unary(criterion: &mut Criterion) {
    let frpc = Pair::<OverFrpc>::start(CONNECTIONS);
    let tonic = Pair::<OverTonic>::start(CONNECTIONS);

    let mut group = criterion.benchmark_group("unary, one caller");
    for len in LENS {
        one_caller(&mut group, &frpc, len);
        one_caller(&mut group, &tonic, len);
    }
    group.finish();

    let mut group = criterion.benchmark_group("unary, 64 callers on 8 connections");
    group.throughput(Throughput::Elements(1));
    for len in LENS {
        many_callers(&mut group, &frpc, len);
        many_callers(&mut group, &tonic, len);
    }
    group.finish();
}

type Group<'a> = criterion::BenchmarkGroup<'a, WallTime>;

fn one_caller<C: Echo>(group: &mut Group<'_>, pair: &Pair<C>, len: usize) {
    group.bench_function(BenchmarkId::new(C::NAME, len), |bencher| {
        bencher.iter_custom(|calls| pair.one_caller(len, calls));
    });
}

fn many_callers<C: Echo>(group: &mut Group<'_>, pair: &Pair<C>, len: usize) {
    // Samples of the same length, in which every caller has many calls to make.
    group.sampling_mode(SamplingMode::Flat).sample_size(20);
    group.bench_function(BenchmarkId::new(C::NAME, len), |bencher| {
        bencher.iter_custom(|calls| pair.many_callers(CALLERS, len, calls));
    });
}

const LENS: [usize; 4] = [32, 512, 128 << 10, 1 << 20];
const CONNECTIONS: usize = 8;
const CALLERS: u64 = 64;

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_secs(1));
    targets = unary
}
criterion_main!(benches);
