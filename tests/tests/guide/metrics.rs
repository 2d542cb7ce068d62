//! The page of metrics: the families of a process that has made calls.

use std::{collections::BTreeSet, fmt::Write as _};

use frisbee_pubsub::Broker;
use frpc::{
    Channel, Server,
    metrics::{MetricFamily, MetricKind, MetricsSnapshot},
};
use frpc_http::Http;
use support::calls::{TestClient, TestServer, TestService, ask};

use crate::pages::{heading, update};

#[tokio::test]
async fn the_page_of_metrics_matches_the_code() {
    let broker = Broker::new();
    broker.export_metrics("orders");
    let server = || Server::builder().add_service(TestServer::new(TestService::default()));
    let addresses = ["mem:guide-one", "mem:guide-two"];
    let _one = server().bind(addresses[0]).await.unwrap();
    let _two = server().bind(addresses[1]).await.unwrap();
    // Every metric of a call gets a point.
    let client = TestClient::new(Channel::connect(addresses).await.unwrap());
    ask(&client, "hi").await.unwrap();
    let http = server().wire(Http::new()).bind("127.0.0.1:0").await.unwrap();
    let address = http.local_addr().to_string().replace("tcp", "grpc");
    let channel = Channel::builder().transport(frpc_http::transport()).connect(&*address).await.unwrap();
    ask(&TestClient::new(channel), "hi").await.unwrap();

    let mut page = heading(
        "Metrics",
        "Every metric of a process. [Operating](../operating.md#metrics) shows how to export them. Prometheus gets\n\
         underscores and units, such as `rpc_server_call_duration_seconds`.\n\n\
         | metric | kind, unit | attributes | meaning |\n|---|---|---|---|",
    );
    for family in MetricsSnapshot::take().families() {
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
