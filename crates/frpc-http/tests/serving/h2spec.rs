//! h2spec, which judges servers of HTTP/2.

use std::{collections::BTreeSet, path::Path, process::Stdio};

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
        // It begins like a request of HTTP/1.1, and is answered as one.
        let expected = BTreeSet::from(["\u{d7} 2: Sends invalid connection preface".to_owned()]);
        let mut failed = run(&h2spec, &port).await;
        // It waits by the clock, so on a busy machine other cases fail now and then: those count that always do.
        for _ in 0..2 {
            if failed != expected {
                let again = run(&h2spec, &port).await;
                failed.retain(|case| again.contains(case));
            }
        }
        assert_eq!(failed, expected);
    });
}

/// Returns the cases that fail.
async fn run(h2spec: &Path, port: &str) -> BTreeSet<String> {
    let run = Command::new(h2spec).args(["-h", "127.0.0.1", "-p", port, "-o", "5"]).stderr(Stdio::null()).output();
    let told = String::from_utf8(run.await.unwrap().stdout).unwrap();
    println!("{told}");
    assert!(told.contains("\n145 tests, "), "all of it has run: {told}");
    let (_, failures) = told.split_once("Failures:").expect("there is one at least");
    failures.lines().filter(|line| line.contains('\u{d7}')).map(|line| line.trim().to_owned()).collect()
}
