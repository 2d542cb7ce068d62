//! A thread that writes lines.

use std::{
    collections::VecDeque,
    io::{self, Write},
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

/// The queue of a thread that writes lines. The thread starts with the first line and ends after this is dropped.
pub(super) struct LogWriter(Arc<LineQueue>);

impl LogWriter {
    /// Creates the queue with its maximum number of waiting lines.
    pub(super) fn new(writer: impl Write + Send + 'static, lines_max: usize) -> Self {
        Self(Arc::new(LineQueue::new(Box::new(writer), lines_max)))
    }

    /// Queues a line, or drops and counts it.
    pub(super) fn push(&self, line: Vec<u8>) {
        self.0.push(line);
    }

    /// Returns the number of lines dropped at the limit or by a failure of the writer.
    pub(super) fn dropped(&self) -> u64 {
        self.0.lock().dropped
    }

    /// Returns `true` after the first line.
    #[cfg(test)]
    pub(super) fn is_started(&self) -> bool {
        self.0.lock().writer.is_none()
    }

    /// Waits until all lines so far are flushed, or the thread has ended.
    pub(super) fn flush(&self) {
        let state = self.0.lock();
        let pushed = state.pushed;
        let _state = self.0.flushed.wait_while(state, |state| state.is_unflushed(pushed));
    }

    /// Does the same, up to this time.
    pub(super) fn flush_within(&self, limit: Duration) {
        let state = self.0.lock();
        let pushed = state.pushed;
        let _state = self.0.flushed.wait_timeout_while(state, limit, |state| state.is_unflushed(pushed));
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.pushed.notify_one();
    }
}

/// Lines on their way to a writer thread.
struct LineQueue {
    state: Mutex<QueueState>,
    lines_max: u64,
    /// Wakes the thread.
    pushed: Condvar,
    /// Wakes code waiting for the thread.
    flushed: Condvar,
}

struct QueueState {
    /// The writer, until the first line starts the thread.
    writer: Option<Box<dyn Write + Send>>,
    lines: VecDeque<Vec<u8>>,
    /// The number of lines accepted so far, of the written ones among them, and of the flushed ones.
    pushed: u64,
    written: u64,
    flushed: u64,
    dropped: u64,
    /// The thread waits for a wake-up. Without one, a line costs no system call.
    is_waiting: bool,
    is_closed: bool,
    /// The thread has ended, usually by a failure of the writer.
    is_over: bool,
}

impl LineQueue {
    fn new(writer: Box<dyn Write + Send>, lines_max: usize) -> Self {
        let state = QueueState {
            writer: Some(writer),
            lines: VecDeque::new(),
            pushed: 0,
            written: 0,
            flushed: 0,
            dropped: 0,
            is_waiting: false,
            is_closed: false,
            is_over: false,
        };
        Self { state: Mutex::new(state), lines_max: lines_max as u64, pushed: Condvar::new(), flushed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // No code under the lock leaves a part of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(self: &Arc<Self>, line: Vec<u8>) {
        let mut state = self.lock();
        if state.is_over || state.waiting() >= self.lines_max {
            state.dropped += 1;
            return;
        }
        state.lines.push_back(line);
        state.pushed += 1;
        if let Some(writer) = state.writer.take() {
            let queue = self.clone();
            let thread = thread::Builder::new().name("frpc-access-log".to_owned());
            if thread.spawn(move || queue.run(writer)).is_err() {
                state.end();
            }
        } else if mem::take(&mut state.is_waiting) {
            drop(state);
            self.pushed.notify_one();
        }
    }

    /// Writes lines until the queue is closed or the writer fails.
    fn run(&self, mut writer: Box<dyn Write + Send>) {
        let _end = ThreadEnd(self);
        while let Some(lines) = self.next_lines() {
            // An error ends the thread: the file may end with a part of a line.
            if self.write(&mut writer, lines).is_err() {
                return;
            }
        }
    }

    /// Waits for lines. `None` after the last line of a closed queue.
    fn next_lines(&self) -> Option<VecDeque<Vec<u8>>> {
        let mut state = self.lock();
        while state.lines.is_empty() {
            if state.is_closed {
                return None;
            }
            state.is_waiting = true;
            state = self.pushed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Some(mem::take(&mut state.lines))
    }

    fn write(&self, writer: &mut dyn Write, lines: VecDeque<Vec<u8>>) -> io::Result<()> {
        for line in lines {
            writer.write_all(&line)?;
            self.lock().written += 1;
        }
        writer.flush()?;
        let mut state = self.lock();
        state.flushed = state.written;
        self.flushed.notify_all();
        Ok(())
    }
}

impl QueueState {
    /// The number of lines in the queue or with the writer.
    fn waiting(&self) -> u64 {
        self.pushed - self.written
    }

    /// Returns `true` while some of the first `pushed` lines may still reach the output.
    fn is_unflushed(&self, pushed: u64) -> bool {
        !self.is_over && self.flushed < pushed
    }

    fn end(&mut self) {
        self.is_over = true;
        self.dropped += self.waiting();
        self.written = self.pushed;
        self.lines = VecDeque::new();
    }
}

/// Ends the queue with its thread, also if the writer panics.
struct ThreadEnd<'a>(&'a LineQueue);

impl Drop for ThreadEnd<'_> {
    fn drop(&mut self) {
        self.0.lock().end();
        self.0.flushed.notify_all();
    }
}
