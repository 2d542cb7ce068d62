//! The HTTP/2 conformance suite h2spec.

use std::process::Stdio;

use bytes::Bytes;
use frpc_http::{Http, Mount, MountContext};
use futures_util::future::{BoxFuture, FutureExt, ready};
use http::{Request, Response};
use support::{SECOND, calls::TestService, foreign_program, in_real_time_within};
use tokio::process::Command;

use crate::h2_caller::server;

/// Answers a request after reading its whole body.
struct Patient;

impl Mount for Patient {
    fn respond<'a>(&'a self, _: MountContext, _: Request<Bytes>) -> BoxFuture<'a, Response<Bytes>> {
        ready(Response::new(Bytes::from_static(b"judge me"))).boxed()
    }
}

#[test]
fn h2spec_passes_except_for_invalid_prefaces() {
    let Some(h2spec) = foreign_program("h2spec") else { return };
    in_real_time_within(300 * SECOND, async {
        let http = Http::new().mount("/patient", Patient);
        let server = server(&TestService::default(), http).bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addr().socket_addr().unwrap().port().to_string();
        // The page is answered before the end of its request. The response, and the RST_STREAM with NO_ERROR after it
        // (RFC 9113), may then cross the next frames of h2spec. Case 6.9.1/3 mistakes this RST_STREAM for the answer
        // to its WINDOW_UPDATEs.
        let args = ["-h", "127.0.0.1", "-p", &port, "-P", "/patient", "-o", "60"];
        let run = Command::new(h2spec).args(args).stderr(Stdio::null()).output();
        let told = String::from_utf8(run.await.unwrap().stdout).unwrap();
        println!("{told}");
        assert!(told.contains("\n145 tests, "), "all of it has run: {told}");
        let (_, failures) = told.split_once("Failures:").expect("there is one at least");
        let failed: Vec<_> = failures.lines().filter(|line| line.contains('\u{d7}')).map(str::trim).collect();
        // The invalid preface looks like an HTTP/1.1 request and is answered as one.
        assert_eq!(failed, ["\u{d7} 2: Sends invalid connection preface"]);
    });
}
