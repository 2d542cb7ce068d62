//! `frpc bench`.

use crate::program::{Server, frpc};

#[test]
fn a_load_counts_its_calls() {
    let server = Server::start();
    for wire in ["tcp", "grpc", "http"] {
        let ran = frpc(&[
            "bench",
            &server.over(wire),
            "Say",
            "text=hello",
            "-c",
            "2",
            "-K",
            "3",
            "-n",
            "100",
            "--warmup",
            "0",
            "--json",
        ]);
        let report = &ran.json()[0];
        let load = &report["loads"][0];
        assert_eq!((load["calls"].as_u64(), load["failures"].as_u64()), (Some(100), Some(0)), "{wire}: {report}");
        // A text of five letters is seven bytes.
        assert_eq!(load["bytes"].as_u64(), Some(700));
        assert!(load["latency_us"]["quantiles"]["p99"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn json_rpc_functions_can_be_benchmarked() {
    let server = Server::start();
    let ran = frpc(&["bench", &server.over("jsonrpc+tcp"), "sum", "1", "2", "-n", "20", "--warmup", "0", "--json"]);
    assert_eq!(ran.json()[0]["loads"][0]["calls"].as_u64(), Some(20), "{ran:?}");
}

#[test]
fn streams_can_be_benchmarked() {
    let server = Server::start();
    let ran = frpc(&["bench", &server.address, "Repeat", "times=4", "-n", "20", "-c", "1", "--warmup", "0", "--json"]);
    let report = &ran.json()[0];
    assert_eq!(report["loads"][0]["messages"].as_u64(), Some(80), "{report}");
}

#[test]
fn a_load_with_a_duration_and_a_rate_ends() {
    let server = Server::start();
    let ran = frpc(&["bench", &server.address, "Say", "-z", "200ms", "-r", "100", "-c", "1", "--warmup", "0"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("latency") && ran.out.contains("p99.9"), "{}", ran.out);
    assert!(!ran.err.contains('\r'), "there is no live display without a terminal");
}

#[test]
fn two_addresses_are_benchmarked_alternately_and_compared() {
    let server = Server::start();
    let arguments = ["-n", "50", "-c", "1", "--rounds", "2", "--warmup", "0"];
    let grpc = server.over("grpc");
    let addresses = ["bench", &server.address, "Say", "--against", &grpc];
    let ran = frpc(&[&addresses, &arguments[..], &["--json"]].concat());
    let report = &ran.json()[0];
    assert!(report["ratio"]["median"].as_f64().unwrap() > 0.0, "{report}");
    assert_eq!(report["loads"][1]["rates"].as_array().unwrap().len(), 2);
    let ran = frpc(&[&addresses, &arguments[..]].concat());
    assert!(ran.out.contains("in calls/s"), "{}", ran.out);
}

#[test]
fn a_failing_load_reports_the_error_once() {
    let server = Server::start();
    let ran = frpc(&["bench", &server.address, "Fail", "code=7", "text=no", "-n", "10"]);
    assert_eq!(ran.code, 64 + 7);
    assert_eq!(ran.err.matches("permission_denied (7): no").count(), 1, "{}", ran.err);
}
