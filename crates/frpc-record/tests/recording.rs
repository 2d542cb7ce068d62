//! Recordings of calls in process: their content, their limits, and files that are cut, damaged or foreign.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{
    io::{self, Write},
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver},
    },
    time::Duration,
};

use frpc::{
    Channel, Code, Layered, MethodKind, Request, Streaming, codec::Format, prost::Message as _,
    prost_types::FileDescriptorSet,
};
use frpc_record::{CallEventKind, RecordSettings, Recorder, Recording, RecordingFault};
use proptest::prelude::*;
use support::{
    calls::{TestClient, TestServer, TestService, each_kind, encoded, of_kind, stream_of, words},
    in_virtual_time,
};

/// A writer into memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Memory {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn client(recorder: &Recorder) -> TestClient {
    let service = Layered::new(TestServer::new(TestService::default()), recorder.clone());
    TestClient::new(Channel::in_process(service))
}

/// Records a call of each kind, and returns the file.
fn recorded() -> Vec<u8> {
    let memory = Memory::default();
    in_virtual_time(async {
        let recorder = Recorder::to_writer(memory.clone(), RecordSettings::default()).unwrap();
        for result in each_kind(&client(&recorder), "hello").await {
            result.unwrap();
        }
        of_kind(&client(&recorder), 0, "fail 5 no such letter").await.unwrap_err();
        assert_eq!(recorder.close().failure, None);
    });
    memory.bytes()
}

#[test]
fn calls_of_all_kinds_are_recorded_with_their_messages_and_status() {
    let recording = Recording::parse(recorded()).unwrap();
    assert_eq!((recording.cut_at(), recording.dropped_calls(), recording.calls().len()), (None, 0, 5));
    let kinds = [
        MethodKind::Unary,
        MethodKind::ServerStreaming,
        MethodKind::ClientStreaming,
        MethodKind::Bidirectional,
        MethodKind::Unary,
    ];
    for ((call, kind), answer) in recording.calls().iter().zip(kinds).zip(["hello", "hello", "hello", "re: hello", ""])
    {
        assert_eq!((call.kind, call.format, &*call.service), (kind, Format::Polyglot, "calls.Test"));
        let outcome = call.outcome.as_ref().unwrap();
        if let Some(failure) = &outcome.failure {
            assert_eq!(
                (failure.code(), failure.message(), call.responses().count()),
                (Code::NotFound, "no such letter", 0)
            );
            continue;
        }
        assert_eq!(
            [call.requests().collect::<Vec<_>>(), call.responses().collect()],
            [[&encoded("hello")], [&encoded(answer)]]
        );
        let ends = call.events.iter().filter(|event| event.kind == CallEventKind::RequestsEnd { is_complete: true });
        assert_eq!(ends.count(), usize::from(kind.has_request_stream()));
    }
    assert_eq!(recording.schemas().len(), 1, "once for all methods");
    let schema = FileDescriptorSet::decode(recording.schemas()[0].clone()).unwrap();
    assert!(schema.file.iter().any(|file| file.package() == "calls"));
}

#[test]
fn secrets_are_not_in_the_file() {
    let memory = Memory::default();
    in_virtual_time(async {
        let recorder = Recorder::to_writer(memory.clone(), RecordSettings::default()).unwrap();
        let mut request = Request::new(words("hello"));
        for (name, value) in [("authorization", "Bearer s3cret"), ("color", "red"), ("x-api-key", "s3cret")] {
            request.metadata_mut().insert(name, value).unwrap();
        }
        request.metadata_mut().insert_bin("trace-bin", [0, 255]).unwrap();
        request.set_timeout(Duration::from_secs(7));
        client(&recorder).say(request).await.unwrap();
        recorder.close();
    });
    assert!(!memory.bytes().windows(6).any(|bytes| bytes == b"s3cret"));
    let recording = Recording::parse(memory.bytes()).unwrap();
    let call = &recording.calls()[0];
    assert_eq!(call.metadata.hidden, ["authorization", "x-api-key"]);
    assert_eq!(call.metadata.values.get("color"), Some("red"));
    assert_eq!(call.metadata.values.get_bin("trace-bin"), Some(&[0, 255][..]));
    assert_eq!(call.timeout, Some(Duration::from_secs(7)));
}

#[test]
fn times_are_recorded() {
    let memory = Memory::default();
    in_virtual_time(async {
        let recorder = Recorder::to_writer(memory.clone(), RecordSettings::default()).unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        of_kind(&client(&recorder), 3, "sleep 3").await.unwrap();
        recorder.close();
    });
    let recording = Recording::parse(memory.bytes()).unwrap();
    let call = &recording.calls()[0];
    let response = call.events.iter().find(|event| matches!(event.kind, CallEventKind::Response(_))).unwrap();
    assert_eq!([call.start, response.time].map(|time| time.as_secs()), [1, 4]);
    assert_eq!(call.outcome.as_ref().unwrap().time.as_secs(), 4);
}

#[test]
fn a_call_given_up_by_its_caller_is_cancelled() {
    let memory = Memory::default();
    in_virtual_time(async {
        let recorder = Recorder::to_writer(memory.clone(), RecordSettings::default()).unwrap();
        let mut answers = client(&recorder).count(words("endless a")).await.unwrap().into_inner();
        answers.message().await.unwrap();
        drop(answers);
        support::settle().await;
        recorder.close();
    });
    let recording = Recording::parse(memory.bytes()).unwrap();
    let failure = recording.calls()[0].outcome.as_ref().unwrap().failure.clone().unwrap();
    assert_eq!(failure.code(), Code::Cancelled);
}

#[test]
fn excluded_methods_are_not_recorded() {
    let memory = Memory::default();
    in_virtual_time(async {
        let settings = RecordSettings { methods: Arc::new(|method| method.name != "Say"), ..Default::default() };
        let recorder = Recorder::to_writer(memory.clone(), settings).unwrap();
        for result in each_kind(&client(&recorder), "hello").await {
            result.unwrap();
        }
        assert_eq!(recorder.close().calls, 3);
    });
    assert!(Recording::parse(memory.bytes()).unwrap().calls().iter().all(|call| call.method != "Say"));
}

/// A writer that waits for permissions.
struct Slow(Memory, Receiver<()>);

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Without a sender, everything is permitted.
        let _ = self.1.recv();
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_slow_file_delays_no_call_and_drops_are_reported() {
    let memory = Memory::default();
    in_virtual_time(async {
        let (permits, permitted) = mpsc::channel();
        let settings = RecordSettings { queue_len_max: 100_000, ..Default::default() };
        let recorder = Recorder::to_writer(Slow(memory.clone(), permitted), settings).unwrap();
        let client = client(&recorder);
        for _ in 0..20 {
            client.say(words("large 20000")).await.unwrap();
        }
        // The file writes now, and one call is recorded again.
        drop(permits);
        recorder.flush();
        client.say(words("hello")).await.unwrap();
        let summary = recorder.close();
        assert!(summary.calls == 21 && (10..20).contains(&summary.dropped_calls), "{summary:?}");
    });
    let recording = Recording::parse(memory.bytes()).unwrap();
    assert!((10..20).contains(&recording.dropped_calls()));
    let complete = recording.calls().iter().filter(|call| call.outcome.is_some()).count() as u64;
    assert_eq!(complete, 21 - recording.dropped_calls());
    assert!(recording.calls().last().unwrap().requests().eq([&encoded("hello")]));
}

#[test]
fn a_full_file_ends_the_recording_and_says_so() {
    let memory = Memory::default();
    in_virtual_time(async {
        let settings = RecordSettings { recording_len_max: 50_000, ..Default::default() };
        let recorder = Recorder::to_writer(memory.clone(), settings).unwrap();
        let client = client(&recorder);
        for _ in 0..100 {
            client.say(words("x".repeat(1_000))).await.unwrap();
        }
        let summary = recorder.close();
        assert!(summary.calls == 100 && (60..90).contains(&summary.dropped_calls), "{summary:?}");
    });
    assert!(memory.bytes().len() <= 50_000);
    let recording = Recording::parse(memory.bytes()).unwrap();
    assert!(recording.dropped_calls() > 60 && recording.cut_at().is_none());
}

#[test]
fn a_failing_file_fails_no_call() {
    struct Broken;

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::other("no space"))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    in_virtual_time(async {
        let recorder = Recorder::to_writer(Broken, RecordSettings::default()).unwrap();
        recorder.flush();
        client(&recorder).say(words("hello")).await.unwrap();
        let summary = recorder.close();
        assert_eq!((summary.calls, summary.dropped_calls, summary.failure.as_deref()), (1, 1, Some("no space")));
    });
}

#[test]
fn dropping_the_recorder_closes_the_file() {
    let path = std::env::temp_dir().join(format!("frpc-record-test-{}.frec", std::process::id()));
    in_virtual_time(async {
        let recorder = Recorder::create(&path).unwrap();
        let client = client(&recorder);
        client.gather(stream_of("a b")).await.unwrap();
        drop((client, recorder));
    });
    let recording = Recording::open(&path).unwrap();
    assert_eq!((recording.cut_at(), recording.calls().len()), (None, 1));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_file_cut_at_any_byte_is_read_up_to_the_cut() {
    let whole = recorded();
    let (mut calls, mut cut_at) = (0, 0);
    for len in 0..whole.len() {
        let recording = Recording::parse(whole[..len].to_vec()).unwrap();
        let at = recording.cut_at().expect("it was cut");
        assert!(at <= len as u64 && at >= cut_at, "{at} of {len}");
        assert!(recording.calls().len() >= calls);
        (calls, cut_at) = (recording.calls().len(), at);
    }
    assert_eq!(calls, 5);
}

#[test]
fn a_changed_byte_is_an_error_with_its_offset() {
    let whole = recorded();
    for at in 0..whole.len() {
        for bit in [0x01, 0x80] {
            let mut bytes = whole.clone();
            bytes[at] ^= bit;
            let error = Recording::parse(bytes).unwrap_err();
            assert!(error.offset <= at as u64, "{error}");
            match at {
                0..12 => assert!(matches!(error.fault, RecordingFault::Foreign), "{error}"),
                12..16 => assert!(matches!(error.fault, RecordingFault::Version(_)), "{error}"),
                _ => assert!(matches!(error.fault, RecordingFault::Checksum), "{error}"),
            }
        }
    }
}

#[test]
fn bytes_after_the_end_are_an_error() {
    let whole = recorded();
    let error = Recording::parse([&whole[..], &whole[16..]].concat()).unwrap_err();
    assert!(error.offset == whole.len() as u64 && error.to_string().contains("follows the end"), "{error}");
}

#[test]
fn a_missing_file_is_an_error() {
    let error = Recording::open("/no/such/file").unwrap_err();
    assert!(error.to_string().contains("cannot be read"), "{error}");
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), is_named: bool) {
        let bytes = if is_named { [b"frpc-record\n\x01\0\0\0", &bytes[..]].concat() } else { bytes };
        // Only panics matter.
        let _ = Recording::parse(bytes);
    }
}

#[tokio::test]
async fn a_recorded_stream_keeps_its_trailers_and_metadata() {
    use frpc::{Answer, Body, Call, Layer, Metadata, Next, Status};

    /// Answers with a stream, metadata and trailers.
    struct Decorated;

    impl Layer for Decorated {
        async fn call(&self, _: Call, _: Next<'_>) -> Result<Answer, Status> {
            let mut trailers = Metadata::new();
            trailers.insert("served-by", "a").unwrap();
            let messages = Streaming::from_iter([encoded("a")]).with_trailers(trailers);
            let mut answer = Answer::new(Body::Many(messages));
            answer.metadata_mut().insert("version", "7").unwrap();
            Ok(answer)
        }
    }

    let memory = Memory::default();
    let recorder = Recorder::to_writer(memory.clone(), RecordSettings::default()).unwrap();
    let service = Layered::new(TestServer::new(TestService::default()), recorder.clone()).layer(Decorated);
    let client = TestClient::new(Channel::in_process(service));
    let mut answers = client.count(words("")).await.unwrap().into_inner();
    assert_eq!(answers.trailers().await.unwrap().unwrap().get("served-by"), Some("a"));
    recorder.close();
    let recording = Recording::parse(memory.bytes()).unwrap();
    let outcome = recording.calls()[0].outcome.as_ref().unwrap();
    assert_eq!(outcome.metadata.values.get("version"), Some("7"));
    assert_eq!(outcome.trailers.values.get("served-by"), Some("a"));
}
