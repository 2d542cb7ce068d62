//! Measures each layer of a call by itself, in bytes per second.
//!
//! `frame` is the protocol core of frisbee, `codec` the bytes of one message, `dispatch` the way from a packet to its
//! handler and back: of a table of frisbee, whose handler returns the packet, and of the services of frpc, which decode
//! it, echo the message and encode it. `pick` is the choice of a server for a call.

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use bench_rpc::{
    Service,
    schema::{Message, echo_methods::ONCE, echo_server::EchoServer},
    text,
};
use bytes::{Buf, Bytes, BytesMut};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use frpc::{
    Config, Connection, HandlerTable, Operation, Outcome, Packet, Router, Services,
    codec::{self, DecodedContent},
    frisbee::{
        Client,
        proto::{self, Decoder, HeaderFormat, Role, Transmit},
    },
};
use frpc_balance::{
    EndpointLoad, EndpointState, LoadSettings, PickPolicy, PickRequest, Picker, SHARE_GROWS, ZonePreference,
};
use futures_util::FutureExt;
use tokio::{io::duplex, runtime};

fn frames(criterion: &mut Criterion) {
    for len in SMALL_LENS {
        let mut frames = Frames::new(packet(len));
        let wire = frames.encode();

        let mut group = criterion.benchmark_group("frame");
        group.throughput(Throughput::Bytes(wire.len() as u64));
        group.bench_function(BenchmarkId::new("encode", len), |bencher| {
            bencher.iter(|| frames.write());
        });
        group.bench_function(BenchmarkId::new("decode", len), |bencher| {
            let mut decoder = Decoder::new(Some(HeaderFormat::Magic10), Config::default().content_len_max);
            bencher.iter_batched_ref(
                || BytesMut::from(&wire[..]),
                |inbox| while black_box(decoder.decode(inbox)).is_ok_and(|frame| frame.is_some()) {},
                BatchSize::SmallInput,
            );
        });
    }
}

fn codec(criterion: &mut Criterion) {
    for len in LENS {
        let message = Message { text: text(len) };
        let content = codec::encode(&message);

        let mut group = criterion.benchmark_group("codec");
        group.throughput(Throughput::Bytes(content.len() as u64));
        group.bench_function(BenchmarkId::new("encode", len), |bencher| {
            bencher.iter(|| codec::encode(black_box(&message)));
        });
        group.bench_function(BenchmarkId::new("decode", len), |bencher| {
            bencher.iter(|| codec::decode::<Message>(black_box(&content)));
        });
        assert!(codec::decode(&content).is_ok_and(|decoded| decoded == DecodedContent::Message(message)));
    }
}

fn dispatch(criterion: &mut Criterion) {
    let table = HandlerTable::new().on(operation(), async |packet: Packet| packet);
    let services = Services::new().add_service(EchoServer::new(Service));
    let runtime = runtime::Builder::new_current_thread().enable_time().build().expect("it has no threads");
    let (wire, _peer) = duplex(1 << 10);
    let connection = runtime.block_on(Client::new(()).attach(wire)).expect("there is nothing to connect to");

    for len in SMALL_LENS {
        let packet = packet(len);
        let mut group = criterion.benchmark_group("dispatch");
        group.throughput(Throughput::Bytes(packet.content.len() as u64));
        group.bench_function(BenchmarkId::new("table", len), |bencher| {
            bencher.iter(|| answer(&table, black_box(&packet), &connection));
        });
        group.bench_function(BenchmarkId::new("services", len), |bencher| {
            bencher.iter(|| answer(&services, black_box(&packet), &connection));
        });
    }
}

fn answer(router: &impl Router, packet: &Packet, connection: &Connection) -> Outcome {
    router.route(packet.clone(), connection).now_or_never().expect("an echo does not wait")
}

fn packet(len: usize) -> Packet {
    Packet::new(1, operation(), codec::encode(&Message { text: text(len) }))
}

fn operation() -> Operation {
    Operation::new(ONCE.operation).expect("generated operations are not reserved")
}

/// As many frames as a connection reads at once.
struct Frames {
    connection: proto::Connection,
    batch: Transmit,
    packets: Vec<Packet>,
    now: Instant,
}

impl Frames {
    fn new(packet: Packet) -> Self {
        let now = Instant::now();
        let count = READ_LEN / (HeaderFormat::Magic10.header_len() + packet.content.len());
        let connection = proto::Connection::new(Role::Client, Arc::new(Config::default()), now);
        Self { connection, batch: Transmit::default(), packets: vec![packet; count], now }
    }

    fn encode(&mut self) -> Bytes {
        let mut wire = BytesMut::new();
        self.send(|bytes| wire.extend_from_slice(bytes));
        wire.freeze()
    }

    fn write(&mut self) {
        self.send(|bytes| {
            black_box(bytes);
        });
    }

    fn send(&mut self, mut write: impl FnMut(&[u8])) {
        for packet in &self.packets {
            self.connection.send(packet.clone()).expect("the connection is open");
        }
        while self.batch.has_remaining() || self.connection.poll_transmit(self.now, &mut self.batch) {
            let bytes = self.batch.chunk();
            write(bytes);
            let len = bytes.len();
            self.connection.handle_written(self.now, len, &mut self.batch);
        }
    }
}

const LENS: [usize; 4] = [32, 512, 128 << 10, 1 << 20];
/// Contents are not touched below the codec: large ones would take no time for any number of bytes.
const SMALL_LENS: [usize; 2] = [32, 512];
const READ_LEN: usize = 16 << 10;

/// One server among those to choose from.
struct Server(EndpointState);

impl AsRef<EndpointState> for Server {
    fn as_ref(&self) -> &EndpointState {
        &self.0
    }
}

fn pick(criterion: &mut Criterion) {
    for len in [4, 100, 1000] {
        let servers = (0..len).map(|hash| {
            let load = EndpointLoad::new(&LoadSettings::default());
            load.record(Duration::from_micros(100), SHARE_GROWS);
            Server(EndpointState { load, weight: 1.into(), hash, joined: Duration::ZERO })
        });
        let now = SHARE_GROWS + Duration::from_millis(2);
        let picker = Picker::new(PickPolicy::TwoChoices, servers.collect(), ZonePreference::default(), now);
        criterion.benchmark_group("pick").bench_function(BenchmarkId::new("two_choices", len), |bencher| {
            bencher.iter(|| picker.pick(black_box(PickRequest { now, key: None, tried: &[] })).is_some());
        });
    }
}

criterion_group!(benches, frames, codec, dispatch, pick);
criterion_main!(benches);
