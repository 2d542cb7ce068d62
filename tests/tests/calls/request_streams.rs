//! Request streams with an irregular end: a panic, or a runtime shutdown.

use frpc::{Code, Status, Streaming};
use futures_util::{StreamExt, stream};
use support::{
    SECOND, assert_elapsed,
    calls::{TestClient, TestService, Words, joined, next, quiet_channel, serve, words},
    in_virtual_time,
};
use tokio::{
    io::duplex,
    runtime,
    time::{Instant, timeout},
};

use crate::transport::{Transport, over_every_transport};

over_every_transport! {
    a_panicking_request_stream_ends_the_call
}

/// Yields this number of messages and then panics.
fn panicking(texts: usize) -> Streaming<Words> {
    Streaming::new(stream::iter(0..).map(move |number| {
        assert!(number < texts, "out of words");
        Ok(words(number.to_string()))
    }))
}

#[track_caller]
fn assert_panicked(status: &Status) {
    assert_eq!(status.code(), Code::Internal);
    assert_eq!(status.message(), "the request stream panicked: out of words");
}

fn a_panicking_request_stream_ends_the_call(transport: Transport) {
    in_virtual_time(async {
        for texts in [0, 1, 100] {
            let (service, served, client) = transport.serve_and_connect().await;
            let since = Instant::now();
            assert_panicked(&joined(client.chat(panicking(texts)).await).await.unwrap_err());
            assert_panicked(&client.gather(panicking(texts)).await.unwrap_err());
            assert_elapsed(since, std::time::Duration::ZERO);
            served.assert_unharmed().await;
            let log = service.log.take();
            assert_eq!(
                log.iter().filter(|line| line.starts_with("dropped")).count(),
                log.iter().filter(|line| !line.starts_with("dropped")).count(),
                "{log:?}"
            );
        }
    });
}

/// Not for in-process calls: their requests are read by the handler, without a task.
#[test]
fn a_call_ends_with_the_runtime_of_its_request_stream() {
    let runtime = || runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (home, passing) = (runtime(), runtime());
    let (server, client) = home.block_on(async {
        let server = serve(&TestService::default());
        let (ours, theirs) = duplex(1000);
        server.attach(theirs);
        (server, TestClient::new(quiet_channel().attach(ours).await.unwrap()))
    });
    let (sender, requests) = Streaming::channel(1);
    let mut answers = passing.block_on(client.chat(requests)).unwrap().into_inner();
    home.block_on(async {
        sender.send(words("hi")).await.unwrap();
        assert_eq!(next(&mut answers).await, "re: hi");
        passing.shutdown_background();
        let ended = timeout(60 * SECOND, answers.message()).await.expect("the call ends");
        assert_eq!(ended.unwrap_err().code(), Code::Internal);
        drop(server);
    });
}
