//! The exporter of metrics.

use std::time::{Duration, SystemTime};

use frpc::{Channel, Code, Metadata, Server, Status};
use frpc_http::Http;
use frpc_opentelemetry::{
    ExportError, HistogramFormat, OtlpError, OtlpMetrics, OtlpSettings,
    protos::opentelemetry::proto::{
        collector::metrics::v1::metrics_service_server::MetricsServiceServer, metrics::v1::metric::Data,
    },
};
use support::{
    Gate, SECOND, assert_elapsed,
    calls::{TestClient, TestServer, TestService, words},
    in_real_time, in_virtual_time, settle,
};
use tokio::time::{Instant, sleep};

use crate::fake::{FakeAnswer, FakeCollector, calls_of, only_resource, text_of};

/// Serves a collector and a test service on an address.
async fn serve(collector: &FakeCollector, address: &str) -> (Server, String) {
    let server = Server::builder()
        .wire(Http::new())
        .add_service(MetricsServiceServer::new(collector.clone()))
        .add_service(TestServer::new(TestService::default()));
    let server = server.bind(address).await.unwrap();
    let address = server.local_addr().to_string();
    (server, address)
}

fn settings(address: &str) -> OtlpSettings {
    let resource = vec![("service.name".to_owned(), "orders".to_owned())];
    OtlpSettings { endpoint: address.replace("tcp://", "grpc://"), resource, ..OtlpSettings::default() }
}

/// Makes a call, because a process without counters exports nothing.
async fn count_a_call() {
    let client = TestClient::new(Channel::in_process(TestServer::new(TestService::default())));
    client.say(words("hi")).await.unwrap();
}

/// Exports to a collector without a network.
async fn in_process(collector: &FakeCollector) -> OtlpMetrics {
    count_a_call().await;
    let channel = Channel::in_process(MetricsServiceServer::new(collector.clone()));
    OtlpMetrics::over(channel, OtlpSettings::default()).unwrap()
}

#[test]
fn the_counters_of_servers_and_channels_arrive_at_the_collector() {
    in_real_time(async {
        for histograms in [HistogramFormat::Explicit, HistogramFormat::Exponential] {
            let collector = FakeCollector::default();
            let (_server, address) = serve(&collector, "tcp://127.0.0.1:0").await;
            let client = TestClient::connect(&*address).await.unwrap();
            for _ in 0..3 {
                client.say(words("hi")).await.unwrap();
            }
            assert_eq!(client.say(words("fail 5 gone")).await.unwrap_err().code(), Code::NotFound);

            let mut headers = Metadata::new();
            headers.insert("api-key", "s3cret").unwrap();
            let metrics = OtlpMetrics::start(OtlpSettings { headers, histograms, ..settings(&address) }).unwrap();
            metrics.shutdown().await.unwrap();
            let requests = collector.take();
            let [request] = &requests[..] else { panic!("{requests:?}") };
            assert_eq!(request.metadata().get("api-key"), Some("s3cret"));

            let (resource, metrics) = only_resource(request.get_ref());
            let attributes = &resource.resource.as_ref().unwrap().attributes;
            assert_eq!(text_of(attributes, "service.name"), Some("orders"));
            assert!(text_of(attributes, "service.instance.id").is_some());
            for name in ["rpc.server.call.duration", "rpc.client.call.duration"] {
                let (count, sum) = calls_of(&metrics, name, "calls.Test/Say").unwrap();
                assert!(count >= 3 && sum > 0.0, "{name}: {count}, {sum}");
            }
            let started = metrics.iter().find(|metric| metric.name == "grpc.server.call.started").unwrap();
            let Some(Data::Sum(sum)) = &started.data else { panic!("{started:?}") };
            let point = &sum.data_points[0];
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
            assert!(point.start_time_unix_nano < point.time_unix_nano && u128::from(point.time_unix_nano) <= now);
            // The exports of the exporter are no calls of the program.
            let target = address.replace("tcp://", "grpc://");
            assert!(!format!("{metrics:?}").contains(&target), "{metrics:?}");
        }
    });
}

#[test]
fn exports_continue_after_the_collector_restarts() {
    in_real_time(async {
        let collector = FakeCollector::default();
        let (server, address) = serve(&collector, "tcp://127.0.0.1:0").await;
        count_a_call().await;
        let metrics = OtlpMetrics::start(settings(&address)).unwrap();
        metrics.flush().await.unwrap();
        server.shutdown(SECOND).await;
        let (_server, _) = serve(&collector, &address).await;
        metrics.flush().await.unwrap();
        assert_eq!(collector.received(), 2);
    });
}

#[test]
fn an_unreachable_collector_fails_a_flush_within_the_timeout() {
    in_real_time(async {
        let (server, address) = serve(&FakeCollector::default(), "tcp://127.0.0.1:0").await;
        server.shutdown(SECOND).await;
        count_a_call().await;
        let timeout = Duration::from_millis(50);
        let metrics = OtlpMetrics::start(OtlpSettings { timeout, ..settings(&address) }).unwrap();
        let error = metrics.flush().await.unwrap_err();
        assert!(matches!(error, ExportError::Timeout | ExportError::Call(_)), "{error:?}");
        metrics.shutdown().await.unwrap_err();
    });
}

#[test]
fn metrics_are_exported_once_per_interval() {
    in_virtual_time(async {
        let collector = FakeCollector::default();
        let metrics = in_process(&collector).await;
        for exports in 0..4 {
            settle().await;
            assert_eq!(collector.received(), exports);
            sleep(60 * SECOND).await;
        }
        drop(metrics);
        settle().await;
        // The task has ended and keeps nothing.
        assert_eq!(collector.users(), 1);
    });
}

#[test]
fn the_longest_interval_means_exports_on_request_only() {
    in_virtual_time(async {
        let collector = FakeCollector::default();
        count_a_call().await;
        let channel = Channel::in_process(MetricsServiceServer::new(collector.clone()));
        let settings = OtlpSettings { interval: Duration::MAX, timeout: Duration::MAX, ..OtlpSettings::default() };
        let metrics = OtlpMetrics::over(channel, settings).unwrap();
        sleep(3600 * SECOND).await;
        assert_eq!(collector.received(), 0);
        metrics.flush().await.unwrap();
        assert!(collector.received() > 0);
    });
}

#[test]
fn a_stuck_collector_delays_a_flush_by_the_timeout_and_queues_nothing() {
    in_virtual_time(async {
        let collector = FakeCollector::default();
        let metrics = in_process(&collector).await;
        collector.answer(FakeAnswer::Gate(Gate::default()));
        sleep(61 * SECOND).await;
        // The regular export is stuck since one second, and the flush waits for it to fail.
        let start = Instant::now();
        metrics.flush().await.unwrap();
        assert_elapsed(start, 9 * SECOND);
        assert_eq!(collector.received(), 2);

        collector.answer(FakeAnswer::Gate(Gate::default()));
        let start = Instant::now();
        let error = metrics.flush().await.unwrap_err();
        assert!(matches!(error, ExportError::Timeout | ExportError::Call(_)), "{error:?}");
        assert_elapsed(start, 10 * SECOND);
        metrics.flush().await.unwrap();
        assert_eq!(collector.received(), 4);
    });
}

#[test]
fn a_shutdown_replaces_a_stuck_export_and_waits_for_the_timeout_at_most() {
    in_virtual_time(async {
        for (gates, limit) in [(1, Duration::ZERO), (2, 10 * SECOND)] {
            let collector = FakeCollector::default();
            let metrics = in_process(&collector).await;
            (0..gates).for_each(|_| collector.answer(FakeAnswer::Gate(Gate::default())));
            sleep(61 * SECOND).await;
            let start = Instant::now();
            assert_eq!(metrics.shutdown().await.is_ok(), gates == 1);
            assert_elapsed(start, limit);
            assert_eq!(collector.received(), 2);
            settle().await;
            assert_eq!(collector.users(), 1);
        }
    });
}

#[test]
fn failures_have_types() {
    in_virtual_time(async {
        let collector = FakeCollector::default();
        let metrics = in_process(&collector).await;
        collector.answer(FakeAnswer::Status(Status::unauthenticated("no key")));
        match metrics.flush().await {
            Err(ExportError::Call(status)) => assert_eq!(status.code(), Code::Unauthenticated),
            other => panic!("{other:?}"),
        }
        collector.answer(FakeAnswer::Rejected(7));
        let error = metrics.flush().await.unwrap_err();
        assert_eq!(error.to_string(), "the collector rejected 7 items: too old\\u{7}");
        metrics.shutdown().await.unwrap();

        for (settings, expected) in [
            (
                OtlpSettings { interval: Duration::ZERO, ..OtlpSettings::default() },
                "the interval of the exporter is zero",
            ),
            (
                OtlpSettings { timeout: Duration::ZERO, ..OtlpSettings::default() },
                "the timeout of the exporter is zero",
            ),
        ] {
            assert_eq!(OtlpMetrics::start(settings).unwrap_err().to_string(), expected);
        }
        let settings = OtlpSettings { endpoint: "collector".to_owned(), ..OtlpSettings::default() };
        assert!(matches!(OtlpMetrics::start(settings), Err(OtlpError::Endpoint(_))));
    });
}
