//! The instructions to read a request, counted by callgrind: those of the second time, without what is done once.
#![allow(missing_docs, reason = "the macros of gungraun write none")]

use bench_json::{
    readers::{self, Named, Room},
    samples::{self, Array, Floats, Numbers, Params, Sample, Strings},
};
use gungraun::{library_benchmark, library_benchmark_group, main};

#[library_benchmark]
#[benches::all(iter = cases(), setup = prepare)]
fn read(mut run: Box<dyn FnMut()>) -> Box<dyn FnMut()> {
    run();
    run
}

/// Returns the numbers of each request and each reader.
fn cases() -> Vec<(usize, usize)> {
    let readers = readers::all::<Numbers>().len();
    (0..samples::all().len()).flat_map(|sample| (0..readers).map(move |reader| (sample, reader))).collect()
}

fn prepare((sample, reader): (usize, usize)) -> Box<dyn FnMut()> {
    let (name, sample) = samples::all().swap_remove(sample);
    match sample {
        Sample::Numbers(bytes) => with(&name, readers::all::<Numbers>()[reader], bytes),
        Sample::Strings(bytes) => with(&name, readers::all::<Strings>()[reader], bytes),
        Sample::Floats(bytes) => with(&name, readers::all::<Floats>()[reader], bytes),
        Sample::Array(bytes) => with(&name, readers::all::<Array>()[reader], bytes),
    }
}

fn with<T: Params + 'static>(name: &str, (reader, read): Named<T>, bytes: Vec<u8>) -> Box<dyn FnMut()> {
    println!("{name}, {reader}");
    let mut room = Room::default();
    let mut run = move || assert!(read(&bytes, &mut room).is_some());
    run();
    Box::new(run)
}

library_benchmark_group!(name = reading, benchmarks = read);
main!(library_benchmark_groups = reading);
