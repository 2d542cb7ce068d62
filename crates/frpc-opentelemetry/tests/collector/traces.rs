//! Spans of calls, with the ids on the wire.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, mpsc},
    thread,
};

use frpc::{
    Body, Channel, Request, Response, Server, Status, Streaming, TraceContext,
    generated::{Answer, Call, Method, Service},
    layers::{Trace, TraceSampling},
    prost::Message,
};
use frpc_http::Http;
use frpc_opentelemetry::{CurrentSpan, OtlpError, OtlpSettings, OtlpSpans, TraceBridge};
use opentelemetry::{
    Value,
    trace::{SpanId, SpanKind, Status as SpanStatus},
};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider, SpanData, SpanExporter},
};
use support::{
    calls::{TestClient, TestServer, Words, schema::test_server::Test, words},
    in_real_time,
};
use tokio::{runtime, sync::oneshot};
use tracing::{
    Event, Instrument, Subscriber,
    field::{Field, Visit},
    info_span,
    subscriber::DefaultGuard,
};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt},
};

/// Keeps the exported spans.
#[derive(Clone, Debug, Default)]
struct KeptSpans(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for KeptSpans {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

impl KeptSpans {
    /// Exports the spans of this thread from now on.
    fn hear(&self) -> DefaultGuard {
        let bridge = TraceBridge::new(SdkTracerProvider::builder().with_simple_exporter(self.clone()));
        tracing::subscriber::set_default(tracing_subscriber::registry().with(bridge.layer()))
    }

    fn take(&self) -> Vec<SpanData> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Calls the next server inside a span of its own, or answers with the trace context of the call.
struct Relay(Option<TestClient>);

impl Test for Relay {
    async fn say(&self, request: Request<Words>) -> Result<Response<Words>, Status> {
        let text = request.into_inner().text;
        match &self.0 {
            Some(next) => next.say(words(&text)).instrument(info_span!("work")).await,
            None if text == "fail" => Err(Status::internal("as told")),
            None => {
                let trace = TraceContext::current().map(|trace| format!("{trace} {}", trace.state()));
                Ok(words(trace.unwrap_or_default()).into())
            }
        }
    }

    async fn count(&self, _: Request<Words>) -> Result<Response<Streaming<Words>>, Status> {
        Err(Status::unimplemented("unused"))
    }

    async fn gather(&self, _: Request<Streaming<Words>>) -> Result<Response<Words>, Status> {
        Err(Status::unimplemented("unused"))
    }

    async fn chat(&self, _: Request<Streaming<Words>>) -> Result<Response<Streaming<Words>>, Status> {
        Err(Status::unimplemented("unused"))
    }
}

/// A server with a thread, a runtime and a subscriber of its own, in place of a process.
struct Process {
    address: String,
    end: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Process {
    fn start(spans: &KeptSpans, next: Option<&Process>, trace: Trace) -> Self {
        let (spans, next) = (spans.clone(), next.map(|next| next.address.clone()));
        let (send_address, address) = mpsc::channel();
        let (end, ended) = oneshot::channel();
        let thread = thread::spawn(move || {
            let _hearing = spans.hear();
            runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
                let next = match next {
                    Some(address) => Some(connect(&address.replace("tcp://", "grpc://")).await),
                    None => None,
                };
                let server = Server::builder().layer(trace).wire(Http::new());
                let server = server.add_service(TestServer::new(Relay(next))).bind("tcp://127.0.0.1:0").await.unwrap();
                send_address.send(server.local_addr().to_string()).unwrap();
                let _ = ended.await;
                server.shutdown(support::SECOND).await;
            });
        });
        Self { address: address.recv().unwrap(), end: Some(end), thread: Some(thread) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.end.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

async fn connect(address: &str) -> TestClient {
    let builder = Channel::builder().transport(frpc_http::transport()).layer(CurrentSpan).layer(Trace::for_channel());
    TestClient::new(builder.connect(address).await.unwrap())
}

/// Runs the test of a client on one thread.
fn on_one_thread(test: impl Future<Output = ()>) {
    runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

fn attribute<'a>(span: &'a SpanData, key: &str) -> Option<&'a str> {
    let found = span.attributes.iter().rev().find(|attribute| attribute.key.as_str() == key)?;
    match &found.value {
        Value::String(text) => Some(text.as_str()),
        other => panic!("{key}: {other:?}"),
    }
}

#[test]
fn a_trace_through_three_processes_is_one_tree() {
    let spans = KeptSpans::default();
    let last = Process::start(&spans, None, Trace::new());
    let first = Process::start(&spans, Some(&last), Trace::new());
    let mut received = String::new();
    on_one_thread(async {
        let _hearing = spans.hear();
        let client = connect(&first.address).await;
        let job = client.say(words("hi")).instrument(info_span!("job"));
        received = job.await.unwrap().into_inner().text;
    });
    drop((first, last));

    let spans = spans.take();
    let by_id: HashMap<SpanId, &SpanData> = spans.iter().map(|span| (span.span_context.span_id(), span)).collect();
    // From the innermost span to the root.
    let trace: TraceContext = received.trim().parse().unwrap();
    let mut path = vec![by_id[&SpanId::from_bytes(trace.span_id().to_bytes())]];
    while let Some(parent) = by_id.get(&path[path.len() - 1].parent_span_id) {
        path.push(parent);
    }
    let say = "calls.Test/Say";
    let steps: Vec<_> = path.iter().map(|span| (&*span.name, span.span_kind.clone())).collect();
    let (server, client) = ((say, SpanKind::Server), (say, SpanKind::Client));
    let expected =
        [server.clone(), client.clone(), ("work", SpanKind::Internal), server, client, ("job", SpanKind::Internal)];
    assert_eq!((steps, spans.len()), (expected.to_vec(), expected.len()));
    assert_eq!(path[5].parent_span_id, SpanId::INVALID);
    for span in &spans {
        assert_eq!(span.span_context.trace_id().to_bytes(), trace.trace_id().to_bytes());
        let is_remote = span.span_kind == SpanKind::Server;
        assert_eq!(span.parent_span_is_remote, is_remote, "{span:?}");
    }
    for span in spans.iter().filter(|span| span.name == say) {
        let id = span.span_context.span_id();
        let over_grpc = path[..2].iter().any(|step| step.span_context.span_id() == id);
        assert_eq!(attribute(span, "rpc.system.name"), Some(if over_grpc { "grpc" } else { "frpc" }));
        assert_eq!(attribute(span, "rpc.method"), Some(say));
        for key in ["trace_id", "span_id", "parent_span_id"] {
            assert_eq!(attribute(span, key), None, "{span:?}");
        }
    }
}

#[test]
fn calls_without_a_span_begin_a_trace() {
    let spans = KeptSpans::default();
    let server = Process::start(&spans, None, Trace::new());
    on_one_thread(async {
        let _hearing = spans.hear();
        connect(&server.address).await.say(words("fail")).await.unwrap_err();
    });
    drop(server);
    let spans = spans.take();
    let [client, server] = &spans[..] else { panic!("{spans:?}") };
    let (server, client) = if server.span_kind == SpanKind::Server { (server, client) } else { (client, server) };
    assert_eq!(client.parent_span_id, SpanId::INVALID);
    assert_eq!(server.parent_span_id, client.span_context.span_id());
    assert_eq!(server.span_context.trace_id(), client.span_context.trace_id());
    for span in [server, client] {
        assert_eq!(attribute(span, "error.type"), Some("INTERNAL"));
        assert_eq!(attribute(span, "rpc.status_code"), Some("INTERNAL"));
        assert_eq!(span.status, SpanStatus::error("as told"));
        let events: Vec<_> = span.events.iter().map(|event| &*event.name).collect();
        assert_eq!(events, ["rpc.message", "call failed"]);
    }
}

#[test]
fn spans_in_unsampled_calls_are_not_exported() {
    let spans = KeptSpans::default();
    let last = Process::start(&spans, None, Trace::new());
    let first = Process::start(&spans, Some(&last), Trace::new().sampling(TraceSampling::ParentOr(0.0)));
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    on_one_thread(async {
        let client = TestClient::connect(&*first.address).await.unwrap();
        let mut request = Request::new(words("hi"));
        request.metadata_mut().insert("traceparent", parent).unwrap();
        request.metadata_mut().insert("tracestate", "congo=t61").unwrap();
        let received = client.say(request).await.unwrap().into_inner().text;
        // The span of the handler has an id but is not recorded.
        assert!(received.starts_with(&parent[..36]) && received.ends_with("-00 congo=t61"), "{received}");
        client.say(words("hi")).await.unwrap();
    });
    drop((first, last));
    assert_eq!(spans.take(), []);
}

#[test]
fn a_closer_parent_keeps_the_state_of_the_trace() {
    let spans = KeptSpans::default();
    let last = Process::start(&spans, None, Trace::new());
    let first = Process::start(&spans, Some(&last), Trace::new());
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    on_one_thread(async {
        let client = TestClient::connect(&*first.address).await.unwrap();
        let mut request = Request::new(words("hi"));
        request.metadata_mut().insert("traceparent", parent).unwrap();
        request.metadata_mut().insert("tracestate", "congo=t61").unwrap();
        let received = client.say(request).await.unwrap().into_inner().text;
        assert!(received.starts_with(&parent[..36]) && received.ends_with("-01 congo=t61"), "{received}");
    });
    drop((first, last));
    let spans = spans.take();
    let find = |kind: SpanKind| spans.iter().find(move |span| span.span_kind == kind).unwrap();
    assert_eq!(find(SpanKind::Client).parent_span_id, find(SpanKind::Internal).span_context.span_id());
}

#[test]
fn a_trace_context_of_a_call_takes_precedence() {
    let spans = KeptSpans::default();
    let server = Process::start(&spans, None, Trace::new());
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    on_one_thread(async {
        let _hearing = spans.hear();
        let client = connect(&server.address).await;
        let mut request = Request::new(words("hi"));
        request.metadata_mut().insert("traceparent", parent).unwrap();
        let received = client.say(request).instrument(info_span!("job")).await.unwrap().into_inner().text;
        assert_eq!(received[..36], parent[..36]);
    });
    drop(server);
    let spans = spans.take();
    let client = spans.iter().find(|span| span.span_kind == SpanKind::Client).unwrap();
    assert_eq!(client.parent_span_id.to_string(), "00f067aa0ba902b7");
    assert!(client.parent_span_is_remote);
}

/// The traces service of a collector, with the messages of `opentelemetry-proto`.
#[derive(Clone, Default)]
struct FakeTraces(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

impl Service for FakeTraces {
    const NAME: &'static str = "opentelemetry.proto.collector.trace.v1.TraceService";
    const METHODS: &'static [Method] = &[Method::unary(Self::NAME, "Export", 10)];

    async fn call(&self, _: usize, call: Call) -> Result<Answer, Status> {
        let Body::One(message) = call.into_parts().1 else { panic!("it is a unary call") };
        let request = ExportTraceServiceRequest::decode(message.into_bytes()).unwrap();
        self.0.lock().unwrap().push(request);
        Ok(Answer::new(Body::from(ExportTraceServiceResponse::default().encode_to_vec())))
    }
}

#[test]
fn spans_arrive_at_the_collector_over_grpc() {
    in_real_time(async {
        let traces = FakeTraces::default();
        let collector = Server::builder().wire(Http::new()).add_service(traces.clone());
        let collector = collector.bind("tcp://127.0.0.1:0").await.unwrap();
        let settings = OtlpSettings {
            endpoint: collector.local_addr().to_string().replace("tcp://", "grpc://"),
            resource: vec![("service.name".to_owned(), "orders".to_owned())],
            ..OtlpSettings::default()
        };
        // The provider waits for the exporter on the only thread of a runtime.
        let program = thread::spawn(move || {
            on_one_thread(async {
                let spans = OtlpSpans::start(&settings).unwrap();
                let bridge = TraceBridge::new(SdkTracerProvider::builder().with_batch_exporter(spans));
                let subscriber = tracing_subscriber::registry().with(bridge.layer());
                let _hearing = tracing::subscriber::set_default(subscriber);
                let channel = Channel::in_process(TestServer::new(Relay(None))).layer(Trace::for_channel());
                TestClient::new(channel).say(words("hi")).await.unwrap();
                bridge.provider().shutdown().unwrap();
            });
        });
        tokio::task::spawn_blocking(|| program.join()).await.unwrap().unwrap();
        let requests = traces.0.lock().unwrap();
        let [request] = &requests[..] else { panic!("{requests:?}") };
        let text = format!("{request:?}");
        assert!(text.contains("\"orders\"") && text.contains("service.instance.id"), "{text}");
        let [resource] = &request.resource_spans[..] else { panic!("{text}") };
        let [scope] = &resource.scope_spans[..] else { panic!("{text}") };
        assert_eq!(scope.scope.as_ref().unwrap().name, "frpc");
        assert_eq!(scope.spans[0].name, "calls.Test/Say");
    });
}

#[test]
fn an_invalid_endpoint_is_an_error_inside_a_runtime_too() {
    on_one_thread(async {
        let settings = OtlpSettings { endpoint: "collector".to_owned(), ..OtlpSettings::default() };
        assert!(matches!(OtlpSpans::start(&settings), Err(OtlpError::Endpoint(_))));
    });
}

#[test]
fn an_unreachable_collector_fails_an_export_within_the_timeout() {
    in_real_time(async {
        let closed = Server::builder().add_service(FakeTraces::default()).bind("tcp://127.0.0.1:0").await.unwrap();
        let endpoint = closed.local_addr().to_string().replace("tcp://", "grpc://");
        closed.shutdown(support::SECOND).await;
        let timeout = std::time::Duration::from_millis(50);
        let spans = OtlpSpans::start(&OtlpSettings { endpoint, timeout, ..OtlpSettings::default() }).unwrap();
        spans.export(Vec::new()).await.unwrap_err();
    });
}

/// Exports nothing until the sender is gone.
#[derive(Debug)]
struct HeldSpans {
    spans: KeptSpans,
    held: Mutex<mpsc::Receiver<()>>,
}

impl SpanExporter for HeldSpans {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let _ = self.held.lock().unwrap().recv();
        self.spans.export(batch).await
    }
}

/// Keeps the number of dropped spans in warnings of the SDK.
#[derive(Clone, Default)]
struct DroppedSpans(Arc<Mutex<Vec<u64>>>);

impl<S: Subscriber> Layer<S> for DroppedSpans {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        event.record(&mut self.clone());
    }
}

impl Visit for DroppedSpans {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "dropped_span_count" {
            self.0.lock().unwrap().push(value);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

#[test]
fn the_provider_reports_the_spans_that_a_full_queue_drops() {
    const MADE: u64 = 50;
    let (spans, dropped, (release, held)) = (KeptSpans::default(), DroppedSpans::default(), mpsc::channel());
    let exporter = HeldSpans { spans: spans.clone(), held: Mutex::new(held) };
    let config = BatchConfigBuilder::default().with_max_queue_size(4).with_max_export_batch_size(2).build();
    let processor = BatchSpanProcessor::builder(exporter).with_batch_config(config).build();
    let bridge = TraceBridge::new(SdkTracerProvider::builder().with_span_processor(processor));
    let subscriber = tracing_subscriber::registry().with(bridge.layer()).with(dropped.clone());
    let _hearing = tracing::subscriber::set_default(subscriber);
    for _ in 0..MADE {
        drop(info_span!("work"));
    }
    drop(release);
    bridge.provider().shutdown().unwrap();
    let reported = dropped.0.lock().unwrap().clone();
    let arrived: u64 = spans.take().len().try_into().unwrap();
    // The exporter holds one batch, and the queue four spans.
    assert!((1..=6).contains(&arrived), "{arrived}");
    assert_eq!(reported, [MADE - arrived]);
}
