//! Metrics and spans at an OpenTelemetry Collector. Its program is in `collector/`.

use std::{path::Path, process::Stdio};

use foreign::{
    Host,
    protos::helloworld::{HelloRequest, greeter_client::GreeterClient, greeter_server::GreeterServer},
};
use frpc::{Channel, Code, Server, layers::Trace};
use frpc_opentelemetry::{CurrentSpan, HistogramFormat, OtlpMetrics, OtlpSettings, OtlpSpans, TraceBridge};
use opentelemetry_sdk::trace::SdkTracerProvider;
use support::foreign_program;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{Child, Command},
    runtime,
    task::{JoinHandle, spawn_blocking},
    time::timeout,
};
use tracing::{Instrument, info_span};
use tracing_subscriber::layer::SubscriberExt;

use crate::LIMIT;

#[test]
fn a_collector_receives_metrics_and_spans() {
    let Some(program) = foreign_program("collector") else { return };
    // On one thread, whose subscriber sees all spans.
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let output = runtime.block_on(async { timeout(LIMIT, output_after_calls(&program)).await.unwrap() });

    for expected in [
        "service.name: Str(orders)",
        "InstrumentationScope frpc",
        "Name: rpc.server.call.duration",
        "Name: rpc.client.call.duration",
        "Name: grpc.server.call.started",
        "Name: frpc.server.calls_in_flight",
        "Name: frpc.server.connection.io",
        "Unit: s",
        "DataType: Histogram",
        "DataType: ExponentialHistogram",
        "DataType: Sum",
        "AggregationTemporality: Cumulative",
        "rpc.system.name: Str(frpc)",
        "rpc.method: Str(helloworld.Greeter/SayHello)",
        "rpc.status_code: Str(INVALID_ARGUMENT)",
        "error.type: Str(INVALID_ARGUMENT)",
    ] {
        assert!(output.contains(expected), "{expected:?} is missing in:\n{output}");
    }
    let spans = spans_of(&output);
    let of_kind = |kind: &'static str| spans.iter().filter(move |span| span.kind == kind);
    let job = spans.iter().find(|span| span.name == "job").unwrap();
    assert_eq!((of_kind("Client").count(), of_kind("Server").count(), spans.len()), (2, 2, 5), "{output}");
    assert!(of_kind("Client").all(|client| client.parent == job.id), "{spans:?}");
    for server in of_kind("Server") {
        assert_eq!((&*server.name, &server.trace), ("helloworld.Greeter/SayHello", &job.trace));
        assert!(of_kind("Client").any(|client| client.id == server.parent), "{spans:?}");
    }
}

/// Makes two calls, and returns everything printed by the collector.
async fn output_after_calls(program: &Path) -> String {
    let collector = Collector::start(program).await;
    let settings = collector.settings("orders");
    let spans = OtlpSpans::start(&settings).unwrap();
    let bridge = TraceBridge::new(SdkTracerProvider::builder().with_batch_exporter(spans));
    let hearing = tracing::subscriber::set_default(tracing_subscriber::registry().with(bridge.layer()));

    let server = Server::builder().layer(Trace::new()).add_service(GreeterServer::new(Host));
    let server = server.bind("tcp://127.0.0.1:0").await.unwrap();
    let channel = Channel::builder().layer(CurrentSpan).layer(Trace::for_channel());
    let client = GreeterClient::new(channel.connect(server.local_addr().to_string()).await.unwrap());
    let calls = async {
        client.say_hello(HelloRequest { name: "Ada".to_owned() }).await.unwrap();
        let refused = client.say_hello(HelloRequest::default()).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
    };
    calls.instrument(info_span!("job")).await;
    drop((client, hearing));

    for histograms in [HistogramFormat::Explicit, HistogramFormat::Exponential] {
        let metrics = OtlpMetrics::start(OtlpSettings { histograms, ..settings.clone() }).unwrap();
        // More than a pipe holds.
        for _ in 0..20 {
            metrics.flush().await.unwrap();
        }
        metrics.shutdown().await.unwrap();
    }
    end(bridge).await;
    collector.output().await
}

/// Sends the last spans. The provider blocks its thread, and the output of the collector has to be read meanwhile.
async fn end(bridge: TraceBridge) {
    spawn_blocking(move || bridge.provider().shutdown().unwrap()).await.unwrap();
}

#[test]
fn a_trace_through_processes_on_different_wires_is_one_tree() {
    let Some(program) = foreign_program("collector") else { return };
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let output = runtime.block_on(async { timeout(LIMIT, output_after_chain(&program)).await.unwrap() });

    let spans = spans_of(&output);
    let mut parent = PrintedSpan::default();
    // By service, from the root.
    for (service, kind, system) in [
        ("shop", "Client", "frpc"),
        ("front", "Server", "frpc"),
        ("front", "Client", "grpc"),
        ("orders", "Server", "grpc"),
        ("orders", "Client", "connectrpc"),
        ("stock", "Server", "connectrpc"),
    ] {
        let is_expected = |span: &&PrintedSpan| (&*span.service, &*span.kind) == (service, kind);
        let found: Vec<_> = spans.iter().filter(is_expected).collect();
        assert_eq!(found.len(), 1, "{service} {kind}: {output}");
        assert_eq!(
            (&found[0].system, &found[0].parent),
            (&system.to_owned(), &parent.id),
            "{service} {kind}: {output}"
        );
        assert!(parent.id.is_empty() || parent.trace == found[0].trace, "{output}");
        parent = found[0].clone();
    }
    assert_eq!(spans.len(), 6, "{output}");
    for event in ["Name: rpc.message", "rpc.message.type: Str(SENT)", "Name: server picked", "server: Str(grpc://"] {
        assert!(output.contains(event), "{event:?} is missing in:\n{output}");
    }
}

/// Calls through three processes, and returns everything printed by the collector.
async fn output_after_chain(program: &Path) -> String {
    let collector = Collector::start(program).await;
    let stock = Hop::start("stock", &collector.endpoint, None).await;
    let orders = Hop::start("orders", &collector.endpoint, Some(format!("http://127.0.0.1:{}", stock.port))).await;
    // Nothing listens at the second address: a channel to several servers picks one.
    let refusing = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let target = format!("grpc://127.0.0.1:{},grpc://{refusing}", orders.port);
    let front = Hop::start("front", &collector.endpoint, Some(target)).await;

    let spans = OtlpSpans::start(&collector.settings("shop")).unwrap();
    let bridge = TraceBridge::new(SdkTracerProvider::builder().with_batch_exporter(spans));
    let hearing = tracing::subscriber::set_default(tracing_subscriber::registry().with(bridge.layer()));
    let channel = Channel::builder().layer(Trace::for_channel());
    let client = GreeterClient::new(channel.connect(format!("tcp://127.0.0.1:{}", front.port)).await.unwrap());
    let answer = client.say_hello(HelloRequest { name: "Ada".to_owned() }).await.unwrap();
    assert_eq!(answer.get_ref().message, "Hello Ada!");
    drop((client, hearing));
    end(bridge).await;
    for hop in [front, orders, stock] {
        hop.end().await;
    }
    collector.output().await
}

/// A process that passes calls on.
struct Hop {
    process: Child,
    port: u16,
}

impl Hop {
    async fn start(name: &str, collector: &str, target: Option<String>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_traced_hop"));
        command.args([name, collector]).args(target);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut port).await.unwrap();
        Self { process, port: port.trim().parse().expect("the process prints its port") }
    }

    async fn end(mut self) {
        drop(self.process.stdin.take());
        assert!(self.process.wait().await.unwrap().success());
    }
}

/// A running collector, whose output is read all the time: with a full pipe, it would not answer exports.
struct Collector {
    process: Child,
    endpoint: String,
    output: JoinHandle<String>,
}

impl Collector {
    async fn start(program: &Path) -> Self {
        let mut command = Command::new(program);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let mut endpoint = String::new();
        stdout.read_line(&mut endpoint).await.unwrap();
        let output = tokio::spawn(async move {
            let mut output = String::new();
            stdout.read_to_string(&mut output).await.unwrap();
            output
        });
        Self { process, endpoint: endpoint.trim().to_owned(), output }
    }

    fn settings(&self, service: &str) -> OtlpSettings {
        OtlpSettings {
            endpoint: self.endpoint.clone(),
            resource: vec![("service.name".to_owned(), service.to_owned())],
            ..OtlpSettings::default()
        }
    }

    /// Ends the collector, and returns everything it has printed.
    async fn output(mut self) -> String {
        // It ends with its input.
        drop(self.process.stdin.take());
        assert!(self.process.wait().await.unwrap().success());
        self.output.await.unwrap()
    }
}

#[derive(Clone, Debug, Default)]
struct PrintedSpan {
    service: String,
    name: String,
    kind: String,
    trace: String,
    id: String,
    parent: String,
    system: String,
}

/// Reads the spans in the text of the debug exporter.
fn spans_of(output: &str) -> Vec<PrintedSpan> {
    let (mut spans, mut service) = (Vec::<PrintedSpan>::new(), String::new());
    for line in output.lines() {
        let line = line.trim();
        if line.starts_with("Span #") {
            spans.push(PrintedSpan { service: service.clone(), ..PrintedSpan::default() });
        }
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim().to_owned();
        if key == "-> service.name" {
            service = value.trim_start_matches("Str(").trim_end_matches(')').to_owned();
        }
        let Some(span) = spans.last_mut() else { continue };
        match key.trim_end() {
            "Name" => span.name = value,
            "Kind" => span.kind = value,
            "Trace ID" => span.trace = value,
            "ID" => span.id = value,
            "Parent ID" => span.parent = value,
            "-> rpc.system.name" => span.system = value.trim_start_matches("Str(").trim_end_matches(')').to_owned(),
            _ => {}
        }
    }
    spans
}
