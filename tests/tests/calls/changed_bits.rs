//! Calls over a wire that flips a bit.
//!
//! Only for frisbee, because our other wires have no checksums.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use frpc::{Config, Server};
use support::{
    calls::{TestClient, TestServer, TestService, ask, quiet, quiet_channel},
    in_virtual_time,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, duplex, split};

/// Copies bytes and flips a bit in one of them.
async fn carry(
    mut from: ReadHalf<DuplexStream>,
    mut to: WriteHalf<DuplexStream>,
    carried: Arc<AtomicUsize>,
    at: usize,
) {
    let mut bytes = [0; 4096];
    while let Ok(len @ 1..) = from.read(&mut bytes).await {
        let before = carried.fetch_add(len, Ordering::Relaxed);
        if (before..before + len).contains(&at) {
            bytes[at - before] ^= 1 << (at % 8);
        }
        if to.write_all(&bytes[..len]).await.is_err() {
            return;
        }
    }
}

/// Returns a client and the numbers of bytes in each direction. One byte per direction is changed.
async fn connect(server: &Server, there: usize, back: usize) -> (TestClient, [Arc<AtomicUsize>; 2]) {
    let (ours, middle) = duplex(64 * 1024);
    let (other_middle, theirs) = duplex(64 * 1024);
    server.attach(theirs);
    let ((from_client, to_client), (from_server, to_server)) = (split(middle), split(other_middle));
    let carried = [Arc::default(), Arc::default()];
    tokio::spawn(carry(from_client, to_server, Arc::clone(&carried[0]), there));
    tokio::spawn(carry(from_server, to_client, Arc::clone(&carried[1]), back));
    let builder = quiet_channel().config(checked());
    (TestClient::new(builder.attach(ours).await.unwrap()), carried)
}

fn checked() -> Config {
    Config { checksums: true, ..quiet() }
}

#[test]
fn checksums_turn_corruption_into_failed_calls() {
    in_virtual_time(async {
        let service = TestServer::new(TestService::default());
        let server = Server::builder().config(checked()).add_service(service).without_listener().unwrap();
        let (client, carried) = connect(&server, usize::MAX, usize::MAX).await;
        // After the first answer, the server has heard about the checksums.
        ask(&client, "first").await.unwrap();
        let before = carried.each_ref().map(|len| len.load(Ordering::Relaxed));
        ask(&client, "transfer 100 to the account 4711").await.unwrap();
        let after = carried.map(|len| len.load(Ordering::Relaxed));
        assert!(after[0] > before[0] + 40 && after[1] > before[1] + 40, "{before:?} {after:?}");
        let changes = (before[0]..after[0]).map(|at| (at, usize::MAX));
        for (there, back) in changes.chain((before[1]..after[1]).map(|at| (usize::MAX, at))) {
            let (client, _) = connect(&server, there, back).await;
            ask(&client, "first").await.unwrap();
            let answer = ask(&client, "transfer 100 to the account 4711").await;
            assert!(answer.is_err(), "a change at {there} or {back} was not noticed: {answer:?}");
        }
    });
}
