//! Service configs, health checks and load reports between grpc-go and us, both ways.

use std::{collections::BTreeMap, process::Stdio};

use frpc::{
    Answer, Call, Channel, Code, Layer, Next, Server, Status,
    fleet::{Endpoint, FleetSettings, ServiceConfig, Target},
    layers::ReportLoad,
};
use frpc_http::Http;
use frpc_services::{Health, HealthWatcher, ServingStatus};
use support::{
    calls::{TestClient, TestServer, TestService, words},
    foreign_program, in_real_time_within,
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use crate::{LIMIT, port, run};

/// A server of grpc-go. It ends when dropped.
struct GoServer {
    url: String,
    _process: Child,
}

impl GoServer {
    async fn start(args: &[&str]) -> Option<Self> {
        let mut command = Command::new(foreign_program("grpc-go-fleet")?);
        let mut process = command.arg("serve").args(args).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().expect("it says where it listens");
        let url = format!("grpc://{}", line.strip_prefix("listening ").unwrap());
        Some(Self { url, _process: process })
    }
}

/// Connects to the servers with a service config, and their health if it asks for it.
async fn connect(servers: &[&GoServer], config: &str) -> TestClient {
    let settings =
        FleetSettings { service_config: ServiceConfig::from_json(config).unwrap(), ..FleetSettings::default() };
    let target = Target::endpoints(servers.iter().map(|server| Endpoint::new(&server.url).unwrap())).unwrap();
    let builder = Channel::builder().transport(frpc_http::transport()).fleet(settings);
    TestClient::new(builder.health(HealthWatcher).connect(target).await.unwrap())
}

async fn say(client: &TestClient, text: &str) -> Result<String, Status> {
    client.say(words(text)).await.map(|answer| answer.into_inner().text)
}

/// Counts the calls that each server answers, by its name.
async fn spread(client: &TestClient, calls: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..calls {
        let text = say(client, "hi").await.unwrap();
        *counts.entry(text.split(' ').next().unwrap().to_owned()).or_default() += 1;
    }
    counts
}

const RETRIES: &str = r#"{
    "loadBalancingConfig": [{"round_robin": {}}],
    "methodConfig": [{
        "name": [{"service": "calls.Test"}],
        "retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.01s", "maxBackoff": "0.1s", "backoffMultiplier": 2,
                        "retryableStatusCodes": ["UNAVAILABLE"]}
    }]
}"#;

const HEALTH: &str = r#"{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}}"#;

const REPORTS: &str =
    r#"{"loadBalancingConfig": [{"weighted_round_robin": {"blackoutPeriod": "0s", "weightUpdatePeriod": "0.1s"}}]}"#;

#[test]
fn our_channel_retries_on_servers_of_grpc_go_by_a_service_config() {
    in_real_time_within(LIMIT, async {
        let (Some(one), Some(other)) = (GoServer::start(&[]).await, GoServer::start(&[]).await) else { return };
        let client = connect(&[&one, &other], RETRIES).await;
        assert_eq!(say(&client, "fail 3").await.unwrap(), "go 3 fail 3");
        let status = say(&client, "fail 4").await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unavailable, "attempt 3 fails"));
        let begun = std::time::Instant::now();
        assert_eq!(say(&client, "fail 1 300").await.unwrap(), "go 1 fail 1 300");
        assert!(begun.elapsed().as_millis() >= 300, "the pause of the server applies");
        let status = say(&client, "fail 1 -1").await.unwrap_err();
        assert_eq!(status.message(), "attempt 0 fails", "the server asked for no retry");
    });
}

#[test]
fn our_channel_leaves_servers_of_grpc_go_that_report_bad_health() {
    in_real_time_within(LIMIT, async {
        let one = GoServer::start(&["-name", "one"]).await;
        let (Some(one), Some(other)) = (one, GoServer::start(&["-name", "other"]).await) else { return };
        let client = connect(&[&one, &other], HEALTH).await;
        while spread(&client, 10).await.len() < 2 {}
        let direct = Channel::builder().transport(frpc_http::transport()).connect(one.url.as_str()).await.unwrap();
        let direct = TestClient::new(direct);
        say(&direct, "suspend").await.unwrap();
        while spread(&client, 10).await.contains_key("one") {}
        say(&direct, "resume").await.unwrap();
        while spread(&client, 10).await.len() < 2 {}
    });
}

#[test]
fn our_channel_follows_load_reports_of_grpc_go() {
    in_real_time_within(LIMIT, async {
        let busy = GoServer::start(&["-name", "busy", "-utilization", "0.9", "-rate", "100"]).await;
        let free = GoServer::start(&["-name", "free", "-utilization", "0.3", "-rate", "100"]).await;
        let (Some(busy), Some(free)) = (busy, free) else { return };
        let client = connect(&[&busy, &free], REPORTS).await;
        // Equal shares until the first reports count, then one to three.
        loop {
            let counts = spread(&client, 400).await;
            if (200..=400).contains(&(counts["free"] - counts["busy"].min(counts["free"]))) {
                break;
            }
        }
        let counts = spread(&client, 2_000).await;
        assert!((1_400..1_600).contains(&counts["free"]), "{counts:?}");
    });
}

/// Answers with the name of the server and the number of earlier attempts. Fails attempts before the one in `x-fail`.
struct Attempts(&'static str);

impl Layer for Attempts {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let metadata = call.head().metadata().clone();
        let number = |name: &str| metadata.get(name).map_or(0, |value| value.parse::<u32>().unwrap());
        if call.method().service != "calls.Test" {
            return next.run(call).await;
        }
        let attempt = number("grpc-previous-rpc-attempts");
        if attempt < number("x-fail") {
            let mut status = Status::unavailable(format!("attempt {attempt} fails"));
            if let Some(pushback) = metadata.get("x-pushback") {
                status.metadata_mut().insert("grpc-retry-pushback-ms", pushback)?;
            }
            return Err(status);
        }
        let text = format!("{} {attempt}", self.0);
        Ok(Answer::new(frpc::Body::from([&[10, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat())))
    }
}

async fn serve(name: &'static str, health: Health, reports: ReportLoad) -> Server {
    let server = Server::builder().wire(Http::new()).layer(reports).layer(Attempts(name));
    let server = server.add_service(TestServer::new(TestService::default())).add_service(health);
    server.bind("tcp://127.0.0.1:0").await.unwrap()
}

/// Runs the client of grpc-go. Returns its answers without their times.
async fn go_client(args: &[&str], config: &str, servers: &[&Server]) -> Option<Vec<String>> {
    let program = foreign_program("grpc-go-fleet")?;
    let places: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", port(server))).collect();
    let args: Vec<&str> =
        [&["call"], args, &[config]].concat().into_iter().chain(places.iter().map(|place| &**place)).collect();
    let said = run(&program, &args).await.unwrap();
    Some(said.lines().map(|line| line.split_once(": ").unwrap().1.to_owned()).collect())
}

#[test]
fn grpc_go_retries_on_our_servers_by_the_same_service_config() {
    in_real_time_within(LIMIT, async {
        let server = serve("ours", Health::new(), ReportLoad::new()).await;
        let said = async |metadata: &str| go_client(&["-metadata", metadata], RETRIES, &[&server]).await;
        let Some(answers) = said("x-fail=3").await else { return };
        assert_eq!(answers, ["ours 3"]);
        let exhausted = "error max retries exhausted: failed after 4 attempts: rpc error: code = Unavailable desc = attempt 3 fails";
        assert_eq!(said("x-fail=4").await.unwrap(), [exhausted]);
        assert_eq!(said("x-fail=1,x-pushback=200").await.unwrap(), ["ours 1"]);
        assert_eq!(said("x-fail=1,x-pushback=-1").await.unwrap(), ["error attempt 0 fails"]);
    });
}

#[test]
fn grpc_go_leaves_our_servers_that_report_bad_health() {
    in_real_time_within(LIMIT, async {
        let ill = Health::new();
        ill.set("", ServingStatus::NotServing);
        let servers =
            [serve("ill", ill, ReportLoad::new()).await, serve("well", Health::new(), ReportLoad::new()).await];
        let Some(answers) = go_client(&["-calls", "20"], HEALTH, &servers.each_ref()).await else { return };
        assert_eq!(answers, ["well 0"; 20]);
        let Some(answers) =
            go_client(&["-calls", "20"], r#"{"loadBalancingConfig": [{"round_robin": {}}]}"#, &servers.each_ref())
                .await
        else {
            return;
        };
        assert!(answers.contains(&"ill 0".to_owned()), "without health checks, both have calls");
    });
}

#[test]
fn grpc_go_follows_our_load_reports() {
    in_real_time_within(LIMIT, async {
        let servers = [
            serve("busy", Health::new(), ReportLoad::new().utilization(|| 0.9)).await,
            serve("free", Health::new(), ReportLoad::new().utilization(|| 0.3)).await,
        ];
        let Some(answers) = go_client(&["-calls", "1500", "-pause", "2ms"], REPORTS, &servers.each_ref()).await else {
            return;
        };
        let of_free = answers[1_400..].iter().filter(|answer| *answer == "free 0").count();
        assert!(of_free >= 65, "{of_free} of 100");
    });
}
