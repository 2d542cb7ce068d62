//! Channels under the control plane of go-control-plane. Its program is in `control-plane/`.

use std::{
    collections::BTreeMap,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use frpc::{Answer, Call, Channel, ChannelBuilder, Layer, Next, Server, Status};
use frpc_http::Http;
use frpc_xds::{Bootstrap, XdsClient, XdsSettings};
use serde_json::{Value, json};
use support::{
    calls::{TestClient, TestServer, TestService, words},
    foreign_program, in_real_time_within,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::{LIMIT, port};

/// The control plane. It ends when dropped.
struct Plane {
    address: String,
    commands: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    /// Events before the answer to a command.
    events: Vec<String>,
    _process: Child,
}

impl Plane {
    async fn start() -> Option<Self> {
        let mut command = Command::new(foreign_program("control-plane")?);
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("it starts");
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = lines.next_line().await.unwrap().expect("it prints its address");
        let commands = process.stdin.take().unwrap();
        Some(Self { address, commands, lines, events: Vec::new(), _process: process })
    }

    /// Gives a command, and waits for its end.
    async fn command(&mut self, command: &str) {
        self.commands.write_all(format!("{command}\n").as_bytes()).await.unwrap();
        let done = format!("done {}", command.split(' ').next().unwrap());
        loop {
            let line = self.lines.next_line().await.unwrap().expect("the control plane ended");
            if line == done {
                return;
            }
            self.events.push(line);
        }
    }

    async fn set(&mut self, version: u32, resources: &Value) {
        self.command(&format!("set {version} {resources}")).await;
    }

    /// Waits for an event that begins like this.
    async fn event(&mut self, start: &str) -> String {
        loop {
            if let Some(found) = self.events.iter().position(|event| event.starts_with(start)) {
                return self.events.remove(found);
            }
            let line = self.lines.next_line().await.unwrap().expect("the control plane ended");
            self.events.push(line);
        }
    }

    fn client(&self) -> XdsClient {
        let bootstrap = json!({
            "xds_servers": [{"server_uri": self.address, "channel_creds": [{"type": "insecure"}]}],
            "node": {"id": "test", "metadata": {"purpose": ["test"]}},
        });
        let settings = XdsSettings {
            keepalive_interval: Some(Duration::from_millis(200)),
            keepalive_timeout: Duration::from_secs(1),
            pause: Duration::from_millis(10),
            pause_max: Duration::from_millis(200),
            ..XdsSettings::default()
        };
        XdsClient::new(Bootstrap::from_json(&bootstrap.to_string()).unwrap(), settings)
    }

    fn channel(&self) -> ChannelBuilder {
        Channel::builder().transport(frpc_http::transport()).resolver(self.client())
    }

    async fn connect(&self) -> TestClient {
        TestClient::new(self.channel().connect("xds:///orders").await.unwrap())
    }
}

/// Answers with the name of the server, and fails attempts before the one in `x-fail`.
struct Named(&'static str);

impl Layer for Named {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let metadata = call.head().metadata().clone();
        let number = |name: &str| metadata.get(name).map_or(0, |value| value.parse::<u32>().unwrap());
        if number("grpc-previous-rpc-attempts") < number("x-fail") {
            return Err(Status::unavailable("the attempt fails"));
        }
        if metadata.get("x-real").is_some() {
            return next.run(call).await;
        }
        let bytes = [&[10, u8::try_from(self.0.len()).unwrap()], self.0.as_bytes()].concat();
        Ok(Answer::new(frpc::Body::from(bytes)))
    }
}

async fn serve(name: &'static str) -> Server {
    let server = Server::builder().wire(Http::new()).layer(Named(name));
    server.add_service(TestServer::new(TestService::default())).bind("tcp://127.0.0.1:0").await.unwrap()
}

async fn say(client: &TestClient) -> Result<String, Status> {
    client.say(words("hi")).await.map(|answer| answer.into_inner().text)
}

/// Counts the calls that each server answers, by its name.
async fn spread(client: &TestClient, calls: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..calls {
        *counts.entry(say(client).await.unwrap()).or_default() += 1;
    }
    counts
}

fn endpoint(server: &Server) -> Value {
    json!({"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port(server)}}}})
}

fn weighted(server: &Server, weight: u32) -> Value {
    let mut endpoint = endpoint(server);
    endpoint["load_balancing_weight"] = json!(weight);
    endpoint
}

fn locality(zone: &str, weight: u32, priority: u32, endpoints: &[Value]) -> Value {
    json!({"locality": {"zone": zone}, "load_balancing_weight": weight, "priority": priority, "lb_endpoints": endpoints})
}

/// Returns the endpoints of the cluster.
fn assigned(localities: &[Value]) -> Value {
    json!([{"cluster_name": "orders", "endpoints": localities}])
}

/// Returns resources for `xds:///orders` with one cluster, changed by a function, and these localities.
fn resources(localities: &[Value], change: impl FnOnce(&mut Value)) -> Value {
    let ads = json!({"ads": {}, "resource_api_version": "V3"});
    let mut all = json!({
        "listeners": [{"name": "orders", "api_listener": {"api_listener": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "rds": {"config_source": ads, "route_config_name": "routes"},
            "http_filters": [{"name": "router", "typed_config":
                {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
        }}}],
        "routes": [{"name": "routes", "virtual_hosts": [
            {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": ""}, "route": {"cluster": "orders"}}]},
        ]}],
        "clusters": [{"name": "orders", "type": "EDS", "eds_cluster_config": {"eds_config": ads}}],
        "endpoints": assigned(localities),
    });
    change(&mut all);
    all
}

fn unchanged(_: &mut Value) {}

#[test]
fn endpoints_change_1000_times_under_load_and_no_call_fails() {
    in_real_time_within(LIMIT, async {
        let Some(mut plane) = Plane::start().await else { return };
        let names = ["one", "two", "three", "four"];
        let mut servers = Vec::new();
        for name in names {
            servers.push(serve(name).await);
        }
        plane.set(1, &resources(&[locality("a", 1, 0, &[endpoint(&servers[0])])], unchanged)).await;
        let client = Arc::new(plane.connect().await);
        assert_eq!(say(&client).await.unwrap(), "one");
        let is_over = Arc::new(AtomicBool::new(false));
        let callers: Vec<_> = (0..4)
            .map(|_| {
                let (client, is_over) = (client.clone(), is_over.clone());
                tokio::spawn(async move {
                    let mut calls = 0_u64;
                    while !is_over.load(Ordering::Relaxed) {
                        say(&client).await.expect("no call fails");
                        calls += 1;
                    }
                    calls
                })
            })
            .collect();
        // Each set has one to four servers, with other weights.
        for version in 2..=1_001_u32 {
            let used = servers.iter().enumerate().filter(|(index, _)| (version % 15 + 1) >> index & 1 == 1);
            let used: Vec<_> = used.map(|(_, server)| weighted(server, version % 7 + 1)).collect();
            plane.set(version, &resources(&[locality("a", 1, 0, &used)], unchanged)).await;
            plane.event(&format!("ack ClusterLoadAssignment {version}")).await;
        }
        is_over.store(true, Ordering::Relaxed);
        for caller in callers {
            assert!(caller.await.unwrap() > 0);
        }
        // The last set holds.
        plane.set(2_000, &resources(&[locality("a", 1, 0, &[endpoint(&servers[3])])], unchanged)).await;
        while say(&client).await.unwrap() != "four" {}
        assert!(!plane.events.iter().any(|event| event.starts_with("nack")), "{:?}", plane.events);
    });
}
