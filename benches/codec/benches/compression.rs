//! Measures what compression costs and saves: calls with 128 KiB of text each way, over TCP on this machine.

#[allow(unreachable_pub, unused)] // Not every bench needs all of it.
mod samples;

use std::fmt::Write;

use criterion::{Criterion, criterion_group, criterion_main};
use frpc::{
    Channel, CompressionSettings, Server,
    codec::Compression,
    generated::{Answer, Call, Method, Service, Status},
};
use samples::codec::Echo;
use tokio::runtime::Runtime;

const ECHO: Method = Method::unary("bench.Echo", "Say", 10);

/// Sends every message back.
struct Back;

impl Service for Back {
    const NAME: &'static str = "bench.Echo";
    const METHODS: &'static [Method] = &[ECHO];

    async fn call(&self, _: usize, call: Call) -> Result<Answer, Status> {
        Ok(Answer::new(call.into_parts().1))
    }
}

/// Lines of a log, which differ in what differs in logs.
fn text() -> String {
    let (mut text, mut state) = (String::new(), 1_u32);
    while text.len() < LEN {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (order, micros) = (state >> 12, state >> 18);
        let path = ["orders", "customers", "items", "invoices"][(state >> 8) as usize % 4];
        writeln!(text, "INFO shop::http: GET /{path}/{order:x} answered 200 in {micros} us, user {}", state >> 22)
            .expect("a string takes everything");
    }
    text.truncate(LEN);
    text
}

fn calls(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("threads can be started");
    let mut group = criterion.benchmark_group("128 KiB of text");
    for (name, algorithm) in
        [("as it is", None), ("LZ4", Some(Compression::Lz4)), ("Zstandard", Some(Compression::Zstd))]
    {
        let (_server, channel) = runtime.block_on(async {
            let (mut server, mut channel) = (Server::builder(), Channel::builder());
            if let Some(algorithm) = algorithm {
                let compression = CompressionSettings { send: vec![algorithm], ..CompressionSettings::default() };
                (server, channel) = (server.compression(compression.clone()), channel.compression(compression));
            }
            let server = server.add_service(Back).bind("tcp://127.0.0.1:0").await.expect("there is a port");
            let channel = channel.connect(server.local_addr()).await.expect("the server is there");
            (server, channel)
        });
        let request = Echo { text: text() };
        let call = || {
            runtime.block_on(async {
                let answer = channel.unary::<Echo, Echo>(&ECHO, request.clone()).await.expect("it is answered");
                assert_eq!(answer.get_ref().text.len(), LEN);
            });
        };
        let bytes_out = || channel.connection().expect("there is one").metrics().counters.bytes_out;
        let before = bytes_out();
        call();
        println!("{name}: {} bytes each way", bytes_out() - before);
        group.bench_function(name, |bencher| bencher.iter(call));
    }
}

const LEN: usize = 128 * 1024;

criterion_group!(benches, calls);
criterion_main!(benches);
