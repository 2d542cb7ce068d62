//! Recent failures, slow calls and open streams, recorded once the process asks for them.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use frisbee::{Address, clock::Instant};
use slab::Slab;

use super::{
    head::{CallOrigin, Head},
    metadata::{HIDDEN, Metadata, MetadataValue, looks_secret},
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
    // Copied without the lock, which calls take at their end.
    let failures: Vec<_> = records().failures.iter().rev().cloned().collect();
    failures.into_iter().map(Arc::unwrap_or_clone).collect()
}

/// Returns the slowest calls without streams of the last [`SLOW_KEPT`], the slowest first. At most [`SLOW_MAX`].
pub fn slow_calls() -> Vec<RecordedCall> {
    let mut records = records();
    records.forget_old(now());
    let slow: Vec<_> = records.slow.iter().map(|(_, call)| call.clone()).collect();
    drop(records);
    slow.into_iter().map(Arc::unwrap_or_clone).collect()
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
/// The maximum number of metadata entries per call, the bytes of their names and values, and the characters of a value or a
/// message. Further entries are left out.
const ENTRIES_MAX: usize = 32;
const METADATA_MAX: usize = 4096;
const TEXT_MAX: usize = 1024;

static IS_ON: AtomicBool = AtomicBool::new(false);
static RECORDS: Mutex<Records> = Mutex::new(Records { failures: VecDeque::new(), slow: Vec::new() });
static STREAMS: Mutex<Streams> = Mutex::new(Streams { open: Slab::new(), last: 0 });

#[inline]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Relaxed)
}

struct Records {
    failures: VecDeque<Arc<RecordedCall>>,
    /// The slow calls with the times of their ends, the slowest first.
    slow: Vec<(Instant, Arc<RecordedCall>)>,
}

fn records() -> MutexGuard<'static, Records> {
    RECORDS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Records {
    /// Returns `true` if a call that ends now is one of the slowest.
    fn is_slow(&mut self, method: &Method, duration: Duration, now: Instant) -> bool {
        self.forget_old(now);
        method.kind == MethodKind::Unary
            && (self.slow.len() < SLOW_MAX || self.slow.last().is_some_and(|(_, fastest)| duration > fastest.duration))
    }

    fn add(&mut self, call: Arc<RecordedCall>, at: Instant) {
        if call.code != Code::Ok {
            if self.failures.len() == FAILURES_MAX {
                self.failures.pop_front();
            }
            self.failures.push_back(call.clone());
        }
        if !self.is_slow(call.subject.method, call.duration, at) {
            return;
        }
        let position = self.slow.partition_point(|(_, slower)| slower.duration >= call.duration);
        self.slow.insert(position, (at, call));
        self.slow.truncate(SLOW_MAX);
    }

    fn forget_old(&mut self, now: Instant) {
        self.slow.retain(|(ended, _)| now.saturating_duration_since(*ended) < SLOW_KEPT);
    }
}

/// A call in progress, as noted for its record.
#[derive(Clone)]
pub(crate) struct CallNotes {
    method: &'static Method,
    target: Option<Arc<str>>,
    peer: Option<Address>,
    metadata: Metadata,
    origin: Option<CallOrigin>,
    first_wait: Option<Instant>,
}

impl CallNotes {
    /// Notes a call on a server, if calls are recorded.
    #[inline]
    pub(crate) fn of_head(method: &'static Method, head: &Head) -> Option<Self> {
        is_on().then(|| Self::received(method, head))
    }

    // Cheap: most calls succeed quickly and leave no record.
    #[cold]
    fn received(method: &'static Method, head: &Head) -> Self {
        let (metadata, origin) = (head.metadata().clone(), head.origin().cloned());
        Self { method, target: None, peer: None, metadata, origin, first_wait: None }
    }

    /// Notes a call without metadata, if calls are recorded.
    #[inline]
    pub(crate) fn plain(method: &'static Method, target: Option<&Arc<str>>, peer: Option<&Address>) -> Option<Self> {
        is_on().then(|| {
            let (target, peer) = (target.cloned(), peer.cloned());
            Self { method, target, peer, metadata: Metadata::new(), origin: None, first_wait: None }
        })
    }

    /// Notes that the handler waits.
    pub(crate) fn wait(&mut self) {
        self.first_wait.get_or_insert_with(now);
    }

    fn subject(self) -> CallSubject {
        let Self { method, target, peer, metadata, origin, .. } = self;
        let mut len = 0;
        let entries = metadata.iter().take(ENTRIES_MAX).map(|(name, value)| {
            let value = match value {
                _ if looks_secret(name) => HIDDEN.to_owned(),
                MetadataValue::Ascii(text) => shortened(text),
                MetadataValue::Binary(bytes) => format!("{} bytes", bytes.len()),
            };
            (name.to_owned(), value)
        });
        // Names of callers have any length up to the limit on metadata.
        let entries = entries.take_while(|(name, value)| {
            len += name.len() + value.len();
            len <= METADATA_MAX
        });
        let (entries, trace) = (entries.collect(), TraceContext::of(&metadata));
        CallSubject {
            method,
            target,
            peer: peer.or_else(|| Head::received(origin, None).peer_addr()),
            trace_id: trace.map(|context| context.trace_id()),
            metadata: entries,
        }
    }

    /// Records the end of the call.
    #[cold]
    pub(crate) fn record(self, start: Instant, at: Instant, outcome: Result<(), CallFailure<'_>>) {
        let duration = at.saturating_duration_since(start);
        if outcome.is_ok() && !records().is_slow(self.method, duration, at) {
            return;
        }
        let (code, message, details) = match outcome {
            Ok(()) => (Code::Ok, String::new(), Vec::new()),
            Err(CallFailure::Code(code)) => (code, String::new(), Vec::new()),
            Err(CallFailure::Status(status)) => {
                let details = status.error_details().into_iter().take(ENTRIES_MAX);
                let details = details.map(|detail| shortened(&detail.type_url)).collect();
                (status.code(), shortened(status.message()), details)
            }
        };
        let first_wait = self.first_wait.map(|at| at.saturating_duration_since(start));
        let (subject, ended) = (self.subject(), frisbee::clock::time_of_day());
        let call = Arc::new(RecordedCall { subject, ended, duration, first_wait, code, message, details });
        self::records().add(call, at);
    }
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
    pub(crate) fn start(notes: CallNotes, is_outgoing: bool) -> Option<Self> {
        let subject = notes.subject();
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
    fn recorded_metadata_is_bounded_and_hides_secrets() {
        static SAY: Method = Method::unary("a.A", "Say", 10);
        let subject = |entries: &[(String, String)]| {
            let mut head = Head::default();
            entries.iter().for_each(|(name, value)| head.metadata_mut().append(name, value.clone()).unwrap());
            CallNotes::received(&SAY, &head).subject().metadata
        };
        let many: Vec<_> = (0..100).map(|index| (format!("x-{index}"), "v".to_owned())).collect();
        assert_eq!(subject(&many).len(), ENTRIES_MAX);
        let long: Vec<_> = (0..10).map(|index| (format!("x-{index}-{}", "n".repeat(600)), "v".repeat(600))).collect();
        assert_eq!(subject(&long).len(), 3);
        assert_eq!(subject(&[("n".repeat(METADATA_MAX), "v".to_owned())]), []);
        let secret = subject(&[("x-session-id".to_owned(), "s3cret".to_owned())]);
        assert_eq!(secret, [("x-session-id".to_owned(), HIDDEN.to_owned())]);
    }

    #[test]
    fn slow_calls_are_the_slowest_of_the_last_minutes() {
        static SAY: Method = Method::unary("a.A", "Say", 10);
        static LIST: Method = Method::server_streaming("a.A", "List", 11);
        let (mut records, start) = (Records { failures: VecDeque::new(), slow: Vec::new() }, now());
        let mut add = |method: &'static Method, millis: u64, at: Instant| {
            let call = RecordedCall {
                subject: CallSubject { method, target: None, peer: None, trace_id: None, metadata: Vec::new() },
                ended: SystemTime::UNIX_EPOCH,
                duration: Duration::from_millis(millis),
                first_wait: None,
                code: if millis.is_multiple_of(2) { Code::Ok } else { Code::Internal },
                message: String::new(),
                details: Vec::new(),
            };
            records.add(Arc::new(call), at);
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
