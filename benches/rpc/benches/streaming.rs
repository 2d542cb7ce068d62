//! Messages per second of one stream over loopback TCP, from the server and both ways.

use std::time::Duration;

use bench_rpc::{Echo, OverFrpc, OverTonic, Pair};
use criterion::{
    BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main, measurement::WallTime,
};

fn streaming(criterion: &mut Criterion) {
    let frpc = Pair::<OverFrpc>::start(1);
    let tonic = Pair::<OverTonic>::start(1);

    let mut group = criterion.benchmark_group("server streaming");
    group.throughput(Throughput::Elements(1));
    for len in LENS {
        compare(&mut group, &frpc, Pair::server_streaming, len);
        compare(&mut group, &tonic, Pair::server_streaming, len);
    }
    group.finish();

    let mut group = criterion.benchmark_group("bidirectional streaming");
    group.throughput(Throughput::Elements(1));
    for len in LENS {
        compare(&mut group, &frpc, Pair::bidirectional, len);
        compare(&mut group, &tonic, Pair::bidirectional, len);
    }
    group.finish();
}

fn compare<C: Echo>(
    group: &mut criterion::BenchmarkGroup<'_, WallTime>,
    pair: &Pair<C>,
    stream: fn(&Pair<C>, usize, u64) -> Duration,
    len: usize,
) {
    // Samples of the same length, in each of which one stream has many messages.
    group.sampling_mode(SamplingMode::Flat).sample_size(20);
    group.bench_function(BenchmarkId::new(C::NAME, len), |bencher| {
        bencher.iter_custom(|messages| stream(pair, len, messages));
    });
}

const LENS: [usize; 3] = [32, 512, 16 << 10];

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_secs(1));
    targets = streaming
}
criterion_main!(benches);
