//! grpc-gateway's own tests of its examples, with our REST API in the place of the gateway.

use std::{collections::BTreeSet, process::Stdio};

use frpc::{Answer, Call, Channel, Layer, Next, Server, Status, codec::Format};
use frpc_http::{Client, ClientSettings, Http};
use schema::grpc::gateway::examples::internal::proto::examplepb::{
    a_bit_of_everything_service_mock::MockABitOfEverythingService,
    a_bit_of_everything_service_server::ABitOfEverythingServiceServer, echo_service_mock::MockEchoService,
    echo_service_server::EchoServiceServer, excess_body_service_mock::MockExcessBodyService,
    excess_body_service_server::ExcessBodyServiceServer, flow_combination_mock::MockFlowCombination,
    flow_combination_server::FlowCombinationServer, non_standard_service_mock::MockNonStandardService,
    non_standard_service_server::NonStandardServiceServer, response_body_service_mock::MockResponseBodyService,
    response_body_service_server::ResponseBodyServiceServer, stream_service_mock::MockStreamService,
    stream_service_server::StreamServiceServer,
};
use support::{foreign_program, in_real_time_within};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::Command,
};

use crate::{LIMIT, port};

/// Generated from the descriptors of the examples.
mod schema {
    #![allow(
        deprecated,
        missing_docs,
        unreachable_pub,
        clippy::all,
        clippy::pedantic,
        reason = "the schema is not ours"
    )]
    include!(concat!(env!("OUT_DIR"), "/gateway/_includes.rs"));
}

/// Passes calls on to the services of the examples, with messages as JSON.
#[derive(Clone)]
struct Forward(Channel);

impl Layer for Forward {
    async fn call(&self, call: Call, _: Next<'_>) -> Result<Answer, Status> {
        self.0.call(call).await
    }
}

#[test]
fn the_tests_of_grpc_gateway_pass_but_for_known_differences() {
    let Some(program) = foreign_program("gateway-tests") else { return };
    in_real_time_within(LIMIT, async {
        let mut command = Command::new(program);
        command.args(["-test.v", "-test.skip", SKIPPED]).kill_on_drop(true);
        let mut judge = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut input, mut output) = (judge.stdin.take().unwrap(), BufReader::new(judge.stdout.take().unwrap()));
        let mut backend = String::new();
        output.read_line(&mut backend).await.unwrap();
        let json = ClientSettings { format: Format::Json, ..ClientSettings::default() };
        let builder = Channel::builder().transport(Client::new().settings(json));
        let channel = builder.connect(format!("grpc://{}", backend.trim())).await.unwrap();
        let server = Server::builder()
            .wire(Http::new().rest())
            .layer(Forward(channel))
            .add_service(ABitOfEverythingServiceServer::new(MockABitOfEverythingService::new()))
            .add_service(EchoServiceServer::new(MockEchoService::new()))
            .add_service(ExcessBodyServiceServer::new(MockExcessBodyService::new()))
            .add_service(FlowCombinationServer::new(MockFlowCombination::new()))
            .add_service(NonStandardServiceServer::new(MockNonStandardService::new()))
            .add_service(ResponseBodyServiceServer::new(MockResponseBodyService::new()))
            .add_service(StreamServiceServer::new(MockStreamService::new()));
        let server = server.bind("tcp://127.0.0.1:0").await.unwrap();
        input.write_all(format!("127.0.0.1:{}\n", port(&server)).as_bytes()).await.unwrap();
        let mut said = String::new();
        output.read_to_string(&mut said).await.unwrap();
        let expected: BTreeSet<_> =
            DIFFERENCES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        let found = failures(&said);
        let found: BTreeSet<_> = found.iter().map(String::as_str).collect();
        let more: Vec<_> = found.difference(&expected).collect();
        let fewer: Vec<_> = expected.difference(&found).collect();
        assert!(
            more.is_empty() && fewer.is_empty(),
            "new failures: {more:#?}\nno failures any more: {fewer:#?}\n{said}"
        );
        assert!(said.lines().filter(|line| line.trim_start().starts_with("--- PASS")).count() > 20, "{said}");
    });
}

/// Returns the failed assertions: the test, the file and the line.
fn failures(said: &str) -> Vec<String> {
    let (mut test, mut failures) = (String::new(), Vec::new());
    for line in said.lines() {
        if let Some(name) = line.strip_prefix("=== RUN   ").or_else(|| line.strip_prefix("=== NAME  ")) {
            name.clone_into(&mut test);
        }
        let place = line.strip_prefix("    ").and_then(|line| line.split_once(".go:"));
        if let Some((file, rest)) = place
            && file.ends_with("_test")
            && let Some((number, _)) = rest.split_once(':')
        {
            failures.push(format!("{test} {file}.go:{number}"));
        }
    }
    failures
}

/// Tests of options of the gateway's library, and one that waits for ever for a call whose JSON ends with another byte.
const SKIPPED: &str = "TestForwardResponseOption|TestNonStandardNames|TestExcessBody";
const DIFFERENCES: &str = include_str!("../../gateway/differences.txt");
