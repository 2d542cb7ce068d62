//! The page of metrics: the families of a process that has made calls.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path};

use frisbee_pubsub::Broker;
use frpc::{
    Channel, Server,
    metrics::{DurationHistogram, MetricFamily, MetricKind, MetricsSnapshot, TextFormat, write_text},
};
use frpc_http::Http;
use support::calls::{TestClient, TestServer, TestService, ask};

use crate::{
    ROOT,
    pages::{heading, update},
};

/// Returns the metrics of servers, channels and a broker after calls. Every metric of a call has a point.
async fn families() -> Vec<MetricFamily> {
    let broker = Broker::new();
    broker.export_metrics("orders");
    let server = || Server::builder().add_service(TestServer::new(TestService::default()));
    let addresses: [_; 2] = std::array::from_fn(|_| format!("mem:guide-{:x}", fastrand::u64(..)));
    let _one = server().bind(&*addresses[0]).await.unwrap();
    let _two = server().bind(&*addresses[1]).await.unwrap();
    let client = TestClient::new(Channel::connect(addresses.each_ref().map(|address| &**address)).await.unwrap());
    ask(&client, "hi").await.unwrap();
    let http = server().wire(Http::new()).bind("127.0.0.1:0").await.unwrap();
    let address = http.local_addr().to_string().replace("tcp", "grpc");
    let channel = Channel::builder().transport(frpc_http::transport()).connect(&*address).await.unwrap();
    ask(&TestClient::new(channel), "hi").await.unwrap();
    MetricsSnapshot::take().families()
}

#[tokio::test]
async fn dashboards_and_alerts_use_metrics_that_exist() {
    let mut families = families().await;
    for family in families.iter_mut().filter(|family| family.points.is_empty()) {
        match family.kind {
            MetricKind::Histogram => family.add(&[], DurationHistogram::default()),
            _ => family.add(&[], 0_u64),
        }
    }
    let text = write_text(&families, TextFormat::Prometheus);
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let mut known: BTreeSet<String> = samples.map(|line| line.split(['{', ' ']).next().unwrap().to_owned()).collect();
    let attributes = families.iter().flat_map(|family| &family.points).flat_map(|point| &point.attributes);
    known.extend(attributes.map(|(name, _)| name.replace('.', "_")));
    let page = fs::read_to_string(Path::new(ROOT).join("docs/operating.md")).unwrap();
    let dashboard = fs::read_to_string(Path::new(ROOT).join("docs/grafana.json")).unwrap();
    for text in [page.split_once("## Alerts").unwrap().1, &dashboard] {
        let words = text.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
        let used: BTreeSet<_> =
            words.filter(|word| ["rpc_", "grpc_", "frpc_"].iter().any(|start| word.starts_with(start))).collect();
        assert!(used.len() > 5, "{used:?}");
        let unknown: Vec<_> = used.into_iter().filter(|word| !known.contains(*word)).collect();
        assert!(unknown.is_empty(), "{unknown:?} are not in {known:?}");
    }
}

#[tokio::test]
async fn the_page_of_metrics_matches_the_code() {
    let mut page = heading(
        "Metrics",
        "Every metric of a process. [Operating](../operating.md#metrics) shows how to export them. Prometheus gets\n\
         underscores and units, such as `rpc_server_call_duration_seconds`.\n\n\
         | metric | kind, unit | attributes | meaning |\n|---|---|---|---|",
    );
    for family in families().await {
        let MetricFamily { name, unit, description, kind, .. } = family;
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        writeln!(page, "| `{name}` | {kind}, `{unit}` | {} | {description} |", attributes(&family)).unwrap();
    }
    update(&[("docs/reference/metrics.md", &page)]);
}

/// Returns the attributes of a metric, and the values chosen by us.
fn attributes(family: &MetricFamily) -> String {
    let mut names = Vec::new();
    for (name, _) in family.points.iter().flat_map(|point| &point.attributes) {
        if !names.contains(name) {
            names.push(*name);
        }
    }
    let values = |name: &str| {
        let attributes = family.points.iter().flat_map(|point| &point.attributes);
        attributes.filter(|found| found.0 == name).map(|found| &*found.1).collect::<BTreeSet<_>>()
    };
    let shown = names.into_iter().map(|name| match name {
        "reason" | "network.io.direction" | "network.protocol.name" | "frpc.frame.type" => {
            let values: Vec<_> = values(name).into_iter().map(|value| format!("`{value}`")).collect();
            format!("`{name}`: {}", values.join(", "))
        }
        name => format!("`{name}`"),
    });
    shown.collect::<Vec<_>>().join("; ")
}
