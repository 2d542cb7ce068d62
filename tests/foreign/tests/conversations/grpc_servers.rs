//! The server of grpc-go's own tests and one of Python's grpcio, called by our client: the cases of grpc-go's client.

use std::{process::Stdio, time::Duration};

use foreign::protos::grpc::testing::{
    EchoStatus, Empty, Payload, ResponseParameters, SimpleRequest, StreamingInputCallRequest,
    StreamingOutputCallRequest, test_service_client::TestServiceClient,
    unimplemented_service_client::UnimplementedServiceClient,
};
use frpc::{CallError, Channel, Code, Metadata, Request, StreamSender, Streaming};
use frpc_http::Client;
use support::{Directory, foreign_program, foreign_python, in_real_time_within};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    task::JoinSet,
};

use crate::{LIMIT, write_descriptors};

/// Starts each server on a port of its choice, and runs the test with it.
fn with_each_server(test: impl AsyncFn(String)) {
    let directory = Directory::new("grpc-server");
    for command in [go(), python(&directory)].into_iter().flatten() {
        in_real_time_within(LIMIT, with_server(command, &test));
    }
}

fn go() -> Option<Command> {
    let mut command = Command::new(foreign_program("interop-server")?);
    command.arg("-port=0").env("GRPC_GO_LOG_SEVERITY_LEVEL", "info");
    Some(command)
}

fn python(directory: &Directory) -> Option<Command> {
    let mut command = Command::new(foreign_python()?.join("python"));
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/python/grpc_server.py")).arg(write_descriptors(directory));
    Some(command)
}

async fn with_server(mut command: Command, test: impl AsyncFn(String)) {
    let mut server = command.stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let port = port(&mut server).await;
    test(format!("grpc://127.0.0.1:{port}")).await;
}

/// Returns the port that the server says that it listens on. Reads on, so that it can go on writing.
async fn port(server: &mut Child) -> u16 {
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    loop {
        let line = lines.next_line().await.unwrap().expect("it says where it listens");
        if let Some((_, place)) = line.split_once("listening on ") {
            let port = place.rsplit(':').next().unwrap().parse().unwrap();
            tokio::spawn(async move { while lines.next_line().await.is_ok_and(|line| line.is_some()) {} });
            return port;
        }
    }
}

async fn connect(url: &str) -> (Channel, TestServiceClient) {
    let channel = Channel::builder().transport(Client::new()).connect(url).await.unwrap();
    (channel.clone(), TestServiceClient::new(channel))
}

fn payload(len: usize) -> Option<Payload> {
    Some(Payload { body: vec![0; len], ..Payload::default() })
}

fn wanting(size: i32, len: usize) -> StreamingOutputCallRequest {
    let response_parameters = vec![ResponseParameters { size, interval_us: 0 }];
    StreamingOutputCallRequest { response_parameters, payload: payload(len), ..StreamingOutputCallRequest::default() }
}

#[test]
fn unary_calls_of_every_size_are_answered() {
    with_each_server(async |url| {
        let (_, client) = connect(&url).await;
        client.empty_call(Empty {}).await.unwrap();
        let large = SimpleRequest { response_size: 314_159, payload: payload(271_828), ..SimpleRequest::default() };
        let answer = client.unary_call(large).await.unwrap().into_inner();
        assert_eq!(answer.payload.unwrap().body.len(), 314_159);
    });
}

#[test]
fn streams_of_every_kind_work() {
    with_each_server(async |url| {
        let (_, client) = connect(&url).await;
        let lens = [27_182, 8, 1828, 45_904];
        let requests = lens.map(|len| StreamingInputCallRequest { payload: payload(len) });
        let sum = client.streaming_input_call(Streaming::from_iter(requests)).await.unwrap();
        assert_eq!(sum.get_ref().aggregated_payload_size, 74_922);

        let sizes = [31_415, 9, 2653, 58_979];
        let response_parameters = sizes.map(|size| ResponseParameters { size, interval_us: 0 }).to_vec();
        let request = StreamingOutputCallRequest { response_parameters, ..StreamingOutputCallRequest::default() };
        let mut answers = client.streaming_output_call(request).await.unwrap().into_inner();
        for size in sizes {
            let answer = answers.message().await.unwrap().unwrap();
            assert_eq!(i32::try_from(answer.payload.unwrap().body.len()), Ok(size));
        }
        assert_eq!(answers.message().await.unwrap(), None);

        let (sender, requests) = Streaming::channel(1);
        let mut answers = client.full_duplex_call(requests).await.unwrap().into_inner();
        for (size, len) in sizes.into_iter().zip(lens) {
            sender.send(wanting(size, len)).await.unwrap();
            let answer = answers.message().await.unwrap().unwrap();
            assert_eq!(i32::try_from(answer.payload.unwrap().body.len()), Ok(size));
        }
        drop(sender);
        assert_eq!(answers.message().await.unwrap(), None);

        let mut none = client.full_duplex_call(Streaming::from_iter([])).await.unwrap().into_inner();
        assert_eq!(none.message().await.unwrap(), None);
    });
}

#[test]
fn timeouts_and_cancellations_keep_the_connection() {
    with_each_server(async |url| {
        let (_, client) = connect(&url).await;
        let (sender, requests) = Streaming::channel(1);
        sender.send(wanting(31_415, 27_182)).await.unwrap();
        let mut request = Request::new(requests);
        request.set_timeout(Duration::from_millis(1));
        let failed = async { client.full_duplex_call(request).await?.into_inner().trailers().await };
        let status = failed.await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
        // The server knows the deadline and may answer first.
        assert!(
            matches!(status.call_error(), None | Some(CallError::TimedOut { .. } | CallError::NotSent { .. })),
            "{status:?}"
        );

        let (sender, requests) = Streaming::channel(1);
        let call = tokio::spawn({
            let client = client.clone();
            async move { client.streaming_input_call(requests).await }
        });
        sender.send(StreamingInputCallRequest { payload: payload(1) }).await.unwrap();
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());

        let (sender, requests) = Streaming::channel(1);
        let mut answers = client.full_duplex_call(requests).await.unwrap().into_inner();
        sender.send(wanting(31_415, 27_182)).await.unwrap();
        answers.message().await.unwrap().unwrap();
        drop(answers);
        gone(&sender).await;
        client.empty_call(Empty {}).await.unwrap();
    });
}

/// Returns once nobody reads the requests any more.
async fn gone(sender: &StreamSender<StreamingOutputCallRequest>) {
    while sender.send(wanting(1, 1)).await.is_ok() {}
}

#[test]
fn statuses_arrive_with_code_and_message() {
    with_each_server(async |url| {
        let (channel, client) = connect(&url).await;
        for message in
            ["test status message", "\t\ntest with whitespace\r\nand Unicode BMP \u{263a} and non-BMP \u{1f608}\t\n"]
        {
            let response_status = Some(EchoStatus { code: 2, message: message.to_owned() });
            let unary = SimpleRequest { response_status: response_status.clone(), ..SimpleRequest::default() };
            let status = client.unary_call(unary).await.unwrap_err();
            assert_eq!((status.code(), status.message()), (Code::Unknown, message));
            let streaming = StreamingOutputCallRequest { response_status, ..StreamingOutputCallRequest::default() };
            let requests = Streaming::from_iter([streaming]);
            let mut answers = client.full_duplex_call(requests).await.unwrap().into_inner();
            let status = answers.message().await.unwrap_err();
            assert_eq!((status.code(), status.message()), (Code::Unknown, message));
        }
        assert_eq!(client.unimplemented_call(Empty {}).await.unwrap_err().code(), Code::Unimplemented);
        let other = UnimplementedServiceClient::new(channel);
        assert_eq!(other.unimplemented_call(Empty {}).await.unwrap_err().code(), Code::Unimplemented);
    });
}

#[test]
fn metadata_round_trips() {
    const ASCII: &str = "x-grpc-test-echo-initial";
    const BINARY: &str = "x-grpc-test-echo-trailing-bin";
    with_each_server(async |url| {
        let (_, client) = connect(&url).await;
        let mut metadata = Metadata::new();
        metadata.insert(ASCII, "test_initial_metadata_value").unwrap();
        metadata.insert_bin(BINARY, [0x0a, 0x0b, 0x0a, 0x0b, 0x0a, 0x0b]).unwrap();
        let mut request = Request::new(SimpleRequest { response_size: 1, ..SimpleRequest::default() });
        *request.metadata_mut() = metadata.clone();
        let answer = client.unary_call(request).await.unwrap();
        assert_eq!(answer.metadata().get(ASCII), metadata.get(ASCII));
        assert_eq!(answer.trailers().get_bin(BINARY), metadata.get_bin(BINARY));

        let mut request = Request::new(Streaming::from_iter([wanting(1, 1)]));
        *request.metadata_mut() = metadata.clone();
        let mut answers = client.full_duplex_call(request).await.unwrap().into_inner();
        answers.message().await.unwrap().unwrap();
        assert_eq!(answers.metadata().unwrap().get(ASCII), metadata.get(ASCII));
        assert_eq!(answers.trailers().await.unwrap().unwrap().get_bin(BINARY), metadata.get_bin(BINARY));
    });
}

#[test]
fn calls_beyond_the_concurrency_limit_are_answered() {
    with_each_server(async |url| {
        let (_, client) = connect(&url).await;
        let mut calls = JoinSet::new();
        for len in 0..500 {
            let client = client.clone();
            let request = SimpleRequest { response_size: len, ..SimpleRequest::default() };
            calls.spawn(async move { (len, client.unary_call(request).await.unwrap().into_inner()) });
        }
        while let Some(answered) = calls.join_next().await {
            let (len, answer) = answered.unwrap();
            assert_eq!(i32::try_from(answer.payload.unwrap_or_default().body.len()), Ok(len));
        }
    });
}
