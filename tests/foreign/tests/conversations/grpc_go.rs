//! The client of grpc-go's own tests.

use foreign::{Testing, protos::grpc::testing::test_service_server::TestServiceServer};
use frpc::Server;
use frpc_http::Http;
use support::{Identity, foreign_program, in_real_time_within};

use crate::{LIMIT, port, run, with_server};

/// All that it passes against the server of grpc-go, but for those that ask Google's cloud for credentials.
const CASES: [&str; 16] = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "unimplemented_method",
    "unimplemented_service",
    "rpc_soak",
    "channel_soak",
];

#[test]
fn interop_cases_pass() {
    let Some(client) = foreign_program("interop-client") else { return };
    with_server(async |port| {
        let port = port.to_string();
        for case in CASES {
            let args = ["-server_host", "127.0.0.1", "-server_port", &port, "-test_case", case];
            run(&client, &args).await.unwrap_or_else(|why| panic!("{case}: {why}"));
        }
    });
}

#[test]
fn interop_cases_pass_over_tls() {
    let Some(client) = foreign_program("interop-client") else { return };
    in_real_time_within(LIMIT, async {
        let identity = Identity::new();
        let server = Server::builder().add_service(TestServiceServer::new(Testing)).wire(Http::new());
        let server = server.tls(identity.server()).bind("tcp://127.0.0.1:0").await.unwrap();
        let (port, certificate) = (port(&server).to_string(), identity.pem_file());
        let authority = certificate.path().to_str().unwrap();
        for case in ["large_unary", "ping_pong", "custom_metadata", "cancel_after_first_response"] {
            let args = ["-server_host", "localhost", "-server_port", &port, "-test_case", case];
            let tls = ["-use_tls", "-use_test_ca", "-ca_file", authority];
            run(&client, &[&args[..], &tls[..]].concat()).await.unwrap_or_else(|why| panic!("{case}: {why}"));
        }
    });
}
