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

use frpc::frisbee::rustls::ServerConfig;
use frpc::{Answer, Call, Channel, ChannelBuilder, Code, Layer, Next, Request, Server, Status};
use frpc_http::Http;
use frpc_xds::{Bootstrap, XdsClient, XdsSettings};
use serde_json::{Value, json};
use support::{
    Identity,
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

/// Answers with the name of the server, and fails attempts before the one in `x-fail`. The server `broken` fails all.
struct Named(&'static str);

impl Layer for Named {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let metadata = call.head().metadata().clone();
        let number = |name: &str| metadata.get(name).map_or(0, |value| value.parse::<u32>().unwrap());
        if self.0 == "broken" || number("grpc-previous-rpc-attempts") < number("x-fail") {
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
    serve_with(name, TestService::default()).await
}

async fn serve_with(name: &'static str, service: TestService) -> Server {
    let server = Server::builder().wire(Http::new()).layer(Named(name));
    server.add_service(TestServer::new(service)).bind("tcp://127.0.0.1:0").await.unwrap()
}

async fn say(client: &TestClient) -> Result<String, Status> {
    client.say(words("hi")).await.map(|answer| answer.into_inner().text)
}

/// Calls with a metadata entry.
async fn say_with(client: &TestClient, name: &str, value: &str) -> Result<String, Status> {
    let mut request = Request::new(words("hi"));
    request.metadata_mut().insert(name, value).unwrap();
    client.say(request).await.map(|answer| answer.into_inner().text)
}

/// Counts the calls that each server answers, by its name.
async fn spread(client: &TestClient, calls: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..calls {
        *counts.entry(say(client).await.unwrap()).or_default() += 1;
    }
    counts
}

fn with_h2(mut config: ServerConfig) -> ServerConfig {
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
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

#[test]
fn wrong_resources_are_refused_and_the_last_good_ones_stay() {
    in_real_time_within(LIMIT, async {
        let Some(mut plane) = Plane::start().await else { return };
        let (one, two) = (serve("one").await, serve("two").await);
        let (first, second) = (locality("a", 1, 0, &[endpoint(&one)]), locality("a", 1, 0, &[endpoint(&two)]));
        plane.set(1, &resources(std::slice::from_ref(&first), unchanged)).await;
        let client = plane.connect().await;
        for kind in ["Listener", "RouteConfiguration", "Cluster", "ClusterLoadAssignment"] {
            plane.event(&format!("ack {kind} 1")).await;
        }
        // A gap in the priorities, an unknown policy, a domain that appears twice, and a listener without routes.
        let gap = locality("a", 1, 3, &[endpoint(&two)]);
        type Change = fn(&mut Value);
        let wrong: [(&str, &str, Value, Change); 4] = [
            ("ClusterLoadAssignment", "there is no priority 0", gap, unchanged),
            ("Cluster", "MAGLEV", second.clone(), |all| all["clusters"][0]["lb_policy"] = json!("MAGLEV")),
            ("RouteConfiguration", "appears twice", second.clone(), |all| {
                all["routes"][0]["virtual_hosts"][0]["domains"] = json!(["*", "*"]);
            }),
            ("Listener", "api_listener is missing", second.clone(), |all| {
                all["listeners"][0] = json!({"name": "orders"});
            }),
        ];
        for (version, (kind, why, localities, change)) in (2..).zip(wrong) {
            let mut all = resources(&[localities], change);
            // The rest stays good.
            if kind != "ClusterLoadAssignment" {
                all["endpoints"] = assigned(std::slice::from_ref(&first));
            }
            plane.set(version, &all).await;
            let nack = plane.event(&format!("nack {kind} ")).await;
            assert!(nack.contains(why), "{nack}");
            assert_eq!(spread(&client, 10).await, [("one".to_owned(), 10)].into(), "{kind}");
            plane.set(version + 100, &resources(std::slice::from_ref(&first), unchanged)).await;
            plane.event(&format!("ack {kind} {}", version + 100)).await;
        }
        plane.set(1_000, &resources(&[second], unchanged)).await;
        while say(&client).await.unwrap() != "two" {}
    });
}

#[test]
fn a_control_plane_may_be_gone_and_return() {
    in_real_time_within(LIMIT, async {
        let Some(mut plane) = Plane::start().await else { return };
        let (one, two) = (serve("one").await, serve("two").await);
        plane.set(1, &resources(&[locality("a", 1, 0, &[endpoint(&one)])], unchanged)).await;
        let client = plane.connect().await;
        for kind in ["Listener", "RouteConfiguration", "Cluster", "ClusterLoadAssignment"] {
            plane.event(&format!("ack {kind} 1")).await;
        }
        plane.command("stop").await;
        plane.event("close").await;
        assert_eq!(spread(&client, 100).await.len(), 1, "calls go on");
        plane.events.clear();
        plane.command("start").await;
        // The new stream continues with the last version and all names.
        let first = plane.event("first").await;
        assert!(first.ends_with(" Cluster 1 orders"), "{first}");
        for kind in ["ClusterLoadAssignment 1 orders", "Listener 1 orders", "RouteConfiguration 1 routes"] {
            let first = plane.event("first").await;
            assert!(first.ends_with(kind), "{first}");
        }
        plane.set(2, &resources(&[locality("a", 1, 0, &[endpoint(&two)])], unchanged)).await;
        while say(&client).await.unwrap() != "two" {}
    });
}

/// The outage of grpc-rust#2745: the connection to the control plane is half open, so nothing ever arrives.
#[test]
fn a_silent_control_plane_is_left_for_a_new_connection() {
    in_real_time_within(LIMIT, async {
        let Some(mut plane) = Plane::start().await else { return };
        let (one, two) = (serve("one").await, serve("two").await);
        plane.set(1, &resources(&[locality("a", 1, 0, &[endpoint(&one)])], unchanged)).await;
        let client = plane.connect().await;
        plane.event("ack ClusterLoadAssignment 1").await;
        plane.command("silence").await;
        plane.set(2, &resources(&[locality("a", 1, 0, &[endpoint(&two)])], unchanged)).await;
        while say(&client).await.unwrap() != "two" {}
    });
}

#[test]
fn weights_localities_priorities_and_shares_of_clusters_are_obeyed() {
    in_real_time_within(LIMIT, async {
        let Some(mut plane) = Plane::start().await else { return };
        let [one, two, three, four] =
            [serve("one").await, serve("two").await, serve("three").await, serve("four").await];
        // Of zone a, which has three quarters, one gets a third.
        let spare = locality("c", 1, 1, &[endpoint(&four)]);
        let a = locality("a", 3, 0, &[weighted(&one, 1), weighted(&two, 2)]);
        let b = locality("b", 1, 0, &[weighted(&three, 7)]);
        plane.set(1, &resources(&[a, b, spare.clone()], unchanged)).await;
        let client = plane.connect().await;
        while spread(&client, 100).await.len() < 3 {}
        let counts = spread(&client, 4_000).await;
        for (name, share) in [("one", 1_000), ("two", 2_000), ("three", 1_000)] {
            assert!(counts[name].abs_diff(share) < 200, "{counts:?}");
        }
        assert!(!counts.contains_key("four"), "the first priority is ready: {counts:?}");

        let mut sick = endpoint(&one);
        sick["health_status"] = json!("UNHEALTHY");
        plane.set(2, &resources(&[locality("a", 3, 0, &[sick]), spare], unchanged)).await;
        while spread(&client, 100).await != [("four".to_owned(), 100)].into() {}

        let all = resources(&[locality("a", 1, 0, &[endpoint(&one)])], |all| {
            all["routes"][0]["virtual_hosts"][0]["routes"][0]["route"] = json!({"weighted_clusters": {
                "clusters": [{"name": "orders", "weight": 3}, {"name": "canary", "weight": 1}]}});
            let mut canary = all["clusters"][0].clone();
            canary["name"] = json!("canary");
            all["clusters"].as_array_mut().unwrap().push(canary);
            let canary = json!({"cluster_name": "canary", "endpoints": [locality("a", 1, 0, &[endpoint(&two)])]});
            all["endpoints"].as_array_mut().unwrap().push(canary);
        });
        plane.set(3, &all).await;
        loop {
            let counts = spread(&client, 100).await;
            if counts.keys().eq(["one", "two"]) {
                break;
            }
        }
        let counts = spread(&client, 4_000).await;
        assert!(counts["one"].abs_diff(3_000) < 200, "{counts:?}");
    });
}

#[test]
fn circuit_breakers_limit_the_calls_of_all_channels() {
    in_real_time_within(LIMIT, async {
        let Some(mut plane) = Plane::start().await else { return };
        let service = TestService::default();
        let one = serve_with("one", service.clone()).await;
        let all = resources(&[locality("a", 1, 0, &[endpoint(&one)])], |all| {
            all["clusters"][0]["circuit_breakers"] = json!({"thresholds": [{"max_requests": 2}]});
        });
        plane.set(1, &all).await;
        let xds = plane.client();
        let channel = || Channel::builder().transport(frpc_http::transport()).resolver(xds.clone());
        let client = TestClient::new(channel().connect("xds:///orders").await.unwrap());
        let other = TestClient::new(channel().connect("xds:///orders").await.unwrap());
        assert_eq!(say(&client).await.unwrap(), "one");
        let mut waiting = Vec::new();
        for _ in 0..2 {
            let client = client.clone();
            waiting.push(tokio::spawn(async move {
                let mut request = Request::new(words("wait"));
                request.metadata_mut().insert("x-real", "1").unwrap();
                client.say(request).await
            }));
            service.gate.arrival().await;
        }
        let refused = say(&other).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable);
        assert!(refused.message().contains("too many calls"), "{refused}");
        service.gate.open(2);
        for call in waiting {
            call.await.unwrap().unwrap();
        }
        assert_eq!(say(&other).await.unwrap(), "one");
    });
}

#[test]
fn routes_bring_retries_and_clusters_bring_rules_for_outliers() {
    in_real_time_within(LIMIT, async {
        let Some(mut plane) = Plane::start().await else { return };
        let (one, broken) = (serve("one").await, serve("broken").await);
        let only = [locality("a", 1, 0, &[endpoint(&one)])];
        plane.set(1, &resources(&only, unchanged)).await;
        let client = plane.connect().await;
        assert!(say_with(&client, "x-fail", "1").await.is_err(), "the method is not idempotent");
        let retries = |all: &mut Value| {
            all["routes"][0]["virtual_hosts"][0]["routes"][0]["route"]["retry_policy"] = json!({
                "retry_on": "unavailable", "num_retries": 2,
                "retry_back_off": {"base_interval": "0.001s", "max_interval": "0.01s"}});
        };
        plane.set(2, &resources(&only, retries)).await;
        plane.event("ack RouteConfiguration 2").await;
        while say_with(&client, "x-fail", "2").await.is_err() {}
        assert!(say_with(&client, "x-fail", "3").await.is_err(), "there are three attempts");

        let all = resources(&[locality("a", 1, 0, &[endpoint(&one), endpoint(&broken)])], |all| {
            all["clusters"][0]["outlier_detection"] = json!({
                "interval": "0.05s", "base_ejection_time": "1000s", "max_ejection_time": "1000s",
                "max_ejection_percent": 50, "enforcing_success_rate": 0, "enforcing_failure_percentage": 100,
                "failure_percentage_threshold": 50, "failure_percentage_minimum_hosts": 2,
                "failure_percentage_request_volume": 3});
        });
        plane.set(3, &all).await;
        // Both are used, until the broken one is ejected.
        let mut failed = false;
        let mut good = 0;
        while !failed || good < 100 {
            match say(&client).await {
                Ok(_) => good += 1,
                Err(_) => (failed, good) = (true, 0),
            }
        }
    });
}

/// Adds a cluster with one server.
fn add_cluster(all: &mut Value, name: &str, server: &Server) {
    let mut cluster = all["clusters"][0].clone();
    cluster["name"] = json!(name);
    all["clusters"].as_array_mut().unwrap().push(cluster);
    let assigned = json!({"cluster_name": name, "endpoints": [locality("a", 1, 0, &[endpoint(server)])]});
    all["endpoints"].as_array_mut().unwrap().push(assigned);
}

fn set_routes(all: &mut Value, routes: &Value) {
    all["routes"][0]["virtual_hosts"][0]["routes"] = routes.clone();
}

#[test]
fn routes_send_methods_and_headers_to_different_clusters() {
    in_real_time_within(LIMIT, async {
        let Some(mut plane) = Plane::start().await else { return };
        let [one, two, three] = [serve("one").await, serve("two").await, serve("three").await];
        let routes = json!([
            {"match": {"prefix": "", "headers": [{"name": "x-stage", "string_match": {"prefix": "can"}}]},
             "route": {"cluster": "canary"}},
            {"match": {"safe_regex": {"regex": "/calls\\.[A-Z]est/Count"}}, "route": {"cluster": "streams"}},
            {"match": {"path": "/calls.Test/Say", "headers": [{"name": "x-slow", "present_match": true}]},
             "route": {"cluster": "orders", "max_stream_duration": {"max_stream_duration": "0.05s"}}},
            {"match": {"prefix": "/calls.Test/"}, "route": {"cluster": "orders"}},
        ]);
        let all = resources(&[locality("a", 1, 0, &[endpoint(&one)])], |all| {
            set_routes(all, &routes);
            add_cluster(all, "canary", &two);
            add_cluster(all, "streams", &three);
        });
        plane.set(1, &all).await;
        let client = plane.connect().await;
        assert_eq!(say(&client).await.unwrap(), "one");
        assert_eq!(say_with(&client, "x-stage", "canary").await.unwrap(), "two");
        assert_eq!(say_with(&client, "x-stage", "prod").await.unwrap(), "one");
        let mut counted = client.count(words("hi")).await.unwrap().into_inner();
        assert_eq!(counted.message().await.unwrap().unwrap().text, "three");
        let mut slow = Request::new(words("wait"));
        slow.metadata_mut().insert("x-slow", "1").unwrap();
        slow.metadata_mut().insert("x-real", "1").unwrap();
        assert_eq!(client.say(slow).await.unwrap_err().code(), Code::DeadlineExceeded);

        // A cluster that the control plane removes fails its calls alone.
        let mut less = all.clone();
        less["clusters"].as_array_mut().unwrap().retain(|cluster| cluster["name"] != "canary");
        less["endpoints"].as_array_mut().unwrap().retain(|assigned| assigned["cluster_name"] != "canary");
        plane.set(2, &less).await;
        let removed = loop {
            if let Err(status) = say_with(&client, "x-stage", "canary").await {
                break status;
            }
        };
        assert!(removed.message().contains("no Cluster resource \"canary\""), "{removed}");
        assert_eq!(say(&client).await.unwrap(), "one");
        plane.set(3, &all).await;
        while say_with(&client, "x-stage", "canary").await.is_err() {}
        // Without the listener, all calls fail.
        let mut nothing = all.clone();
        nothing["listeners"] = json!([]);
        plane.set(4, &nothing).await;
        while say(&client).await.is_ok() {}
        plane.set(5, &all).await;
        while say(&client).await.is_err() {}
    });
}

#[test]
fn removed_resources_stay_in_use_if_the_bootstrap_wants_it() {
    in_real_time_within(LIMIT, async {
        let Some(mut plane) = Plane::start().await else { return };
        let (one, two) = (serve("one").await, serve("two").await);
        let all = resources(&[locality("a", 1, 0, &[endpoint(&one)])], |all| add_cluster(all, "other", &two));
        plane.set(1, &all).await;
        let bootstrap = json!({"xds_servers": [{"server_uri": plane.address,
            "channel_creds": [{"type": "insecure"}], "server_features": ["ignore_resource_deletion"]}]});
        let bootstrap = Bootstrap::from_json(&bootstrap.to_string()).unwrap();
        let xds = XdsClient::new(bootstrap, XdsSettings::default());
        let channel = Channel::builder().transport(frpc_http::transport()).resolver(xds);
        let client = TestClient::new(channel.connect("xds:///orders").await.unwrap());
        let mut less = all.clone();
        less["clusters"].as_array_mut().unwrap().retain(|cluster| cluster["name"] == "other");
        plane.set(2, &less).await;
        plane.event("ack Cluster 2").await;
        assert_eq!(spread(&client, 20).await, [("one".to_owned(), 20)].into());
    });
}

#[test]
fn ring_hash_keeps_each_key_on_its_server() {
    in_real_time_within(LIMIT, async {
        let Some(mut plane) = Plane::start().await else { return };
        let servers = [serve("one").await, serve("two").await, serve("three").await];
        let endpoints: Vec<_> = servers.iter().map(endpoint).collect();
        let all = resources(&[locality("a", 1, 0, &endpoints)], |all| {
            all["clusters"][0]["lb_policy"] = json!("RING_HASH");
            all["routes"][0]["virtual_hosts"][0]["routes"][0]["route"]["hash_policy"] =
                json!([{"header": {"header_name": "x-user"}}]);
        });
        plane.set(1, &all).await;
        let client = plane.connect().await;
        // All servers are ready.
        while spread(&client, 30).await.len() < 3 {}
        let mut used = BTreeMap::<String, u32>::new();
        for user in 0..30 {
            let server = say_with(&client, "x-user", &user.to_string()).await.unwrap();
            for _ in 0..5 {
                assert_eq!(say_with(&client, "x-user", &user.to_string()).await.unwrap(), server);
            }
            *used.entry(server).or_default() += 1;
        }
        assert_eq!(used.len(), 3, "{used:?}");
    });
}

#[test]
fn tls_contexts_name_certificates_of_the_bootstrap_and_names_of_servers() {
    in_real_time_within(LIMIT, async {
        let Some(mut plane) = Plane::start().await else { return };
        let (server_identity, client_identity) = (Identity::new(), Identity::new());
        let server = Server::builder().tls(with_h2(server_identity.server_for(&client_identity))).wire(Http::new());
        let server = server.layer(Named("secure")).add_service(TestServer::new(TestService::default()));
        let server = server.bind("tcp://127.0.0.1:0").await.unwrap();
        let (roots, certificate, key) =
            (server_identity.pem_file(), client_identity.pem_file(), client_identity.key_file());
        let bootstrap = json!({
            "xds_servers": [{"server_uri": plane.address, "channel_creds": [{"type": "insecure"}]}],
            "certificate_providers": {"files": {"plugin_name": "file_watcher", "config": {
                "ca_certificate_file": roots.path(), "certificate_file": certificate.path(), "private_key_file": key.path()}}},
        });
        let secured = |name: &str| {
            resources(&[locality("a", 1, 0, &[endpoint(&server)])], |all| {
                all["clusters"][0]["transport_socket"] = json!({"name": "tls", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                "common_tls_context": {
                    "tls_certificate_provider_instance": {"instance_name": "files"},
                    "combined_validation_context": {"default_validation_context": {
                        "ca_certificate_provider_instance": {"instance_name": "files"},
                        "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": name}}]}},
                }}});
            })
        };
        let connect = || {
            let bootstrap = Bootstrap::from_json(&bootstrap.to_string()).unwrap();
            let xds = XdsClient::new(bootstrap, XdsSettings::default());
            Channel::builder().transport(frpc_http::transport()).resolver(xds).connect("xds:///orders")
        };
        plane.set(1, &secured("localhost")).await;
        let client = TestClient::new(connect().await.unwrap());
        assert_eq!(say(&client).await.unwrap(), "secure");
        // Another expected name, and the connection is refused.
        plane.set(2, &secured("other.example")).await;
        let error = connect().await.map(drop).unwrap_err();
        assert!(format!("{error:?}").contains("NotValidForName"), "{error:?}");
    });
}

/// Returns the secret of a client, and of the authorities for servers.
fn secrets(client: &Identity, key: &Identity, servers: &[&Identity]) -> Value {
    let text = |file: support::PemFile| std::fs::read_to_string(file.path()).unwrap();
    let roots: String = servers.iter().map(|server| text(server.pem_file())).collect();
    json!([
        {"name": "mine", "tls_certificate": {
            "certificate_chain": {"inline_string": text(client.pem_file())},
            "private_key": {"inline_string": text(key.key_file())}}},
        {"name": "roots", "validation_context": {"trusted_ca": {"inline_string": roots}}},
    ])
}

#[test]
fn secrets_of_the_control_plane_are_rotated_for_new_connections() {
    in_real_time_within(LIMIT, async {
        let Some(mut plane) = Plane::start().await else { return };
        let [first_server, second_server, first_client, second_client] = std::array::from_fn(|_| Identity::new());
        let serve = async |name, server: &Identity, client: &Identity| {
            let server = Server::builder().tls(with_h2(server.server_for(client))).wire(Http::new());
            let server = server.layer(Named(name)).add_service(TestServer::new(TestService::default()));
            server.bind("tcp://127.0.0.1:0").await.unwrap()
        };
        // Each server knows one certificate of the client.
        let first = serve("first", &first_server, &first_client).await;
        let second = serve("second", &second_server, &second_client).await;
        let with = |servers: &[&Server], secrets: Value| {
            let endpoints: Vec<_> = servers.iter().map(|server| endpoint(server)).collect();
            resources(&[locality("a", 1, 0, &endpoints)], |all| {
                let source = json!({"ads": {}, "resource_api_version": "V3"});
                let secret = |name: &str| json!({"name": name, "sds_config": source});
                all["clusters"][0]["transport_socket"] = json!({"name": "tls", "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                    "common_tls_context": {
                        "tls_certificate_sds_secret_configs": [secret("mine")],
                        "combined_validation_context": {
                            "default_validation_context": {
                                "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": "localhost"}}]},
                            "validation_context_sds_secret_config": secret("roots")}}}});
                all["secrets"] = secrets;
            })
        };
        plane.set(1, &with(&[&first], secrets(&first_client, &first_client, &[&first_server]))).await;
        let client = plane.connect().await;
        assert_eq!(say(&client).await.unwrap(), "first");
        let rotated = secrets(&second_client, &second_client, &[&second_server]);
        plane.set(2, &with(&[&first], rotated.clone())).await;
        plane.event("ack Secret 2").await;
        plane.set(3, &with(&[&first, &second], rotated.clone())).await;
        // The connection to the first server stays: a new one would fail with the new certificates.
        while !spread(&client, 8).await.contains_key("second") {}
        assert!(spread(&client, 40).await["first"] > 0);
        // A key of a different certificate is refused, and the last good secrets stay.
        plane.set(4, &with(&[&second], secrets(&first_client, &second_client, &[&second_server]))).await;
        let reason = plane.event("nack Secret").await;
        assert!(reason.contains("mine: tls_certificate is unusable"), "{reason}");
        while spread(&client, 8).await.contains_key("first") {}
        assert_eq!(say(&client).await.unwrap(), "second");
        let error = plane.channel().connect("xds:///orders").await.map(drop).unwrap_err();
        assert!(format!("{error:?}").contains("tls_certificate is unusable"), "{error:?}");
    });
}
