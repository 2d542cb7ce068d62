//! h2spec, which judges servers of HTTP/2.

use std::process::Stdio;

use frpc_http::Http;
use support::{SECOND, calls::TestService, foreign_program, in_real_time_within};
use tokio::process::Command;

use crate::h2_caller::server;

#[test]
fn h2spec_finds_fault_with_nothing_but_a_preface_that_is_none() {
    let Some(h2spec) = foreign_program("h2spec") else { return };
    in_real_time_within(300 * SECOND, async {
        let server = server(&TestService::default(), Http::new()).bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addr().socket_addr().unwrap().port().to_string();
        let run = Command::new(h2spec).args(["-h", "127.0.0.1", "-p", &port, "-o", "5"]).stderr(Stdio::null()).output();
        let told = String::from_utf8(run.await.unwrap().stdout).unwrap();
        let (_, failures) = told.split_once("Failures:").expect("there is a list");
        let failed: Vec<_> = failures.lines().filter(|line| line.contains('\u{d7}')).map(str::trim).collect();
        // It begins like a request of HTTP/1.1, and is answered as one.
        assert_eq!(failed, ["\u{d7} 2: Sends invalid connection preface"], "{told}");
        assert!(told.ends_with("145 tests, 144 passed, 0 skipped, 1 failed\n"), "{told}");
    });
}
