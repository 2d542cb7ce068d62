//! The layer that records calls.

use std::{
    collections::HashSet,
    fmt,
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use frpc::{
    Answer, Body, Call, Code, Layer, Metadata, MetadataSlot, Method, MethodKind, Next, Status, Streaming, codec::Format,
};
use tokio::time::Instant;

use crate::{
    frame::Frame,
    metadata::entries,
    protos::{self, CallEnd, CallStart, Event, MessageFormat, Request, RequestsEnd, Response, Schema, event::Kind},
    settings::RecordSettings,
    writer::RecordWriter,
};

/// Records calls in a file, without delaying them. A layer for servers and channels.
///
/// A thread writes the file. A call is dropped and [counted](RecordingSummary::dropped_calls) if the queue of the thread
/// or the file has reached its [limit](RecordSettings): completely, or from that event on. The file then says so.
///
/// A server records the messages that its handler reads, in the format of their wire. The first layer of a server sees
/// all calls on arrival.
///
/// Clones write to the same file. [`close`](Self::close) ends the recording. Without it, dropping the last clone does so,
/// and waits for the thread for up to a second.
#[derive(Clone)]
pub struct Recorder {
    shared: Arc<RecorderState>,
    /// Shared by the clones of the layer, and not by their calls: a call must not wait for the file.
    _close: Arc<CloseOnDrop>,
}

/// The state of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordingSummary {
    /// The number of calls in the recording, including calls dropped from some event on.
    pub calls: u64,
    /// The number of calls dropped at a limit, completely or from some event on.
    pub dropped_calls: u64,
    /// The length of the recording in bytes, with queued records.
    pub len: u64,
    /// The failure of the file, if it failed. The recording ends there.
    pub failure: Option<String>,
}

/// Closes the recording after the last clone of the layer.
struct CloseOnDrop(Arc<RecorderState>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.writer.close_soon();
    }
}

impl Recorder {
    /// Creates a file, or replaces it, and records calls there with the default limits.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::create_with(path, RecordSettings::default())
    }

    /// Creates a file, or replaces it, and records calls there with these limits.
    pub fn create_with(path: impl AsRef<Path>, settings: RecordSettings) -> io::Result<Self> {
        Self::to_writer(open(path.as_ref())?, settings)
    }

    /// Records calls with another writer. It runs on a separate thread.
    pub fn to_writer(writer: impl Write + Send + 'static, settings: RecordSettings) -> io::Result<Self> {
        let shared = RecorderState {
            writer: RecordWriter::start(writer, &settings)?,
            methods: settings.methods,
            began: Instant::now(),
            schemas: Mutex::default(),
        };
        let shared = Arc::new(shared);
        Ok(Self { _close: Arc::new(CloseOnDrop(shared.clone())), shared })
    }

    /// Returns the state of the recording.
    pub fn summary(&self) -> RecordingSummary {
        let state = self.shared.writer.state();
        RecordingSummary {
            calls: state.calls.load(Ordering::Relaxed),
            dropped_calls: state.dropped.load(Ordering::Relaxed),
            len: state.len(),
            failure: state.failure(),
        }
    }

    /// Waits until all events so far are in the file. Blocks the thread.
    pub fn flush(&self) {
        self.shared.writer.flush();
    }

    /// Ends the recording, for all clones. Later events are not recorded. Blocks the thread until the file is written.
    pub fn close(&self) -> RecordingSummary {
        self.shared.writer.close();
        self.summary()
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("summary", &self.summary()).finish_non_exhaustive()
    }
}

/// Creates a file for its owner only: messages may be confidential.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

struct RecorderState {
    writer: RecordWriter,
    methods: Arc<dyn Fn(&Method) -> bool + Send + Sync>,
    began: Instant,
    /// The addresses of the descriptors in the file.
    schemas: Mutex<HashSet<usize>>,
}

impl RecorderState {
    fn push(&self, call: u64, kind: Kind, content: Bytes) -> bool {
        let time = micros(self.began.elapsed());
        let frame = Frame::new(&Event { time, call, kind: Some(kind) }, content);
        frame.is_some_and(|frame| self.writer.push(frame))
    }

    /// Records the descriptors of a method before its first call.
    fn push_schema(&self, method: &Method) -> bool {
        let Some(types) = method.types else { return true };
        let mut known = self.schemas.lock().unwrap_or_else(PoisonError::into_inner);
        [types.request, types.response].into_iter().all(|message| {
            let descriptors = message.descriptors;
            let address = descriptors.as_ptr().addr();
            if descriptors.is_empty() || known.contains(&address) {
                return true;
            }
            let is_written = self.push(0, Kind::Schema(Schema {}), Bytes::from_static(descriptors));
            if is_written {
                known.insert(address);
            }
            is_written
        })
    }

    /// Records the start of a call. `None` if it was dropped.
    fn start(self: &Arc<Self>, call: &Call) -> Option<Arc<CallTap>> {
        let method = call.method();
        let start = CallStart {
            service: method.service.to_owned(),
            method: method.name.to_owned(),
            method_kind: i32::from(match call.kind() {
                MethodKind::Unary => protos::MethodKind::Unary,
                MethodKind::ServerStreaming => protos::MethodKind::ServerStreaming,
                MethodKind::ClientStreaming => protos::MethodKind::ClientStreaming,
                MethodKind::Bidirectional => protos::MethodKind::Bidirectional,
            }),
            format: i32::from(match call.format() {
                Format::Polyglot => MessageFormat::Polyglot,
                Format::Proto => MessageFormat::Proto,
                Format::Json => MessageFormat::Json,
                _ => MessageFormat::Unknown,
            }),
            operation: method.operation.into(),
            // A deadline of less than a microsecond must not become none.
            timeout: call.head().timeout().map_or(0, |timeout| micros(timeout).max(1)),
            metadata: entries(call.head().metadata()),
        };
        let state = self.writer.state();
        let number = state.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if !self.push_schema(method) || !self.push(number, Kind::CallStart(start), Bytes::new()) {
            state.count_dropped();
            return None;
        }
        Some(Arc::new(CallTap {
            recorder: self.clone(),
            number,
            is_dropped: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A call in progress. Dropped before its end, it counts as cancelled.
struct CallTap {
    recorder: Arc<RecorderState>,
    number: u64,
    is_dropped: AtomicBool,
    is_over: AtomicBool,
}

impl CallTap {
    fn push(&self, kind: Kind, content: Bytes) {
        // Without an event, the later ones have no meaning.
        if self.is_dropped.load(Ordering::Relaxed) || self.recorder.push(self.number, kind, content) {
            return;
        }
        if !self.is_dropped.swap(true, Ordering::Relaxed) {
            self.recorder.writer.state().count_dropped();
        }
    }

    fn requests(self: &Arc<Self>, body: Body) -> Body {
        let (each, end) = (self.clone(), self.clone());
        tapped(
            body,
            move |message| each.push(Kind::Request(Request {}), message),
            move |body| {
                body.on_end(move |ended| {
                    // After the answer, the rest of the requests has no meaning.
                    if !end.is_over.load(Ordering::Relaxed) {
                        end.push(Kind::RequestsEnd(RequestsEnd { is_incomplete: ended.is_err() }), Bytes::new());
                    }
                })
            },
        )
    }

    fn responses(self: &Arc<Self>, answer: Answer) -> Answer {
        let (each, end) = (self.clone(), self.clone());
        let (metadata, trailers) = (answer.metadata().clone(), answer.trailers().clone());
        let slots = match answer.body() {
            Body::Many(messages) => (messages.metadata_slot(), messages.trailers_slot()),
            _ => (None, None),
        };
        let answer = answer.map_body(|body| {
            tapped(body, move |message| each.push(Kind::Response(Response {}), message), |messages| messages)
        });
        answer.on_end(move |ended| {
            let known = |slot: &Option<MetadataSlot>, fallback| {
                slot.as_ref().and_then(MetadataSlot::get).cloned().unwrap_or(fallback)
            };
            end.end(ended, &known(&slots.0, metadata), &known(&slots.1, trailers));
        })
    }

    fn end(&self, ended: Result<(), &Status>, metadata: &Metadata, trailers: &Metadata) {
        self.is_over.store(true, Ordering::Relaxed);
        let failure = ended.err();
        let end = CallEnd {
            code: u32::from(u8::from(failure.map_or(Code::Ok, Status::code))),
            text: failure.map(Status::message).unwrap_or_default().to_owned(),
            details: Bytes::copy_from_slice(failure.map(Status::details).unwrap_or_default()),
            metadata: entries(metadata),
            trailers: entries(failure.map_or(trailers, Status::metadata)),
        };
        self.push(Kind::CallEnd(end), Bytes::new());
    }
}

impl Drop for CallTap {
    fn drop(&mut self) {
        if !*self.is_over.get_mut() {
            self.end(Err(&Status::cancelled("the caller has left")), &Metadata::new(), &Metadata::new());
        }
    }
}

/// Passes each message to `each`, and a stream of them to `stream`.
fn tapped(
    body: Body,
    each: impl Fn(Bytes) + Send + 'static,
    stream: impl FnOnce(Streaming<Bytes>) -> Streaming<Bytes>,
) -> Body {
    match body {
        Body::One(message) => {
            let message = message.into_bytes();
            each(message.clone());
            Body::from(message)
        }
        Body::Many(messages) => Body::Many(stream(messages.map_messages(move |message: Bytes| {
            each(message.clone());
            Ok(message)
        }))),
        body => body,
    }
}

impl Layer for Recorder {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        if !(self.shared.methods)(call.method()) {
            return next.run(call).await;
        }
        let Some(tap) = self.shared.start(&call) else { return next.run(call).await };
        match next.run(call.map_body(|body| tap.requests(body))).await {
            Ok(answer) => Ok(tap.responses(answer)),
            Err(status) => {
                tap.end(Err(&status), &Metadata::new(), &Metadata::new());
                Err(status)
            }
        }
    }
}
