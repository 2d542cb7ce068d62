//! A line of text for each call.

use std::{
    fmt,
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use frisbee::Address;
use frpc_json::text::put_string;
use prost_types::Timestamp;
use tokio::time::Instant;
use tracing::info;

use super::{
    layer::{Layer, Next},
    log_writer::LogWriter,
};
use crate::call::{
    exchange::{Answer, Body, Call},
    metadata::{HIDDEN, looks_secret},
    method::Method,
    status::{Code, Status},
    streaming::Streaming,
    trace::{TraceContext, TraceId},
};

/// Writes a line for each call at its end, as JSON or text. A call answered with a stream ends with the stream.
///
/// ```
/// use frpc::{Server, layers::{AccessLog, LogFormat}};
///
/// let log = AccessLog::to_writer(std::io::stderr()).format(LogFormat::Json).sampled(0.1).metadata(["user-agent"]);
/// let server = Server::builder().layer(log);
/// # let _ = server;
/// ```
///
/// ```json
/// {"time":"2026-11-23T09:30:00.125Z","rpc.method":"helloworld.Greeter/SayHello","rpc.status_code":"OK","duration_ms":0.08,"request_messages":1,"request_bytes":5,"response_messages":1,"response_bytes":11,"peer":"tcp://10.0.0.7:51234","trace_id":"4bf92f3577b34da6a3ce929d0e0e4736"}
/// ```
///
/// A thread writes the lines, so a slow writer delays no call. While [`LINES_MAX`](Self::LINES_MAX) lines wait, further lines
/// are dropped and [counted](Self::dropped). Dropping the last clone of the layer waits up to a second for queued lines.
#[derive(Clone)]
pub struct AccessLog {
    settings: Arc<LogSettings>,
    output: LogOutput,
    /// Shared by the clones of the layer, and not by their calls: a call must not wait for the writer.
    _flush: Arc<FlushOnDrop>,
}

#[derive(Clone)]
struct LogSettings {
    format: LogFormat,
    ratio: f64,
    metadata: Arc<[String]>,
}

/// The format of the lines of an [`AccessLog`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogFormat {
    /// `name=value` with spaces in between. Values with other than simple characters are quoted.
    #[default]
    Text,
    /// A JSON object.
    Json,
}

#[derive(Clone)]
enum LogOutput {
    Tracing,
    Writer(Arc<LogWriter>),
}

impl AccessLog {
    /// The maximum number of lines waiting for the writer.
    pub const LINES_MAX: usize = 4096;

    /// Creates the layer with a writer. It runs on a thread of its own, from the first line until the last clone of the
    /// layer is dropped. The thread flushes the writer when no further line waits.
    pub fn to_writer(writer: impl Write + Send + 'static) -> Self {
        Self::with_output(LogOutput::Writer(Arc::new(LogWriter::new(writer, Self::LINES_MAX))))
    }

    /// Creates the layer with `tracing`: each line is an event of the level INFO with the target `frpc::access`.
    pub fn to_tracing() -> Self {
        Self::with_output(LogOutput::Tracing)
    }

    fn with_output(output: LogOutput) -> Self {
        let settings = LogSettings { format: LogFormat::default(), ratio: 1.0, metadata: Arc::default() };
        Self { settings: Arc::new(settings), _flush: Arc::new(FlushOnDrop(output.clone())), output }
    }

    /// Sets the format. Default [`LogFormat::Text`].
    pub fn format(mut self, format: LogFormat) -> Self {
        Arc::make_mut(&mut self.settings).format = format;
        self
    }

    /// Writes this share of the successful calls, and all failed ones. Default 1.0.
    pub fn sampled(mut self, ratio: f64) -> Self {
        Arc::make_mut(&mut self.settings).ratio = ratio;
        self
    }

    /// Adds metadata of the caller with these names. The values of [secret-looking](looks_secret) names are hidden.
    pub fn metadata(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Arc::make_mut(&mut self.settings).metadata = names.into_iter().map(Into::into).collect();
        self
    }

    /// Returns the number of lines dropped because the writer was too slow or has failed.
    pub fn dropped(&self) -> u64 {
        match &self.output {
            LogOutput::Tracing => 0,
            LogOutput::Writer(writer) => writer.dropped(),
        }
    }

    /// Waits until all lines so far are written and the writer is flushed. Blocks the thread.
    pub fn flush(&self) {
        if let LogOutput::Writer(writer) = &self.output {
            writer.flush();
        }
    }
}

impl LogOutput {
    fn write(&self, line: Vec<u8>) {
        match self {
            Self::Tracing => info!(target: "frpc::access", "{}", String::from_utf8_lossy(line.trim_ascii_end())),
            Self::Writer(writer) => writer.push(line),
        }
    }
}

/// Waits for queued lines when the layer is dropped, because the end of the process would lose them.
struct FlushOnDrop(LogOutput);

impl Drop for FlushOnDrop {
    fn drop(&mut self) {
        if let LogOutput::Writer(writer) = &self.0 {
            writer.flush_within(FLUSH_WAIT_MAX);
        }
    }
}

/// The longest wait of a dropped layer for its writer.
const FLUSH_WAIT_MAX: Duration = Duration::from_secs(1);

impl Layer for AccessLog {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let (requests, responses) = (Arc::new(MessageCount::default()), Arc::new(MessageCount::default()));
        let head = call.head();
        let metadata = self.settings.metadata.iter().filter_map(|name| {
            // A second value of a name must not stay out of the log.
            let values: Vec<_> = head.metadata().get_all(name).collect();
            let value = if looks_secret(name) { HIDDEN.to_owned() } else { values.join(", ") };
            (!values.is_empty()).then(|| (name.clone(), value))
        });
        let mut record = CallRecord {
            settings: self.settings.clone(),
            output: self.output.clone(),
            method: call.method(),
            begun: Instant::now(),
            peer: head.peer_addr(),
            // A call without metadata of a trace may have one of the layer `Trace`, or of the handler that makes it.
            trace: TraceContext::of(head.metadata()).or_else(TraceContext::current).map(|context| context.trace_id()),
            metadata: metadata.collect(),
            requests: requests.clone(),
            responses: responses.clone(),
            is_over: false,
        };
        let outcome = next.run(call.map_body(|body| requests.counted(body))).await;
        match outcome {
            Ok(answer) => Ok(answer.map_body(|body| responses.counted(body)).on_end(move |ended| record.end(ended))),
            Err(status) => {
                record.end(Err(&status));
                Err(status)
            }
        }
    }
}

/// The messages of a call in one direction.
#[derive(Default)]
struct MessageCount {
    messages: AtomicU64,
    bytes: AtomicU64,
}

impl MessageCount {
    fn add(&self, len: usize) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(len as u64, Ordering::Relaxed);
    }

    fn counted(self: &Arc<Self>, body: Body) -> Body {
        match body {
            Body::One(message) => {
                self.add(message.len());
                Body::One(message)
            }
            Body::Many(messages) => {
                let count = self.clone();
                let messages: Streaming<Bytes> = messages.map_messages(move |message: Bytes| {
                    count.add(message.len());
                    Ok(message)
                });
                Body::Many(messages)
            }
        }
    }
}

/// A call in progress. Dropped before its end, it counts as cancelled.
struct CallRecord {
    settings: Arc<LogSettings>,
    output: LogOutput,
    method: &'static Method,
    begun: Instant,
    peer: Option<Address>,
    trace: Option<TraceId>,
    metadata: Vec<(String, String)>,
    requests: Arc<MessageCount>,
    responses: Arc<MessageCount>,
    is_over: bool,
}

impl CallRecord {
    fn end(&mut self, ended: Result<(), &Status>) {
        self.is_over = true;
        let code = ended.map_or_else(Status::code, |()| Code::Ok);
        let ratio = self.settings.ratio;
        if code == Code::Ok && ratio < 1.0 && fastrand::f64() >= ratio {
            return;
        }
        let line =
            self.line(frisbee::clock::time_of_day(), self.begun.elapsed(), code, ended.err().map(Status::message));
        self.output.write(line);
    }

    fn line(&self, now: SystemTime, elapsed: Duration, code: Code, message: Option<&str>) -> Vec<u8> {
        let mut line = LogLine::new(self.settings.format);
        line.text("time", &rfc_3339(now));
        line.text("rpc.method", &self.method.path());
        line.text("rpc.status_code", code.name());
        if let Some(message) = message {
            line.text("message", message);
        }
        line.number("duration_ms", format_args!("{:.3}", elapsed.as_secs_f64() * 1e3));
        for (direction, count) in [("request", &self.requests), ("response", &self.responses)] {
            let MessageCount { messages, bytes } = &**count;
            line.number(&format!("{direction}_messages"), messages.load(Ordering::Relaxed));
            line.number(&format!("{direction}_bytes"), bytes.load(Ordering::Relaxed));
        }
        if let Some(peer) = &self.peer {
            line.text("peer", &peer.to_string());
        }
        if let Some(trace) = &self.trace {
            line.text("trace_id", &trace.to_string());
        }
        for (name, value) in &self.metadata {
            line.text(&format!("metadata.{name}"), value);
        }
        line.end()
    }
}

impl Drop for CallRecord {
    fn drop(&mut self) {
        if !self.is_over {
            self.end(Err(&Status::cancelled("the caller has left")));
        }
    }
}

/// A line under construction.
struct LogLine {
    format: LogFormat,
    text: Vec<u8>,
}

impl LogLine {
    fn new(format: LogFormat) -> Self {
        Self { format, text: if format == LogFormat::Json { b"{".to_vec() } else { Vec::new() } }
    }

    fn name(&mut self, name: &str) {
        let is_first = self.text.len() <= 1;
        match self.format {
            LogFormat::Json => {
                if !is_first {
                    self.text.push(b',');
                }
                put_quoted(&mut self.text, name);
                self.text.push(b':');
            }
            LogFormat::Text => {
                if !is_first {
                    self.text.push(b' ');
                }
                put_simple(&mut self.text, name);
                self.text.push(b'=');
            }
        }
    }

    fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        match self.format {
            LogFormat::Json => put_quoted(&mut self.text, value),
            LogFormat::Text => put_simple(&mut self.text, value),
        }
    }

    fn number(&mut self, name: &str, value: impl fmt::Display) {
        self.name(name);
        // Writing to memory does not fail.
        let _ = write!(self.text, "{value}");
    }

    fn end(mut self) -> Vec<u8> {
        self.text.extend_from_slice(if self.format == LogFormat::Json { b"}\n" } else { b"\n" });
        self.text
    }
}

/// Appends a value of a text line, quoted unless it has only simple characters.
fn put_simple(out: &mut Vec<u8>, text: &str) {
    let is_simple = |char: char| char.is_ascii_graphic() && !matches!(char, '"' | '=' | '\\');
    if !text.is_empty() && text.chars().all(is_simple) {
        out.extend_from_slice(text.as_bytes());
    } else {
        put_quoted(out, text);
    }
}

/// Appends a JSON string without any characters that end or rearrange a line in a terminal or an editor.
fn put_quoted(out: &mut Vec<u8>, text: &str) {
    let begin = out.len();
    put_string(out, text);
    // JSON allows more control characters than the ASCII ones, and characters of the direction of text.
    let is_control = |char| matches!(char, '\u{7f}'..='\u{9f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if text.contains(is_control) {
        let quoted = out.split_off(begin);
        for char in String::from_utf8_lossy(&quoted).chars() {
            if is_control(char) {
                // Writing to memory does not fail.
                let _ = write!(out, "\\u{:04x}", u32::from(char));
            } else {
                out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
    }
}

/// Returns a time in UTC with milliseconds, as in RFC 3339.
fn rfc_3339(time: SystemTime) -> String {
    let Timestamp { seconds, nanos } = Timestamp::from(time);
    let whole = Timestamp { seconds, nanos: 0 }.to_string();
    format!("{}.{:03}Z", whole.trim_end_matches('Z'), nanos / 1_000_000)
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessLog").field("format", &self.settings.format).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{
            Mutex,
            mpsc::{self, Receiver},
        },
        time::UNIX_EPOCH,
    };

    use frpc_json::Scanner;
    use futures_util::FutureExt;
    use proptest::prelude::*;

    use super::*;
    use crate::{
        call::{context::Inherited, head::Head},
        codec::Format,
        service::layer::LayerStack,
    };

    /// A writer into memory.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Lines {
        fn take(&self, log: &AccessLog) -> Vec<String> {
            log.flush();
            let text = String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap();
            text.lines().map(str::to_owned).collect()
        }
    }

    static SAY: Method = Method::unary("a.A", "Say", 10);

    /// Makes a call through the layer. The answer is a stream if the request says so.
    fn call(log: &AccessLog, request: &'static str) {
        let mut head = Head::default();
        for (name, value) in [
            ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            ("color", "a \"b\"\n{\"time\":1}"),
            ("x-api-key", "s3cret"),
        ] {
            let value = value.replace('\n', " ");
            head.metadata_mut().insert(name, value).unwrap();
        }
        let layers = LayerStack::default().with(log.clone());
        let answered = layers.call(Call::new(&SAY, Format::Proto, head, Body::from(request)), &|call| {
            Box::pin(async move {
                match call.into_parts().1 {
                    Body::One(message) if &message.clone().into_bytes()[..] == b"fail" => {
                        Err(Status::not_found("no\nsuch \"thing\""))
                    }
                    Body::One(message) if &message.clone().into_bytes()[..] == b"stream" => {
                        Ok(Answer::new(Body::Many(Streaming::from_iter(["ab", "c"].map(Bytes::from)))))
                    }
                    body => Ok(Answer::new(body)),
                }
            })
        });
        if let Ok(answer) = answered.now_or_never().unwrap()
            && let Body::Many(mut messages) = answer.into_body()
        {
            while messages.message().now_or_never().unwrap().unwrap().is_some() {}
        }
    }

    #[test]
    fn lines_have_the_fields_of_calls_and_no_secrets() {
        let lines = Lines::default();
        let log = AccessLog::to_writer(lines.clone()).metadata(["color", "x-api-key", "absent"]);
        call(&log, "hello");
        call(&log.clone().format(LogFormat::Json), "fail");
        call(&log, "stream");
        let lines = lines.take(&log);
        let expected = [
            r#" rpc.method=a.A/Say rpc.status_code=OK duration_ms="#,
            r#","rpc.method":"a.A/Say","rpc.status_code":"NOT_FOUND","message":"no\nsuch \"thing\"","duration_ms":"#,
            " request_messages=1 request_bytes=6 response_messages=2 response_bytes=3 trace_id=4bf92f3577b34da6a3ce929d0e0e4736 ",
        ];
        assert_eq!(lines.len(), 3, "{lines:?}");
        for (line, part) in lines.iter().zip(expected) {
            assert!(line.contains(part), "{line} without {part}");
            assert!(line.contains("***") && !line.contains("s3cret") && !line.contains("absent"), "{line}");
        }
        assert!(
            lines[0].starts_with("time=20") && lines[0].contains(r#" metadata.color="a \"b\" {\"time\":1}""#),
            "{lines:?}"
        );
        assert!(lines[1].starts_with(r#"{"time":"20"#) && lines[1].ends_with('}'), "{lines:?}");
    }

    #[test]
    fn dropped_calls_are_cancelled() {
        let lines = Lines::default();
        let log = AccessLog::to_writer(lines.clone());
        let layers = LayerStack::default().with(log.clone());
        let call = Call::new(&SAY, Format::Proto, Head::default(), Body::from("a"));
        assert!(layers.call(call, &|_| Box::pin(std::future::pending())).now_or_never().is_none());
        let lines = lines.take(&log);
        assert!(lines.len() == 1 && lines[0].contains("rpc.status_code=CANCELLED"), "{lines:?}");
    }

    #[test]
    fn failures_are_always_logged() {
        let lines = Lines::default();
        let log = AccessLog::to_writer(lines.clone()).sampled(0.0);
        for request in ["a", "fail", "b", "stream", "fail"] {
            call(&log, request);
        }
        let lines = lines.take(&log);
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.contains("rpc.status_code=NOT_FOUND")), "{lines:?}");
    }

    #[test]
    fn a_ratio_of_one_logs_every_call() {
        let lines = Lines::default();
        let log = AccessLog::to_writer(lines.clone()).sampled(1.0);
        (0..100).for_each(|_| call(&log, "a"));
        assert_eq!(lines.take(&log).len(), 100);
    }

    #[test]
    fn all_values_of_a_name_are_logged() {
        let lines = Lines::default();
        let log = AccessLog::to_writer(lines.clone()).metadata(["color"]);
        let mut head = Head::default();
        for value in ["red", "blue"] {
            head.metadata_mut().append("color", value).unwrap();
        }
        let layers = LayerStack::default().with(log.clone());
        let call = Call::new(&SAY, Format::Proto, head, Body::from("a"));
        let answered = layers.call(call, &|call| Box::pin(async { Ok(Answer::new(call.into_parts().1)) }));
        answered.now_or_never().unwrap().unwrap();
        let lines = lines.take(&log);
        assert!(lines.len() == 1 && lines[0].ends_with(r#" metadata.color="red, blue""#), "{lines:?}");
    }

    #[test]
    fn the_trace_of_an_outer_layer_is_logged() {
        let lines = Lines::default();
        let log = AccessLog::to_writer(lines.clone());
        let trace = TraceContext::root(true);
        let layers = LayerStack::default().with(log.clone());
        let call = Call::new(&SAY, Format::Proto, Head::default(), Body::from("a"));
        let answered = Inherited::here().with_trace(Some(trace.clone())).wrap(async move {
            layers.call(call, &|call| Box::pin(async { Ok(Answer::new(call.into_parts().1)) })).await
        });
        answered.now_or_never().unwrap().unwrap();
        let lines = lines.take(&log);
        assert!(lines.len() == 1 && lines[0].ends_with(&format!(" trace_id={}", trace.trace_id())), "{lines:?}");
    }

    #[test]
    fn a_dropped_stream_of_answers_is_cancelled() {
        let lines = Lines::default();
        let log = AccessLog::to_writer(lines.clone());
        let layers = LayerStack::default().with(log.clone());
        let requests = Body::Many(Streaming::from_iter(["ab", "c", "d"].map(Bytes::from)));
        let call = Call::new(&SAY, Format::Proto, Head::default(), requests);
        let answered = layers.call(call, &|call| Box::pin(async { Ok(Answer::new(call.into_parts().1)) }));
        let Body::Many(mut messages) = answered.now_or_never().unwrap().unwrap().into_body() else { unreachable!() };
        messages.message().now_or_never().unwrap().unwrap();
        assert_eq!(lines.take(&log), [""; 0]);
        drop(messages);
        let lines = lines.take(&log);
        let counts = " request_messages=1 request_bytes=2 response_messages=1 response_bytes=2";
        assert!(
            lines.len() == 1 && lines[0].contains(" rpc.status_code=CANCELLED ") && lines[0].ends_with(counts),
            "{lines:?}"
        );
    }

    #[test]
    fn flushing_and_dropping_flush_the_writer() {
        let lines = Lines::default();
        let text = || lines.0.lock().unwrap().iter().filter(|byte| **byte == b'\n').count();
        let log = AccessLog::to_writer(io::BufWriter::with_capacity(1 << 20, lines.clone()));
        assert!(matches!(&log.output, LogOutput::Writer(writer) if !writer.is_started()));
        call(&log, "a");
        assert!(matches!(&log.output, LogOutput::Writer(writer) if writer.is_started()));
        log.flush();
        assert_eq!(text(), 1);
        (0..1_000).for_each(|_| call(&log, "a"));
        let clone = log.clone();
        drop(log);
        call(&clone, "a");
        drop(clone);
        assert_eq!(text(), 1_002);
    }

    /// A writer that waits for a permission.
    struct Slow(Receiver<()>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv().map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_slow_writer_delays_no_call() {
        let (permit, permits) = mpsc::channel();
        let log = AccessLog::to_writer(Slow(permits));
        for _ in 0..AccessLog::LINES_MAX + 10 {
            call(&log, "a");
        }
        assert_eq!(log.dropped(), 10);
        // A dropped layer gives up after its wait, here of no time.
        let LogOutput::Writer(writer) = &log.output else { unreachable!() };
        writer.flush_within(Duration::ZERO);
        permit.send(()).unwrap();
        // The writer fails, and nothing waits for it. Its lines count as dropped.
        drop(permit);
        log.flush();
        assert_eq!(log.dropped(), 10 + AccessLog::LINES_MAX as u64 - 1);
        call(&log, "a");
        log.flush();
        assert_eq!(log.dropped(), 10 + AccessLog::LINES_MAX as u64);
    }

    #[test]
    fn a_panic_of_the_writer_delays_no_call() {
        struct Broken;

        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                panic!("a broken writer")
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        let log = AccessLog::to_writer(Broken);
        call(&log, "a");
        log.flush();
        assert_eq!(log.dropped(), 1);
    }

    #[test]
    fn times_have_milliseconds() {
        for (seconds, nanos, text) in [
            (0, 0, "1970-01-01T00:00:00.000Z"),
            (-1, 999_999_999, "1969-12-31T23:59:59.999Z"),
            (951_782_399, 999_999_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400, 1_999_999, "2000-02-29T00:00:00.001Z"),
            (1_709_251_199, 0, "2024-02-29T23:59:59.000Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00.000Z"),
            (1_763_890_200, 125_000_000, "2025-11-23T09:30:00.125Z"),
        ] {
            let time = SystemTime::try_from(Timestamp { seconds, nanos }).unwrap();
            assert_eq!(rfc_3339(time), text);
        }
    }

    proptest! {
        #[test]
        fn any_message_of_a_failure_makes_one_line(message in any::<String>(), value in any::<String>()) {
            for format in [LogFormat::Text, LogFormat::Json] {
                let record = CallRecord {
                    settings: Arc::new(LogSettings { format, ratio: 1.0, metadata: Arc::default() }),
                    output: LogOutput::Tracing,
                    method: &SAY,
                    begun: Instant::now(),
                    peer: None,
                    trace: None,
                    metadata: vec![("color".to_owned(), value.clone())],
                    requests: Arc::default(),
                    responses: Arc::default(),
                    is_over: true,
                };
                let line = record.line(UNIX_EPOCH, Duration::from_micros(1_500), Code::Internal, Some(&message));
                let line = String::from_utf8(line).unwrap();
                let line = line.strip_suffix('\n').unwrap();
                prop_assert!(!line.contains(char::is_control), "{:?}", line);
                if format == LogFormat::Json {
                    let mut scanner = Scanner::new(line, 4);
                    prop_assert_eq!(scanner.value().unwrap(), line);
                    prop_assert_eq!(scanner.peek(), None);
                    prop_assert!(line.contains(r#""rpc.status_code":"INTERNAL","#) && line.contains(r#""duration_ms":1.500,"#));
                }
            }
        }

        #[test]
        fn values_cannot_forge_lines(
            value in "(\\PC|[\\x00-\\x1f\"\\\\\\x7f-\u{9f}\u{2028}\u{202e}]){0,20}",
            name in "[a-z-]{1,8}",
        ) {
            for format in [LogFormat::Text, LogFormat::Json] {
                let mut line = LogLine::new(format);
                line.text(&name, &value);
                line.number("n", 1);
                let line = String::from_utf8(line.end()).unwrap();
                prop_assert_eq!(line.lines().count(), 1);
                let is_control = |char: char| char.is_control() || matches!(char, '\u{2028}' | '\u{202e}');
                prop_assert!(!line.trim_end_matches('\n').contains(is_control));
                prop_assert!(line.ends_with('\n'));
                if format == LogFormat::Json {
                    let inner = line.strip_prefix(&format!("{{\"{name}\":\"")).unwrap().strip_suffix("\",\"n\":1}\n");
                    let read = frpc_json::text::unescape(inner.unwrap()).unwrap();
                    prop_assert_eq!(&*read, &*value);
                }
            }
        }
    }
}
