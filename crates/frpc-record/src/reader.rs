//! Reading a recording.

use std::{
    collections::HashMap,
    fs,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use frpc::{Code, MethodKind, Status, codec::Format};

use crate::{
    error::{RecordingError, RecordingFault},
    frame::{Frames, NextFrame},
    metadata::{self, RecordedMetadata},
    protos::{self, CallEnd, CallStart, MessageFormat, event::Kind},
};

/// A recording in memory: calls with their messages, in the order of their start.
///
/// It takes about as much memory as the file: messages are slices of it.
#[derive(Clone, Debug)]
pub struct Recording {
    started: SystemTime,
    calls: Vec<RecordedCall>,
    schemas: Vec<Bytes>,
    dropped_calls: u64,
    cut_at: Option<u64>,
}

/// A recorded call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecordedCall {
    /// The full name of the service. Empty for functions without a service.
    pub service: String,
    /// The name of the method.
    pub method: String,
    /// The streaming kind of the method.
    pub kind: MethodKind,
    /// The format of the recorded messages.
    pub format: Format,
    /// The number of the method for plain peers.
    pub operation: u16,
    /// The time of the start, counted from the start of the recording.
    pub start: Duration,
    /// The remaining time of the caller at the start, if it had a deadline.
    pub timeout: Option<Duration>,
    /// The metadata of the caller.
    pub metadata: RecordedMetadata,
    /// The messages of both directions, in order.
    pub events: Vec<CallEvent>,
    /// The end of the call. `None` if the recording ends before it, or the rest of the call was dropped.
    pub outcome: Option<CallOutcome>,
}

/// An event of a recorded call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallEvent {
    /// The time since the start of the recording.
    pub time: Duration,
    /// The event.
    pub kind: CallEventKind,
}

/// The kind of a [`CallEvent`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallEventKind {
    /// A message of the caller, as read by the handler.
    Request(Bytes),
    /// The caller ended its stream.
    RequestsEnd {
        /// `false` if the stream failed, or the handler did not read to its end.
        is_complete: bool,
    },
    /// A message of the service.
    Response(Bytes),
}

/// The end of a recorded call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CallOutcome {
    /// The time since the start of the recording.
    pub time: Duration,
    /// The failure of the call. A call given up by its caller has the code [`Code::Cancelled`].
    pub failure: Option<Status>,
    /// The metadata sent before the messages.
    pub metadata: RecordedMetadata,
    /// The trailers, also of a failed call.
    pub trailers: RecordedMetadata,
}

impl Recording {
    /// Reads a file.
    ///
    /// A file cut at any byte is read up to the cut: see [`cut_at`](Self::cut_at).
    ///
    /// # Errors
    ///
    /// The file cannot be read, is not a recording, or is damaged. The error has the offset of the damage.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, RecordingError> {
        let read = fs::read(path).map_err(|error| RecordingError::new(0, RecordingFault::Io(error)))?;
        Self::parse(read)
    }

    /// Reads the bytes of a file. Fails like [`open`](Self::open).
    pub fn parse(bytes: impl Into<Bytes>) -> Result<Self, RecordingError> {
        let bytes = bytes.into();
        let mut recording =
            Self { started: UNIX_EPOCH, calls: Vec::new(), schemas: Vec::new(), dropped_calls: 0, cut_at: None };
        let Some(mut frames) = Frames::new(bytes.clone())? else {
            recording.cut_at = Some(bytes.len() as u64);
            return Ok(recording);
        };
        let mut numbers = HashMap::new();
        let mut is_over = false;
        loop {
            let at = frames.offset();
            match frames.next()? {
                NextFrame::Frame { offset, .. } if is_over => {
                    return Err(RecordingError::record(offset, "follows the end of the recording"));
                }
                NextFrame::Frame { offset, event, content } => {
                    let time = Duration::from_micros(event.time);
                    match event.kind {
                        Some(Kind::RecordingEnd(_)) => is_over = true,
                        Some(kind) => recording
                            .add(kind, event.call, time, content, &mut numbers)
                            .map_err(|what| RecordingError::record(offset, what))?,
                        // A kind of a later version.
                        None => {}
                    }
                }
                NextFrame::End if is_over => return Ok(recording),
                NextFrame::End | NextFrame::Cut => {
                    recording.cut_at = Some(at as u64);
                    return Ok(recording);
                }
            }
        }
    }

    fn add(
        &mut self,
        kind: Kind,
        number: u64,
        time: Duration,
        content: Bytes,
        numbers: &mut HashMap<u64, usize>,
    ) -> Result<(), String> {
        let event = match kind {
            Kind::RecordingStart(start) => {
                let started = UNIX_EPOCH.checked_add(Duration::from_micros(start.unix_time));
                self.started = started.ok_or("has a time out of range")?;
                return Ok(());
            }
            Kind::Schema(_) => {
                self.schemas.push(content);
                return Ok(());
            }
            Kind::Drops(drops) => {
                self.dropped_calls = drops.calls;
                return Ok(());
            }
            Kind::CallStart(start) => {
                if numbers.insert(number, self.calls.len()).is_some() {
                    return Err(format!("starts call {number} twice"));
                }
                self.calls.push(started(start, time)?);
                return Ok(());
            }
            Kind::RecordingEnd(_) => return Ok(()),
            Kind::CallEnd(end) => {
                let call = self.call(number, numbers)?;
                if call.outcome.replace(ended(end, time)?).is_some() {
                    return Err(format!("ends call {number} twice"));
                }
                return Ok(());
            }
            Kind::Request(_) => CallEventKind::Request(content),
            Kind::RequestsEnd(end) => CallEventKind::RequestsEnd { is_complete: !end.is_incomplete },
            Kind::Response(_) => CallEventKind::Response(content),
        };
        self.call(number, numbers)?.events.push(CallEvent { time, kind: event });
        Ok(())
    }

    fn call(&mut self, number: u64, numbers: &HashMap<u64, usize>) -> Result<&mut RecordedCall, String> {
        let call = numbers.get(&number).and_then(|&at| self.calls.get_mut(at));
        call.ok_or_else(|| format!("belongs to the unknown call {number}"))
    }

    /// Returns the time of the start.
    pub fn started(&self) -> SystemTime {
        self.started
    }

    /// Returns the calls in the order of their start.
    pub fn calls(&self) -> &[RecordedCall] {
        &self.calls
    }

    /// Returns the descriptors of the recorded methods: encoded `google.protobuf.FileDescriptorSet`s.
    pub fn schemas(&self) -> &[Bytes] {
        &self.schemas
    }

    /// Returns the number of calls that the recorder dropped at a limit, completely or from some event on.
    pub fn dropped_calls(&self) -> u64 {
        self.dropped_calls
    }

    /// Returns the offset of the first missing or incomplete record, or `None` for a closed recording. A process that
    /// ends early, or still records, leaves such a file.
    pub fn cut_at(&self) -> Option<u64> {
        self.cut_at
    }
}

impl RecordedCall {
    /// Returns the path of the method: `package.Service/Method`, or the name of a function without a service.
    pub fn path(&self) -> String {
        if self.service.is_empty() { self.method.clone() } else { format!("{}/{}", self.service, self.method) }
    }

    /// Returns the messages of the caller, in order.
    pub fn requests(&self) -> impl Iterator<Item = &Bytes> {
        self.events.iter().filter_map(|event| match &event.kind {
            CallEventKind::Request(message) => Some(message),
            _ => None,
        })
    }

    /// Returns the messages of the service, in order.
    pub fn responses(&self) -> impl Iterator<Item = &Bytes> {
        self.events.iter().filter_map(|event| match &event.kind {
            CallEventKind::Response(message) => Some(message),
            _ => None,
        })
    }
}

fn started(start: CallStart, time: Duration) -> Result<RecordedCall, String> {
    let format = match MessageFormat::try_from(start.format) {
        Ok(MessageFormat::Polyglot) => Format::Polyglot,
        Ok(MessageFormat::Proto) => Format::Proto,
        Ok(MessageFormat::Json) => Format::Json,
        Ok(MessageFormat::Unknown) | Err(_) => return Err(format!("has the unknown format {}", start.format)),
    };
    let kind = match protos::MethodKind::try_from(start.method_kind) {
        Ok(protos::MethodKind::Unary) => MethodKind::Unary,
        Ok(protos::MethodKind::ServerStreaming) => MethodKind::ServerStreaming,
        Ok(protos::MethodKind::ClientStreaming) => MethodKind::ClientStreaming,
        Ok(protos::MethodKind::Bidirectional) => MethodKind::Bidirectional,
        Err(_) => return Err(format!("has the unknown kind of method {}", start.method_kind)),
    };
    let operation = u16::try_from(start.operation).map_err(|_| format!("has the operation {}", start.operation))?;
    Ok(RecordedCall {
        service: start.service,
        method: start.method,
        kind,
        format,
        operation,
        start: time,
        timeout: (start.timeout > 0).then(|| Duration::from_micros(start.timeout)),
        metadata: metadata::read(start.metadata).map_err(|error| format!("has invalid metadata: {error}"))?,
        events: Vec::new(),
        outcome: None,
    })
}

fn ended(end: CallEnd, time: Duration) -> Result<CallOutcome, String> {
    let code = i32::try_from(end.code).map_or(Code::Unknown, Code::from_number);
    let [metadata, trailers] = [end.metadata, end.trailers]
        .map(|entries| metadata::read(entries).map_err(|error| format!("has invalid metadata: {error}")));
    let failure = (code != Code::Ok).then(|| Status::with_details(code, end.text, end.details));
    Ok(CallOutcome { time, failure, metadata: metadata?, trailers: trailers? })
}
