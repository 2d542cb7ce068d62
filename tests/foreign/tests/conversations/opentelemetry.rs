//! Metrics and spans at an OpenTelemetry Collector. Its program is in `collector/`.

use std::process::Stdio;

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
    process::Command,
    runtime,
    task::spawn_blocking,
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
    let output = runtime.block_on(async { timeout(LIMIT, output_after_calls(Command::new(program))).await.unwrap() });

    for expected in [
        "service.name: Str(orders)",
        "InstrumentationScope frpc",
        "Name: rpc.server.call.duration",
        "Name: rpc.client.call.duration",
        "Name: grpc.server.call.started",
        "Name: frpc.server.calls_in_flight",
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
async fn output_after_calls(mut collector: Command) -> String {
    let mut collector = collector
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the collector starts");
    let mut stdout = BufReader::new(collector.stdout.take().unwrap());
    let mut endpoint = String::new();
    stdout.read_line(&mut endpoint).await.unwrap();
    // Read all the time: with a full pipe, the collector would not answer exports.
    let output = tokio::spawn(async move {
        let mut output = String::new();
        stdout.read_to_string(&mut output).await.unwrap();
        output
    });
    let settings = OtlpSettings {
        endpoint: endpoint.trim().to_owned(),
        resource: vec![("service.name".to_owned(), "orders".to_owned())],
        ..OtlpSettings::default()
    };
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
    // The provider blocks its thread, and the output has to be read meanwhile.
    spawn_blocking(move || bridge.provider().shutdown().unwrap()).await.unwrap();
    // The collector ends with its input.
    drop(collector.stdin.take());
    assert!(collector.wait().await.unwrap().success());
    output.await.unwrap()
}

#[derive(Debug, Default)]
struct PrintedSpan {
    name: String,
    kind: String,
    trace: String,
    id: String,
    parent: String,
}

/// Reads the spans in the text of the debug exporter.
fn spans_of(output: &str) -> Vec<PrintedSpan> {
    let mut spans = Vec::new();
    for part in output.split("Span #").skip(1) {
        let mut span = PrintedSpan::default();
        for line in part.lines().take_while(|line| !line.starts_with("Events") && !line.starts_with("Attributes")) {
            let Some((key, value)) = line.split_once(':') else { continue };
            let field = match key.trim() {
                "Name" => &mut span.name,
                "Kind" => &mut span.kind,
                "Trace ID" => &mut span.trace,
                "ID" => &mut span.id,
                "Parent ID" => &mut span.parent,
                _ => continue,
            };
            *field = value.trim().to_owned();
        }
        spans.push(span);
    }
    spans
}
