//! Recent failures, slow calls and open streams, recorded once the process asks for them.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};

use frisbee::Address;
use slab::Slab;

use super::{
    head::Head,
    metadata::MetadataValue,
    method::{Method, MethodKind},
    status::{Code, Status},
    trace::{TraceContext, TraceId},
};

/// A call at its end.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecordedCall {
    /// The call.
    pub subject: CallSubject,
    /// The time of its end.
    pub ended: SystemTime,
    /// The time from the start of the call to its end.
    pub duration: Duration,
    /// The time from the start of the call to the first wait of its handler. `None` for calls of channels.
    pub first_wait: Option<Duration>,
    /// The code of its status.
    pub code: Code,
    /// The message of its status.
    pub message: String,
    /// The type URLs of its error details.
    pub details: Vec<String>,
}

/// The properties of a call at its start.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CallSubject {
    /// The method.
    pub method: &'static Method,
    /// The target of the channel. `None` on a server.
    pub target: Option<Arc<str>>,
    /// The address of the caller, if known.
    pub peer: Option<Address>,
    /// The trace of the call.
    pub trace_id: Option<TraceId>,
    /// The metadata of the caller, without values of [secret-looking](crate::layers::looks_secret) names.
    pub metadata: Vec<(String, String)>,
}

/// An open stream of messages in one direction.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenStream {
    /// A number of the stream, unique in the process.
    pub number: u64,
    /// The call.
    pub subject: CallSubject,
    /// `true` for messages sent by this process.
    pub is_outgoing: bool,
    /// The time since the start of the stream.
    pub age: Duration,
    /// The number of messages so far.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The time for which the connection has had no room for the next message. `None` if it has room.
    pub blocked: Option<Duration>,
}

/// Starts recording in this process. Calls and streams begun earlier are not recorded.
///
/// Each failed call then takes a lock, and so does the start and the end of a stream.
pub fn start_recording() {
    IS_ON.store(true, Relaxed);
}

/// Returns the most recent failed calls, the last one first. At most [`FAILURES_MAX`].
pub fn recent_failures() -> Vec<RecordedCall> {
    records().failures.iter().rev().cloned().collect()
}

/// Returns the slowest calls without streams of the last [`SLOW_KEPT`], the slowest first. At most [`SLOW_MAX`].
pub fn slow_calls() -> Vec<RecordedCall> {
    let mut records = records();
    records.forget_old(now());
    records.slow.iter().map(|(_, call)| call.clone()).collect()
}

/// Returns the open streams, the oldest first. At most [`STREAMS_MAX`] are recorded.
pub fn open_streams() -> Vec<OpenStream> {
    let mut found: Vec<_> = streams().open.iter().map(|(_, stream)| stream.clone()).collect();
    found.sort_unstable_by_key(|stream| stream.number);
    let now = now();
    found.iter().map(|stream| stream.view(now)).collect()
}

/// The maximum number of recorded failures.
pub const FAILURES_MAX: usize = 128;
/// The maximum number of recorded slow calls.
pub const SLOW_MAX: usize = 32;
/// The time for which slow calls are kept.
pub const SLOW_KEPT: Duration = Duration::from_secs(300);
/// The maximum number of recorded streams. Further streams are not shown.
pub const STREAMS_MAX: usize = 4096;
/// The maximum number of metadata entries per call, and of characters in a value or a message.
const ENTRIES_MAX: usize = 32;
const TEXT_MAX: usize = 1024;

static IS_ON: AtomicBool = AtomicBool::new(false);
static RECORDS: Mutex<Records> =
    Mutex::new(Records { failures: VecDeque::new(), slow: Vec::new(), slow_floor: Duration::ZERO });
static STREAMS: Mutex<Streams> = Mutex::new(Streams { open: Slab::new(), last: 0 });

#[inline]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Relaxed)
}

struct Records {
    failures: VecDeque<RecordedCall>,
    /// The slow calls with the times of their ends, the slowest first.
    slow: Vec<(Instant, RecordedCall)>,
    /// The duration of the fastest recorded slow call, if there are enough of them.
    slow_floor: Duration,
}

fn records() -> MutexGuard<'static, Records> {
    RECORDS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Records {
    fn add(&mut self, call: RecordedCall, at: Instant) {
        if call.code != Code::Ok {
            if self.failures.len() == FAILURES_MAX {
                self.failures.pop_front();
            }
            self.failures.push_back(call.clone());
        }
        self.forget_old(at);
        if call.subject.method.kind != MethodKind::Unary
            || (self.slow.len() == SLOW_MAX && call.duration <= self.slow_floor)
        {
            return;
        }
        let position = self.slow.partition_point(|(_, slower)| slower.duration >= call.duration);
        self.slow.insert(position, (at, call));
        self.slow.truncate(SLOW_MAX);
        self.slow_floor = self.slow.last().map(|(_, fastest)| fastest.duration).unwrap_or_default();
    }

    fn forget_old(&mut self, now: Instant) {
        self.slow.retain(|(ended, _)| now.saturating_duration_since(*ended) < SLOW_KEPT);
    }
}

impl CallSubject {
    /// Returns the properties of a call on a server, if calls are recorded.
    pub(crate) fn of_head(method: &'static Method, head: &Head) -> Option<Box<Self>> {
        is_on().then(|| Box::new(Self::received(method, head)))
    }

    #[cold]
    fn received(method: &'static Method, head: &Head) -> Self {
        let metadata = head.metadata();
        let entries = metadata.iter().take(ENTRIES_MAX).map(|(name, value)| {
            let value = match value {
                _ if looks_secret(name) => HIDDEN.to_owned(),
                MetadataValue::Ascii(text) => shortened(text),
                MetadataValue::Binary(bytes) => format!("{} bytes", bytes.len()),
            };
            (name.to_owned(), value)
        });
        Self {
            method,
            target: None,
            peer: head.peer_addr(),
            trace_id: TraceContext::of(metadata).map(|context| context.trace_id()),
            metadata: entries.collect(),
        }
    }

    /// Returns the properties of a call without metadata.
    pub(crate) fn plain(method: &'static Method, target: Option<&Arc<str>>, peer: Option<&Address>) -> Box<Self> {
        let (target, peer) = (target.cloned(), peer.cloned());
        Box::new(Self { method, target, peer, trace_id: None, metadata: Vec::new() })
    }

    /// Records the end of the call.
    #[cold]
    pub(crate) fn record(self, end: RecordedEnd<'_>) {
        let (code, message, details) = match end.outcome {
            Ok(()) => (Code::Ok, String::new(), Vec::new()),
            Err(CallFailure::Code(code)) => (code, String::new(), Vec::new()),
            Err(CallFailure::Status(status)) => {
                let details = status.error_details().into_iter().take(ENTRIES_MAX);
                let details = details.map(|detail| shortened(&detail.type_url)).collect();
                (status.code(), shortened(status.message()), details)
            }
        };
        let duration = end.at.saturating_duration_since(end.start);
        let first_wait = end.first_wait.map(|at| at.saturating_duration_since(end.start));
        let ended = SystemTime::now();
        records().add(RecordedCall { subject: self, ended, duration, first_wait, code, message, details }, end.at);
    }
}

/// The end of a call.
pub(crate) struct RecordedEnd<'a> {
    pub(crate) start: Instant,
    pub(crate) first_wait: Option<Instant>,
    pub(crate) at: Instant,
    pub(crate) outcome: Result<(), CallFailure<'a>>,
}

/// The failure of a call, with as much as its measure knows.
#[derive(Clone, Copy)]
pub(crate) enum CallFailure<'a> {
    Code(Code),
    Status(&'a Status),
}

impl CallFailure<'_> {
    pub(crate) fn code(self) -> Code {
        match self {
            Self::Code(code) => code,
            Self::Status(status) => status.code(),
        }
    }
}

struct Streams {
    open: Slab<Arc<LiveStream>>,
    last: u64,
}

fn streams() -> MutexGuard<'static, Streams> {
    STREAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

struct LiveStream {
    number: u64,
    subject: CallSubject,
    is_outgoing: bool,
    begun: Instant,
    messages: AtomicU64,
    bytes: AtomicU64,
    /// The nanoseconds after `begun` at which the connection had no more room, plus one. 0 while it has room.
    blocked: AtomicU64,
}

impl LiveStream {
    fn view(&self, now: Instant) -> OpenStream {
        let blocked = self.blocked.load(Relaxed).checked_sub(1).map(Duration::from_nanos);
        let age = now.saturating_duration_since(self.begun);
        OpenStream {
            number: self.number,
            subject: self.subject.clone(),
            is_outgoing: self.is_outgoing,
            age,
            messages: self.messages.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            blocked: blocked.map(|since| age.saturating_sub(since)),
        }
    }
}

/// The record of an open stream. Dropped, it ends.
pub(crate) struct StreamRecord {
    stream: Arc<LiveStream>,
    key: usize,
}

impl StreamRecord {
    /// Records a stream. `None` above the limit.
    #[cold]
    pub(crate) fn start(subject: CallSubject, is_outgoing: bool) -> Option<Self> {
        let mut streams = streams();
        if streams.open.len() >= STREAMS_MAX {
            return None;
        }
        streams.last += 1;
        let stream = Arc::new(LiveStream {
            number: streams.last,
            subject,
            is_outgoing,
            begun: now(),
            messages: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            blocked: AtomicU64::new(0),
        });
        let key = streams.open.insert(stream.clone());
        Some(Self { stream, key })
    }

    pub(crate) fn add(&self, messages: u64, bytes: usize) {
        self.stream.messages.fetch_add(messages, Relaxed);
        self.stream.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Notes that the connection took messages at this time, and has asked for no further ones yet. `None` once it asks.
    pub(crate) fn set_handed(&self, handed: Option<Instant>) {
        let since = handed.map(|at| at.saturating_duration_since(self.stream.begun).as_nanos() + 1);
        let since = since.map_or(0, |since| u64::try_from(since).unwrap_or(u64::MAX));
        self.stream.blocked.store(since, Relaxed);
    }
}

impl Drop for StreamRecord {
    fn drop(&mut self) {
        let stream = streams().open.remove(self.key);
        // Its subject is freed without the lock.
        drop(stream);
    }
}

/// Returns `true` for names of metadata with probably secret values, such as `authorization` or `x-api-key`.
pub fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "-");
    SECRETS.iter().any(|part| name.contains(part))
}

const SECRETS: [&str; 10] =
    ["auth", "cookie", "token", "secret", "passw", "api-key", "apikey", "credential", "session", "signature"];

/// The text in place of secret values.
pub(crate) const HIDDEN: &str = "***";

fn shortened(text: &str) -> String {
    match text.char_indices().nth(TEXT_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

impl fmt::Debug for StreamRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamRecord").field("number", &self.stream.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_recognized() {
        for name in
            ["authorization", "Proxy-Authorization", "cookie", "set-cookie", "X_API_KEY", "id-token", "password"]
        {
            assert!(looks_secret(name), "{name}");
        }
        assert!(!["user-agent", "traceparent", "x-request-id", "color"].into_iter().any(looks_secret));
    }

    #[test]
    fn slow_calls_are_the_slowest_of_the_last_minutes() {
        static SAY: Method = Method::unary("a.A", "Say", 10);
        static LIST: Method = Method::server_streaming("a.A", "List", 11);
        let (mut records, start) =
            (Records { failures: VecDeque::new(), slow: Vec::new(), slow_floor: Duration::ZERO }, now());
        let mut add = |method: &'static Method, millis: u64, at: Instant| {
            let call = RecordedCall {
                subject: *CallSubject::plain(method, None, None),
                ended: SystemTime::UNIX_EPOCH,
                duration: Duration::from_millis(millis),
                first_wait: None,
                code: if millis.is_multiple_of(2) { Code::Ok } else { Code::Internal },
                message: String::new(),
                details: Vec::new(),
            };
            records.add(call, at);
            let slow: Vec<_> = records.slow.iter().map(|(_, call)| call.duration.as_millis()).collect();
            (slow, records.failures.len())
        };
        let count = SLOW_MAX as u64;
        for millis in 1..=count {
            add(&SAY, millis, start);
        }
        // Faster calls and streams do not count.
        add(&SAY, 1, start);
        let (slow, failures) = add(&LIST, 1_000, start);
        assert_eq!((slow[0], slow.len(), failures), (SLOW_MAX as u128, SLOW_MAX, SLOW_MAX / 2 + 1));
        let (slow, _) = add(&SAY, 500, start);
        assert_eq!((slow[0], slow[SLOW_MAX - 1], slow.len()), (500, 2, SLOW_MAX));
        assert_eq!(add(&SAY, 1, start + SLOW_KEPT).0, [1]);
    }
}
