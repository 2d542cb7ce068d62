//! A line of text for each call.

use std::{
    fmt,
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, SyncSender},
    },
    thread,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use frisbee::Address;
use frpc_json::text::put_string;
use prost_types::Timestamp;
use tokio::time::Instant;
use tracing::info;

use super::layer::{Layer, Next};
use crate::call::{
    exchange::{Answer, Body, Call},
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
/// are dropped and [counted](Self::dropped).
#[derive(Clone)]
pub struct AccessLog {
    settings: LogSettings,
    output: LogOutput,
    dropped: Arc<AtomicU64>,
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
    Thread(SyncSender<LogItem>),
}

enum LogItem {
    Line(Vec<u8>),
    /// Answered after all earlier lines are written.
    Flush(mpsc::Sender<()>),
}

impl AccessLog {
    /// The maximum number of lines waiting for the writer.
    pub const LINES_MAX: usize = 4096;

    /// Creates the layer with a writer. It runs on a thread of its own until the last clone of the layer is dropped.
    pub fn to_writer(mut writer: impl Write + Send + 'static) -> Self {
        let (sender, items) = mpsc::sync_channel::<LogItem>(Self::LINES_MAX);
        // Lines for a writer without a thread are dropped and counted, like lines after a failure of the writer.
        let _ = thread::Builder::new().name("frpc-access-log".to_owned()).spawn(move || {
            while let Ok(item) = items.recv() {
                let written = match item {
                    LogItem::Line(line) => writer.write_all(&line),
                    LogItem::Flush(done) => {
                        let _ = done.send(());
                        writer.flush()
                    }
                };
                if written.is_err() {
                    return;
                }
            }
            let _ = writer.flush();
        });
        Self::with_output(LogOutput::Thread(sender))
    }

    /// Creates the layer with `tracing`: each line is an event of the level INFO with the target `frpc::access`.
    pub fn to_tracing() -> Self {
        Self::with_output(LogOutput::Tracing)
    }

    fn with_output(output: LogOutput) -> Self {
        let settings = LogSettings { format: LogFormat::default(), ratio: 1.0, metadata: Arc::default() };
        Self { settings, output, dropped: Arc::default() }
    }

    /// Sets the format. Default [`LogFormat::Text`].
    pub fn format(mut self, format: LogFormat) -> Self {
        self.settings.format = format;
        self
    }

    /// Writes this share of the successful calls, and all failed ones. Default 1.0.
    pub fn sampled(mut self, ratio: f64) -> Self {
        self.settings.ratio = ratio;
        self
    }

    /// Adds metadata of the caller with these names. The values of [secret-looking](looks_secret) names are hidden.
    pub fn metadata(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.settings.metadata = names.into_iter().map(Into::into).collect();
        self
    }

    /// Returns the number of lines dropped because the writer was too slow or has failed.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until all lines so far are written. Blocks the thread.
    pub fn flush(&self) {
        if let LogOutput::Thread(sender) = &self.output {
            let (done, is_done) = mpsc::channel();
            if sender.send(LogItem::Flush(done)).is_ok() {
                // An error means that the writer has failed.
                let _ = is_done.recv();
            }
        }
    }

    fn write(&self, line: Vec<u8>) {
        match &self.output {
            LogOutput::Tracing => info!(target: "frpc::access", "{}", String::from_utf8_lossy(line.trim_ascii_end())),
            LogOutput::Thread(sender) => {
                if sender.try_send(LogItem::Line(line)).is_err() {
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

/// Returns `true` for names of metadata with probably secret values, such as `authorization` or `x-api-key`.
pub fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "-");
    SECRETS.iter().any(|part| name.contains(part))
}

const SECRETS: [&str; 10] =
    ["auth", "cookie", "token", "secret", "passw", "api-key", "apikey", "credential", "session", "signature"];

impl Layer for AccessLog {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let (requests, responses) = (Arc::new(MessageCount::default()), Arc::new(MessageCount::default()));
        let head = call.head();
        let metadata = self.settings.metadata.iter().filter_map(|name| {
            let value = head.metadata().get(name)?;
            Some((name.clone(), if looks_secret(name) { HIDDEN.to_owned() } else { value.to_owned() }))
        });
        let mut record = CallRecord {
            log: self.clone(),
            method: call.method(),
            begun: Instant::now(),
            peer: head.peer_addr(),
            trace: TraceContext::of(head.metadata()).map(|context| context.trace_id()),
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
    log: AccessLog,
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
        let AccessLog { settings, .. } = &self.log;
        if code == Code::Ok && settings.ratio < 1.0 && fastrand::f64() >= settings.ratio {
            return;
        }
        let line = self.line(SystemTime::now(), self.begun.elapsed(), code, ended.err().map(Status::message));
        self.log.write(line);
    }

    fn line(&self, now: SystemTime, elapsed: Duration, code: Code, message: Option<&str>) -> Vec<u8> {
        let mut line = LogLine::new(self.log.settings.format);
        let mut time = Timestamp::from(now);
        time.nanos -= time.nanos % 1_000_000;
        line.text("time", &time.to_string());
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
                put_string(&mut self.text, name);
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
            LogFormat::Json => put_string(&mut self.text, value),
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
        put_string(out, text);
    }
}

/// The text in place of secret values.
const HIDDEN: &str = "***";

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessLog").field("format", &self.settings.format).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Mutex, mpsc::Receiver},
    };

    use futures_util::FutureExt;
    use proptest::prelude::*;

    use super::*;
    use crate::{call::head::Head, codec::Format, service::layer::LayerStack};

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
        // One line may be with the writer.
        for _ in 0..AccessLog::LINES_MAX + 10 {
            call(&log, "a");
        }
        assert!((9..=10).contains(&log.dropped()), "{}", log.dropped());
        // The writer fails, and nothing waits for it.
        drop(permit);
        log.flush();
    }

    #[test]
    fn names_of_secrets_are_recognized() {
        for name in
            ["authorization", "Proxy-Authorization", "cookie", "set-cookie", "X_API_KEY", "id-token", "password"]
        {
            assert!(looks_secret(name), "{name}");
        }
        assert!(!["user-agent", "traceparent", "x-request-id", "color"].into_iter().any(looks_secret));
    }

    proptest! {
        #[test]
        fn values_cannot_forge_lines(value in "\\PC*|.*\n.*", name in "[a-z-]{1,8}") {
            for format in [LogFormat::Text, LogFormat::Json] {
                let mut line = LogLine::new(format);
                line.text(&name, &value);
                line.number("n", 1);
                let line = String::from_utf8(line.end()).unwrap();
                prop_assert_eq!(line.lines().count(), 1);
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
