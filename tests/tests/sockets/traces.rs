//! One trace through three servers over three wires.

use std::time::Duration;

use frpc::{
    Call, Channel, Code, Config, Layer, Metadata, Request, Response, Server, Status, Streaming, TraceContext,
    interceptor,
    layers::{Trace, TraceSampling},
};
use frpc_http::Http;
use frpc_jsonrpc::JsonRpc;
use support::{
    EventLog, ThreadLog,
    calls::{TestClient, TestServer, Words, schema::test_server::Test, words},
    in_real_time,
};
use tracing::Level;

/// Calls the next server, if there is one.
struct Relay(Option<TestClient>);

impl Test for Relay {
    async fn say(&self, request: Request<Words>) -> Result<Response<Words>, Status> {
        match &self.0 {
            Some(next) => next.say(request.into_inner()).await,
            None => Ok(request.into_inner().into()),
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

/// Notes the trace context of each received call.
fn noting(log: &EventLog) -> impl Layer {
    let log = log.clone();
    interceptor(move |call: &mut Call| {
        let metadata = call.head().metadata();
        let state = metadata.get("tracestate").unwrap_or_default();
        log.add(format!("{} {state}", metadata.get("traceparent").unwrap_or_default()));
        Ok(())
    })
}

/// Serves on a port, and returns a client for a wire.
async fn serve(scheme: &str, next: Option<TestClient>, log: &EventLog, trace: Trace) -> (Server, TestClient) {
    let server = Server::builder().layer(noting(log)).layer(trace).add_service(TestServer::new(Relay(next)));
    let server = server.wire(Http::new()).bind("tcp://127.0.0.1:0").await.unwrap();
    let address = server.local_addr().to_string().replace("tcp://", &format!("{scheme}://"));
    let channel = Channel::builder().transport(frpc_http::transport()).connect(address).await.unwrap();
    (server, TestClient::new(channel))
}

/// Calls through three servers, and returns the contexts received by them in the order of the calls.
async fn call_with(metadata: Metadata, trace: Trace) -> Vec<String> {
    let log = EventLog::default();
    let (_last, client) = serve("http", None, &log, trace).await;
    let (_second, client) = serve("grpc", Some(client), &log, trace).await;
    let (_first, client) = serve("tcp", Some(client), &log, trace).await;
    let mut request = Request::new(words("hi"));
    *request.metadata_mut() = metadata;
    assert_eq!(client.say(request).await.unwrap().into_inner().text, "hi");
    log.take()
}

fn metadata(parent: &str) -> Metadata {
    let mut metadata = Metadata::new();
    metadata.insert("traceparent", parent).unwrap();
    metadata.insert("tracestate", "congo=t61,rojo=00f").unwrap();
    metadata
}

const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

#[test]
fn an_unsampled_context_crosses_three_wires_unchanged() {
    in_real_time(async {
        let parent = format!("00-{ID}-00f067aa0ba902b7-00");
        for trace in [Trace::new(), Trace::new().sampling(TraceSampling::Never)] {
            let seen = call_with(metadata(&parent), trace).await;
            assert_eq!(seen, [(); 3].map(|()| format!("{parent} congo=t61,rojo=00f")));
        }
    });
}

#[test]
fn sampled_spans_form_one_tree_over_three_wires() {
    // All servers on this thread, whose log has their spans.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let log = ThreadLog::hear(Level::DEBUG);
        let parent = format!("00-{ID}-00f067aa0ba902b7-01");
        let seen = call_with(metadata(&parent), Trace::new()).await;
        assert!(seen.iter().all(|line| line.ends_with("congo=t61,rojo=00f")), "{seen:?}");
        let contexts: Vec<TraceContext> =
            seen.iter().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
        assert_eq!(contexts[0].to_string(), parent);
        assert!(
            contexts.iter().all(|context| context.trace_id().to_string() == ID && context.is_sampled()),
            "{seen:?}"
        );
        // The answered calls, the innermost first. Each span is a child of the one around it.
        let spans: Vec<String> = log.take().into_iter().filter(|line| line.contains("call answered")).collect();
        assert_eq!(spans.len(), 3, "{spans:?}");
        for (span, context) in spans.iter().rev().zip(&contexts) {
            assert!(span.contains(&format!("trace_id={ID} ")), "{span}");
            assert!(span.contains(&format!("parent_span_id={}", context.span_id())), "{span}");
        }
        for (span, context) in spans.iter().rev().zip(&contexts[1..]) {
            assert!(span.contains(&format!(" span_id={}", context.span_id())), "{span}");
        }
    });
}

#[test]
fn calls_of_a_connection_keep_their_own_contexts_and_timeouts() {
    in_real_time(async {
        let log = EventLog::default();
        let noting = {
            let log = log.clone();
            interceptor(move |call: &mut Call| {
                let of = |name| call.head().metadata().get(name).unwrap_or_default().to_owned();
                let hours = call.head().timeout().map(|timeout| timeout.as_secs().div_ceil(3600));
                log.add(format!("{} {} {} {hours:?}", of("traceparent"), of("tracestate"), of("x-user")));
                Ok(())
            })
        };
        let server = Server::builder().wire(Http::new()).layer(noting).add_service(TestServer::new(Relay(None)));
        let server = server.bind("tcp://127.0.0.1:0").await.unwrap();
        for scheme in ["tcp", "grpc", "http"] {
            let address = server.local_addr().to_string().replace("tcp", scheme);
            let channel = Channel::builder().transport(frpc_http::transport()).connect(address).await.unwrap();
            let client = TestClient::new(channel);
            for number in 0..60_u64 {
                let mut request = Request::new(words("hi"));
                let text = |is_there: bool, text: String| if is_there { text } else { String::new() };
                let parent = text(number % 5 > 0, format!("00-{ID}-{:016x}-00", number + 1));
                let state = text(number % 3 == 0, format!("a={number}"));
                let user = text(number % 7 > 3, format!("{}", number % 2));
                for (name, value) in [("x-user", &user), ("traceparent", &parent), ("tracestate", &state)] {
                    if !value.is_empty() {
                        request.metadata_mut().insert(name, value).unwrap();
                    }
                }
                let hours = if number % 4 == 0 { number + 2 } else { 1 };
                if hours > 1 {
                    request.set_timeout(Duration::from_secs(hours * 3600));
                }
                assert_eq!(client.say(request).await.unwrap().into_inner().text, "hi");
                assert_eq!(log.take(), [format!("{parent} {state} {user} {:?}", Some(hours))], "{scheme} {number}");
            }
        }
    });
}

#[test]
fn wires_without_metadata_carry_calls_without_their_context() {
    in_real_time(async {
        let log = EventLog::default();
        let plain = Config { extended: false, ..Config::default() };
        let server = Server::builder().config(plain).wire(JsonRpc::new()).layer(noting(&log));
        let server = server.add_service(TestServer::new(Relay(None))).bind("tcp://127.0.0.1:0").await.unwrap();
        let address = server.local_addr().to_string();
        for address in [address.clone(), address.replace("tcp://", "jsonrpc+tcp://")] {
            let channel = Channel::builder().transport(frpc_jsonrpc::transport()).connect(&address).await.unwrap();
            let client = TestClient::new(channel.layer(Trace::for_channel()));
            let mut request = Request::new(words("hi"));
            *request.metadata_mut() = metadata(&format!("00-{ID}-00f067aa0ba902b7-01"));
            assert_eq!(client.say(request).await.unwrap().into_inner().text, "hi", "{address}");
            assert_eq!(log.take(), [" "], "{address}");
            let mut request = Request::new(words("hi"));
            request.metadata_mut().insert("color", "red").unwrap();
            assert_eq!(client.say(request).await.unwrap_err().code(), Code::FailedPrecondition, "{address}");
        }
    });
}

#[test]
fn invalid_contexts_are_not_passed_on() {
    in_real_time(async {
        for parent in ["00-1", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", ""] {
            let seen = call_with(metadata(parent), Trace::new().sampling(TraceSampling::ParentOr(0.0))).await;
            assert!(seen[0].starts_with(&format!("{parent} ")), "{seen:?}");
            for later in &seen[1..] {
                let context: TraceContext = later.split(' ').next().unwrap().parse().unwrap();
                assert!(!context.is_sampled() && later.ends_with(' '), "a new trace without a span: {later}");
            }
        }
    });
}
