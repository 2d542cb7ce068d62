//! The thread that writes records, and its queue.

use std::{
    io::{self, BufWriter, Write},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc::{self, Receiver, RecvError, SyncSender, TryRecvError},
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use tracing::warn;

use crate::{
    frame::{FILE_HEAD, Frame},
    protos::{Drops, Event, RecordingEnd, RecordingStart, event::Kind},
    settings::RecordSettings,
};

/// The queue to the thread.
pub(crate) struct RecordWriter {
    sender: SyncSender<WriterTask>,
    state: Arc<WriterState>,
    queue_len_max: usize,
    len_max: u64,
}

/// The state shared with the thread.
#[derive(Default)]
pub(crate) struct WriterState {
    /// The bytes in the queue.
    queued: AtomicUsize,
    /// The bytes accepted for the file so far.
    len: AtomicU64,
    pub(crate) calls: AtomicU64,
    pub(crate) dropped: AtomicU64,
    is_closed: AtomicBool,
    failure: Mutex<Option<String>>,
}

enum WriterTask {
    Write(Frame),
    /// Answers after everything before it is flushed.
    Flush(SyncSender<()>),
    Close(SyncSender<()>),
}

/// The maximum number of records in the queue.
const RECORDS_MAX: usize = 16_384;

/// The room for the last records of a file with its maximum length.
const LAST_RECORDS_LEN: u64 = 256;

/// The longest wait of a dropped recorder for its file.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(1);

impl RecordWriter {
    /// Starts the thread. It ends after [`close`](Self::close), or after all senders are gone.
    pub(crate) fn start(writer: impl Write + Send + 'static, settings: &RecordSettings) -> io::Result<Self> {
        let (sender, receiver) = mpsc::sync_channel(RECORDS_MAX);
        let state = Arc::new(WriterState::default());
        let start = RecordingStart { unix_time: unix_micros(SystemTime::now()) };
        let mut thread = WriterThread { out: BufWriter::new(Box::new(writer)), state: state.clone(), dropped: 0 };
        let first = frame_of(Kind::RecordingStart(start));
        state.len.store((FILE_HEAD.len() + first.as_ref().map_or(0, Frame::len)) as u64, Ordering::Relaxed);
        thread::Builder::new().name("frpc-record".to_owned()).spawn(move || thread.run(&receiver, first))?;
        Ok(Self { sender, state, queue_len_max: settings.queue_len_max, len_max: settings.recording_len_max })
    }

    pub(crate) fn state(&self) -> &WriterState {
        &self.state
    }

    /// Queues a record. `false` if a limit is reached, or the thread has ended.
    pub(crate) fn push(&self, frame: Frame) -> bool {
        let len = frame.len();
        let state = &self.state;
        if state.is_closed.load(Ordering::Relaxed) {
            return false;
        }
        let room = self.len_max.saturating_sub(LAST_RECORDS_LEN);
        let grows = |max: u64| move |now: u64| now.checked_add(len as u64).filter(|len| *len <= max);
        if state.len.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grows(room)).is_err() {
            return false;
        }
        let queued = state.queued.fetch_add(len, Ordering::Relaxed);
        // One record of any length fits into an empty queue.
        let fits = queued == 0 || queued + len <= self.queue_len_max;
        if !fits || self.sender.try_send(WriterTask::Write(frame)).is_err() {
            state.queued.fetch_sub(len, Ordering::Relaxed);
            state.len.fetch_sub(len as u64, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Waits until all records so far are in the file.
    pub(crate) fn flush(&self) {
        self.wait_for(WriterTask::Flush, None);
    }

    /// Writes the end of the recording. Later records are dropped.
    pub(crate) fn close(&self) {
        self.state.is_closed.store(true, Ordering::Relaxed);
        self.wait_for(WriterTask::Close, None);
    }

    /// Does the same, and waits for a second at most.
    pub(crate) fn close_soon(&self) {
        self.state.is_closed.store(true, Ordering::Relaxed);
        self.wait_for(WriterTask::Close, Some(CLOSE_WAIT_MAX));
    }

    /// Sends a task and waits for its answer. The thread may have ended, and drops the task then.
    fn wait_for(&self, task: impl FnOnce(SyncSender<()>) -> WriterTask, limit: Option<Duration>) {
        let (done, is_done) = mpsc::sync_channel(1);
        let _ended = match limit {
            None => self.sender.send(task(done)).is_err() || is_done.recv().is_err(),
            Some(limit) => self.sender.try_send(task(done)).is_err() || is_done.recv_timeout(limit).is_err(),
        };
    }
}

impl WriterState {
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    /// Counts a dropped call, and reports the first one.
    pub(crate) fn count_dropped(&self) {
        if self.dropped.fetch_add(1, Ordering::Relaxed) == 0 {
            warn!("the recording of calls drops calls: its queue or file is full, or its file failed");
        }
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct WriterThread {
    out: BufWriter<Box<dyn Write + Send>>,
    state: Arc<WriterState>,
    /// The number of dropped calls in the file.
    dropped: u64,
}

impl WriterThread {
    fn run(&mut self, tasks: &Receiver<WriterTask>, first: Option<Frame>) {
        let mut written = self.out.write_all(&FILE_HEAD);
        if let (Ok(()), Some(first)) = (&written, first) {
            written = self.write(&first);
        }
        let ended = written.and_then(|()| self.write_tasks(tasks));
        // Records that are still in the queue have no reader.
        self.state.is_closed.store(true, Ordering::Relaxed);
        match ended {
            Ok(closed) => drop(closed),
            Err(error) => {
                warn!("the recording of calls ends early: {error}");
                *self.state.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
            }
        }
    }

    /// Writes until the recording is closed, and returns the answer to that task.
    fn write_tasks(&mut self, tasks: &Receiver<WriterTask>) -> io::Result<Option<SyncSender<()>>> {
        loop {
            let task = match tasks.try_recv() {
                Ok(task) => Ok(task),
                Err(TryRecvError::Empty) => {
                    self.flush()?;
                    tasks.recv()
                }
                Err(TryRecvError::Disconnected) => Err(RecvError),
            };
            match task {
                Ok(WriterTask::Write(frame)) => {
                    self.write(&frame)?;
                    self.state.queued.fetch_sub(frame.len(), Ordering::Relaxed);
                }
                Ok(WriterTask::Flush(done)) => {
                    // Before the sender goes on, so that its next records count as dropped.
                    self.flush().inspect_err(|_| self.state.is_closed.store(true, Ordering::Relaxed))?;
                    // The sender may have given up.
                    let _ = done.try_send(());
                }
                Ok(WriterTask::Close(done)) => return self.end().map(|()| Some(done)),
                Err(RecvError) => return self.end().map(|()| None),
            }
        }
    }

    fn write(&mut self, frame: &Frame) -> io::Result<()> {
        self.out.write_all(&frame.head)?;
        self.out.write_all(&frame.content)
    }

    fn flush(&mut self) -> io::Result<()> {
        let calls = self.state.dropped.load(Ordering::Relaxed);
        // The first drop is enough for a reader of a recording without its end. Further ones follow at the end, so that
        // they need little room.
        if calls > 0 && self.dropped == 0 {
            self.write_drops(calls)?;
        }
        self.out.flush()
    }

    fn write_drops(&mut self, calls: u64) -> io::Result<()> {
        self.dropped = calls;
        frame_of(Kind::Drops(Drops { calls })).map_or(Ok(()), |frame| self.write(&frame))
    }

    fn end(&mut self) -> io::Result<()> {
        let calls = self.state.dropped.load(Ordering::Relaxed);
        if calls > self.dropped {
            self.write_drops(calls)?;
        }
        if let Some(frame) = frame_of(Kind::RecordingEnd(RecordingEnd {})) {
            self.write(&frame)?;
        }
        self.out.flush()
    }
}

/// Returns the record of an event without a call.
fn frame_of(kind: Kind) -> Option<Frame> {
    Frame::new(&Event { time: 0, call: 0, kind: Some(kind) }, Bytes::new())
}

fn unix_micros(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
