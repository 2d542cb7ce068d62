//! The package `micro` of nats.go, in both directions.

use std::process::Stdio;

use frpc::{Answer, Call, Channel, Code, Layer, Layered, Next, Status};
use frpc_nats::{Announcement, NatsServer};
use support::{
    NatsProgram, foreign_nats_peer, in_real_time,
    interop::{
        Service,
        schema::{Rich, Text, interop_client::InteropClient, interop_server::InteropServer},
    },
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};

use crate::common::{Setup, cluster};

/// Returns an entry of the metadata to the caller.
struct Mirror;

impl Layer for Mirror {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let found = call.head().metadata().get("x-from").unwrap_or("nobody").to_owned();
        let mut answer = next.run(call).await?;
        answer.metadata_mut().insert("x-mirrored", found).unwrap();
        Ok(answer)
    }
}

async fn run(peer: &std::path::Path, arguments: &[&str]) -> String {
    let output = Command::new(peer).args(arguments).kill_on_drop(true).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn go_calls_our_unary_methods_with_json_and_protobuf() {
    let (Some(program), Some(peer)) = (NatsProgram::find(), foreign_nats_peer()) else { return };
    in_real_time(async {
        let setup = Setup::start(program, Layered::new(InteropServer::new(Service), Mirror)).await;
        let output = run(&peer, &["call", &setup.nats.url()]).await;
        assert_eq!(
            output.lines().collect::<Vec<_>>(),
            [
                "json from Go 7 application/json go",
                "protobuf from Go application/protobuf",
                "error 500 as asked",
                "invalid 400",
                "stream 501",
                "unknown 501",
            ]
        );
    });
}

#[test]
fn go_understands_what_servers_and_announcements_tell_of_themselves() {
    let (Some(program), Some(peer)) = (NatsProgram::find(), foreign_nats_peer()) else { return };
    in_real_time(async {
        let nats = program.start("one", "").await;
        let server = NatsServer::builder("test").version("1.2.3-rc.1").description("Tests").metadata("team", "one");
        let server = server.serve(&cluster(&nats), InteropServer::new(Service)).await.unwrap();
        run(&peer, &["call", &nats.url()]).await;
        let output = run(&peer, &["ask", &nats.url(), "test"]).await;
        let found: Vec<serde_json::Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for found in &found {
            assert_eq!((&found["name"], &found["version"]), (&"test".into(), &"1.2.3-rc.1".into()));
            assert_eq!((&found["metadata"]["team"], &found["id"]), (&"one".into(), &found["id"]));
        }
        let [_, info, stats] = &found[..] else { panic!("{output}") };
        assert_eq!(info["description"], "Tests");
        let endpoint = |of: &serde_json::Value, name: &str| {
            let mut endpoints = of["endpoints"].as_array().unwrap().iter();
            endpoints.find(|endpoint| endpoint["name"] == name).unwrap().clone()
        };
        let echo = endpoint(info, "interop-Interop-Echo");
        assert_eq!(echo["subject"], "test.interop.Interop.Echo");
        assert_eq!((&echo["queue_group"], &echo["metadata"]["kind"]), (&"test".into(), &"unary".into()));
        // Three calls of the peer, one of them with invalid JSON.
        let echo = endpoint(stats, "interop-Interop-Echo");
        assert_eq!((&echo["num_requests"], &echo["num_errors"]), (&3.into(), &1.into()));
        assert!(echo["processing_time"].as_u64().unwrap() >= echo["average_processing_time"].as_u64().unwrap());
        let fail = endpoint(stats, "interop-Interop-Fail");
        assert!(fail["last_error"].as_str().unwrap().contains("as asked"), "{fail}");
        drop(server);

        let announced = Announcement::builder("direct", "tcp://127.0.0.1:1").unwrap().zone("b");
        let announced = announced.start(&cluster(&nats)).await.unwrap();
        announced.set_load(0.25);
        let output = run(&peer, &["ask", &nats.url(), "direct"]).await;
        let found: Vec<serde_json::Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(found[0]["metadata"]["address"], "tcp://127.0.0.1:1");
        assert_eq!(found[1]["endpoints"][0]["metadata"]["zone"], "b");
        assert_eq!(found[2]["endpoints"][0]["data"]["load"], 0.25);
    });
}

#[test]
fn we_call_services_in_go() {
    let (Some(program), Some(peer)) = (NatsProgram::find(), foreign_nats_peer()) else { return };
    in_real_time(async {
        let nats = program.start("one", "").await;
        let mut command = Command::new(peer);
        command.args(["serve", &nats.url(), "shop"]).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));
        for (format, content) in [("protobuf", "application/protobuf"), ("json", "application/json")] {
            let address = format!("{}/shop?format={format}", nats.url());
            let channel = Channel::builder().transport(frpc_nats::transport()).connect(address).await.unwrap();
            let interop = InteropClient::new(channel);
            let rich = Rich { title: "to Go".into(), u64: 7, ..Rich::default() };
            let answer = interop.echo(rich.clone()).await.unwrap();
            assert_eq!(answer.metadata().get("x-content"), Some(content));
            assert_eq!(answer.into_inner(), rich);
            let status = interop.fail(Text::default()).await.unwrap_err();
            assert_eq!((status.code(), status.message()), (Code::NotFound, "not in Go"));
            // The group of the service has no endpoint for this method.
            let status = interop.slow(support::interop::schema::Delay::default()).await.unwrap_err();
            assert_eq!(status.code(), Code::Unavailable);
            assert!(status.message().contains("no server of `shop`"), "{status}");
        }
    });
}
