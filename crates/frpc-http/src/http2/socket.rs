//! Reading and writing, for both roles.

use std::{
    cell::Cell,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use frpc::frisbee::{FlowState, FrameCounts};
use frpc_http2::{Connection, FrameCounters, Settings};
use tokio::io::AsyncWrite;

/// Passes the input buffer of this thread to a function, with the rest of its chunk for short data.
pub(crate) fn with_scratch<T>(read: impl FnOnce(&mut [u8], &mut ReceivedChunk) -> T) -> T {
    // One access: each checks whether the thread still has the value.
    SCRATCH.with(|spare| {
        let mut scratch = spare.take().unwrap_or_else(|| {
            Box::new(Scratch { buffer: vec![0; SCRATCH_LEN].into_boxed_slice(), chunk: ReceivedChunk::default() })
        });
        let read = read(&mut scratch.buffer, &mut scratch.chunk);
        spare.set(Some(scratch));
        read
    })
}

/// The buffers of a thread.
struct Scratch {
    buffer: Box<[u8]>,
    chunk: ReceivedChunk,
}

/// The rest of a chunk for short data.
#[derive(Debug, Default)]
pub(crate) struct ReceivedChunk(BytesMut);

impl ReceivedChunk {
    /// Copies short input as a whole. Each [part](Self::part) of it shares the copy.
    pub(crate) fn share(&mut self, input: &[u8]) -> Option<Bytes> {
        (input.len() <= SHARED_INPUT_MAX).then(|| self.append(input))
    }

    /// Returns a part of input, which is copied unless the input was [shared](Self::share).
    #[inline]
    pub(crate) fn part(&mut self, shared: Option<&Bytes>, data: &[u8]) -> Bytes {
        shared.map_or_else(|| self.copy(data), |shared| shared.slice_ref(data))
    }

    /// Copies received data. Short data shares the chunk, which saves an allocation, and a second one for the first clone.
    pub(crate) fn copy(&mut self, data: &[u8]) -> Bytes {
        if data.len() > SHARED_LEN_MAX {
            return Bytes::copy_from_slice(data);
        }
        self.append(data)
    }

    fn append(&mut self, data: &[u8]) -> Bytes {
        // Reuses the memory of the chunk if all data in it was dropped.
        if self.0.capacity() < data.len() {
            self.0.reserve(CHUNK_LEN);
        }
        self.0.extend_from_slice(data);
        self.0.split().freeze()
    }
}

/// Writes the output of a connection. Completes when all of it is written. Returns `true` if bytes were written.
pub(crate) fn poll_write_output(
    cx: &mut Context<'_>,
    core: &mut Connection,
    socket: &mut (impl AsyncWrite + Unpin),
) -> io::Result<(Poll<()>, bool)> {
    let written = poll_write_batches(cx, core, socket);
    // After the writes, also if the socket took nothing: an operator sees stalled connections by it.
    core.update_flow();
    written
}

#[inline(always)] // Once per turn of a connection.
fn poll_write_batches(
    cx: &mut Context<'_>,
    core: &mut Connection,
    socket: &mut (impl AsyncWrite + Unpin),
) -> io::Result<(Poll<()>, bool)> {
    let mut has_written = false;
    while core.poll_output() {
        let is_long = core.output_len() > LONG_OUTPUT;
        let polled = match is_long {
            true => poll_write_chunks::<LONG_SLICES_MAX>(cx, core, socket),
            false => poll_write_chunks::<SLICES_MAX>(cx, core, socket),
        };
        let Poll::Ready(written) = polled else { return Ok((Poll::Pending, has_written)) };
        match written? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            len => core.advance_output(len),
        }
        has_written = true;
    }
    match Pin::new(socket).poll_flush(cx) {
        Poll::Ready(flushed) => flushed.map(|()| (Poll::Ready(()), has_written)),
        Poll::Pending => Ok((Poll::Pending, has_written)),
    }
}

/// Writes the first chunks of the output.
#[inline(always)] // Once per call.
fn poll_write_chunks<const MAX: usize>(
    cx: &mut Context<'_>,
    core: &Connection,
    socket: &mut (impl AsyncWrite + Unpin),
) -> Poll<io::Result<usize>> {
    let mut slices = [IoSlice::new(&[]); MAX];
    let mut count = 0;
    for (slice, chunk) in slices.iter_mut().zip(core.output_chunks()) {
        *slice = chunk;
        count += 1;
    }
    Pin::new(socket).poll_write_vectored(cx, &slices[..count])
}

/// Adds the frames of a connection.
pub(crate) fn add_frames(sum: &mut FrameCounts, frames: &FrameCounters) {
    frames.counts().for_each(|count| sum.add(count.kind, count.received, count.sent));
}

/// Adds the streams and the credit of a connection.
pub(crate) fn add_flow(sum: &mut FlowState, frames: &FrameCounters) {
    let flow = frames.flow();
    // Windows of connections are never negative.
    let credit = |window: i32| u64::try_from(window).unwrap_or(0);
    sum.streams += flow.streams as usize;
    sum.stalled += usize::from(flow.queued > 0 && flow.send_window <= 0);
    sum.queued += u64::from(flow.queued);
    sum.send_credit += credit(flow.send_window);
    sum.receive_credit += credit(flow.receive_window);
}

/// Returns the limits of the protocol core for both roles.
///
/// Writes, and the queues of streams before them, are long: on one machine, a write often wakes the peer, which costs as
/// much as a copy of 100 KiB.
pub(crate) fn default_settings() -> Settings {
    Settings {
        frame_len_max: FRAME_LEN_MAX,
        stream_queue_max: BATCH_MAX,
        batch_max: BATCH_MAX,
        output_max: 2 * BATCH_MAX,
        control_frames_max: CONTROL_FRAMES_MAX,
        ..Settings::default()
    }
}

thread_local! {
    /// The buffers of this thread. A connection keeps only the start of a frame.
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// The length of the input buffer.
const SCRATCH_LEN: usize = 256 << 10;

/// The length of a chunk for short data. Small enough to be pinned by one message, large enough for hundreds.
const CHUNK_LEN: usize = 16 << 10;

/// The maximum length of data in a shared chunk.
const SHARED_LEN_MAX: usize = 1 << 10;

/// The maximum length of input that is copied as a whole.
const SHARED_INPUT_MAX: usize = 8 << 10;

/// The maximum number of reads in a round. A peer that sends without a pause must not delay responses.
pub(crate) const READS_MAX: usize = 2;

/// The maximum number of rounds in a turn.
pub(crate) const ROUNDS_MAX: usize = 8;

/// The maximum number of pieces in a vectored write.
const SLICES_MAX: usize = 16;

/// The same for output above [`LONG_OUTPUT`]: frames of 16 KiB, each with its header.
const LONG_SLICES_MAX: usize = 64;

/// Output of this length is worth a longer list of pieces.
const LONG_OUTPUT: usize = 64 << 10;

/// The maximum capacity that an idle connection keeps for the start of a frame.
pub(crate) const PARTIAL_KEPT: usize = 1024;

/// The maximum number of PING and SETTINGS frames per second. grpc-go sends a PING per round trip to measure its
/// bandwidth: tens of thousands per second on one machine.
const CONTROL_FRAMES_MAX: u32 = 100_000;

/// The maximum length of received frames. The protocol core returns long DATA frames in parts, so only other frames
/// occupy that much memory.
const FRAME_LEN_MAX: u32 = 64 << 10;

/// The maximum length of one write.
const BATCH_MAX: usize = 384 << 10;
