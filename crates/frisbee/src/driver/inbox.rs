//! Read buffers: contents can be slices of them, and idle connections hold none.
//!
//! Small packets are read into a chunk, or into a longer chunk after a read has filled one. A connection that waits for
//! input holds no chunk, but leaves it to the next connection on its thread. A thread keeps up to [`IN_USE_MAX`] chunks
//! with slices in use for later. A content too large for a chunk gets its own buffer, which grows with the arriving bytes
//! and holds nothing else. A retained slice therefore pins one chunk or one content.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    hint::black_box,
    io,
    pin::Pin,
    sync::Once,
    task::{Context, Poll},
};

use bytes::{BufMut, BytesMut};
use tokio_util::io::poll_read_buf;

use crate::{net::IoStream, proto::HeaderFormat};

/// Bytes of one connection, read and not consumed.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) bytes: BytesMut,
    /// `true` if `bytes` is the buffer of one large content.
    is_large: bool,
    /// Buffers of previous large contents, the latest first. The next content may be equally large, and is often read
    /// while the previous one is in use.
    large: [BytesMut; LARGE_MAX],
    large_is_idle: bool,
    /// Length of the previous packet, if it had a large content. The next packet may be equally long: it is read
    /// directly into the previous buffer, or into a new one if the previous is still in use.
    expected_len: usize,
    /// Bytes after a packet, read into its large buffer. They are copied out piece by piece.
    surplus: BytesMut,
    /// `true` if the last read filled its chunk, so that the next chunk is a long one.
    is_busy: bool,
    /// `true` if `bytes` is, or was, part of a long chunk.
    is_long: bool,
    /// `true` if this side may sleep until the rest of a large content has arrived.
    may_await_rest: bool,
    /// The bytes that the socket waits for before it wakes this side. 0 for any.
    low_water: usize,
    /// `true` if a timer ended the wait for the rest of the current content.
    is_slow: bool,
}

impl Inbox {
    pub(super) fn new(bytes: BytesMut, may_await_rest: bool) -> Self {
        Self { bytes, may_await_rest, ..Self::default() }
    }

    /// Reads once.
    ///
    /// `content_len` is the length of a partially received content, or 0. `announced_len` returns the length of the
    /// packet at the front of a slice, if its header is complete.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        wire: &mut IoStream,
        content_len: usize,
        announced_len: impl FnOnce(&[u8]) -> Option<usize>,
    ) -> Poll<io::Result<usize>> {
        let read = self.poll_read_some(cx, wire, content_len, announced_len);
        if read.is_pending() {
            // After the attempt, which has stored the waker: the bytes may be there already.
            self.set_low_water(wire, self.rest_to_await(content_len));
        }
        read
    }

    fn poll_read_some(
        &mut self,
        cx: &mut Context<'_>,
        wire: &mut IoStream,
        content_len: usize,
        announced_len: impl FnOnce(&[u8]) -> Option<usize>,
    ) -> Poll<io::Result<usize>> {
        let (known_len, before_len) = (self.bytes.len(), self.surplus.len());
        if self.prepare_for_another_large(content_len) {
            let room = self.expected_len + OVERREAD_LEN - self.bytes.len();
            let read = poll_read_buf(Pin::new(wire), cx, &mut (&mut self.bytes).limit(room));
            // Without new bytes, bytes read before take the normal path.
            let announced_len = if read.is_ready() { announced_len(&self.bytes) } else { None };
            self.sort_out_large(announced_len, known_len);
            if self.is_large || self.surplus.is_empty() {
                return read.map_ok(|len| before_len + len - self.surplus.len());
            }
        }
        let expected_len = self.expected_len;
        let room = if content_len > CHUNK_LEN { self.large_room(content_len) } else { self.chunk_room(content_len) };
        if !self.surplus.is_empty() {
            let len = room.min(self.surplus.len());
            self.bytes.extend_from_slice(&self.surplus.split_to(len));
            if self.surplus.is_empty() {
                self.surplus = BytesMut::new();
            }
            return Poll::Ready(Ok(len));
        }
        let read = poll_read_buf(Pin::new(wire), cx, &mut (&mut self.bytes).limit(room));
        if let Poll::Ready(Ok(len)) = read
            && !self.is_large
        {
            self.is_busy = len == room && room >= READ_LEN_MIN;
        }
        if read.is_pending() {
            // The previous large buffer may be free at the next attempt.
            self.expected_len = expected_len;
            self.pass_on();
        }
        read
    }

    /// Returns all bytes read and not consumed.
    pub(super) fn into_bytes(mut self) -> BytesMut {
        self.bytes.extend_from_slice(&self.surplus);
        self.bytes
    }

    /// Returns the length of the rest of a large content, or 0 if this side should wake up for less.
    ///
    /// A reader that wakes up for each segment mostly finds the socket empty afterwards, and each wake-up costs the
    /// kernel of the sender more than the copy of a segment.
    fn rest_to_await(&self, content_len: usize) -> usize {
        let rest = content_len.saturating_sub(self.bytes.len());
        if self.may_await_rest && self.is_large && !self.is_slow && rest >= REST_LEN_MIN {
            rest.min(REST_LEN_MAX)
        } else {
            0
        }
    }

    fn set_low_water(&mut self, wire: &IoStream, len: usize) {
        if len != self.low_water {
            self.low_water = if wire.set_low_water(len.max(1)) { len } else { 0 };
        }
    }

    /// Stops waiting for the rest of a content, because the bytes before it show that the peer is alive.
    pub(super) fn wake_for_any_byte(&mut self, wire: &IoStream) {
        self.is_slow |= self.low_water > 0;
        self.set_low_water(wire, 0);
    }

    /// Frees the large buffers if they have not been used since the last call.
    pub(super) fn release(&mut self, wire: &IoStream) {
        self.wake_for_any_byte(wire);
        if self.large_is_idle {
            self.large = Default::default();
        }
        self.large_is_idle = true;
    }

    /// Prepares a buffer for another large packet of the same length, if almost nothing of the next packet has arrived.
    fn prepare_for_another_large(&mut self, content_len: usize) -> bool {
        if self.expected_len == 0 || content_len > 0 {
            return false;
        }
        self.leave_large();
        if self.bytes.len() + self.surplus.len() > OVERREAD_LEN {
            return false;
        }
        let len = self.expected_len + OVERREAD_LEN;
        let mut large = match self.reclaim_large(len) {
            Some(large) => large,
            // The previous contents are still in use. A new buffer saves a separate read of the header; for a much larger
            // content, this saving is negligible.
            None if len > GROW_LEN_MIN => return false,
            None => BytesMut::with_capacity(len),
        };
        large.extend_from_slice(&self.bytes);
        large.extend_from_slice(&std::mem::take(&mut self.surplus));
        self.bytes = large;
        true
    }

    /// Keeps exactly one large packet in the large buffer, and moves all bytes after it to the surplus.
    ///
    /// If there is no large packet, moves all but the first `known_len` bytes.
    fn sort_out_large(&mut self, announced_len: Option<usize>, known_len: usize) {
        if let Some(len) = announced_len.filter(|len| *len > CHUNK_LEN) {
            if len < self.bytes.len() {
                self.surplus = self.bytes.split_off(len);
            }
            self.expected_len = len;
            self.is_large = true;
            self.large_is_idle = false;
        } else {
            if known_len < self.bytes.len() {
                self.surplus = self.bytes.split_off(known_len);
            }
            self.take_large();
        }
    }

    fn leave_large(&mut self) {
        if self.is_large {
            self.take_large();
            self.is_large = false;
            self.is_slow = false;
        }
    }

    /// Copies the remaining bytes out of the large buffer and sets the buffer aside.
    fn take_large(&mut self) {
        let rest = BytesMut::from(&self.bytes[..]);
        let mut large = std::mem::replace(&mut self.bytes, rest);
        large.clear();
        self.large.rotate_right(1);
        self.large[0] = large;
    }

    /// Takes a free buffer with at least this capacity.
    fn reclaim_large(&mut self, len: usize) -> Option<BytesMut> {
        self.large.iter_mut().find_map(|large| large.try_reclaim(len).then(|| std::mem::take(large)))
    }

    fn chunk_room(&mut self, content_len: usize) -> usize {
        self.leave_large();
        let missing = content_len.saturating_sub(self.bytes.len());
        let wanted = missing.max(READ_LEN_MIN.min(CHUNK_LEN - self.bytes.len().min(CHUNK_LEN)));
        let has_room = self.bytes.capacity() - self.bytes.len() >= wanted;
        // Between turns there is no chunk, so there is nothing to reclaim.
        if !has_room && (self.bytes.capacity() == 0 || !self.bytes.try_reclaim(wanted)) {
            self.is_long = self.is_busy;
            let (len, spare) =
                if self.is_long { (LONG_CHUNK_LEN, LONG_SPARE.take()) } else { (CHUNK_LEN, SPARE.take()) };
            let mut chunk = match spare {
                None => BytesMut::with_capacity(len),
                Some(mut chunk) => match chunk.try_reclaim(len) {
                    true => chunk,
                    false if self.is_long => BytesMut::with_capacity(len),
                    false => next_chunk(chunk),
                },
            };
            chunk.extend_from_slice(&self.bytes);
            chunk.reserve(wanted);
            self.bytes = chunk;
        }
        if std::mem::take(&mut self.expected_len) > 0 {
            return missing.max(HEADER_READ_LEN);
        }
        self.bytes.capacity() - self.bytes.len()
    }

    fn large_room(&mut self, content_len: usize) -> usize {
        self.large_is_idle = false;
        self.expected_len = HEADER_LEN_MAX + content_len;
        let here = self.bytes.len();
        if !self.is_large {
            let mut large = self.reclaim_large(content_len + OVERREAD_LEN).unwrap_or_else(|| {
                keep_freed_memory();
                BytesMut::with_capacity(content_len.min(GROW_LEN_MIN) + OVERREAD_LEN)
            });
            large.extend_from_slice(&self.bytes);
            self.bytes.clear();
            self.pass_on();
            self.bytes = large;
            self.is_large = true;
        }
        let missing = content_len - here;
        if self.bytes.capacity() == here {
            // Grow to at most a few times the received length, because a peer may announce more than it sends. Leave
            // room for a header, so that the next packet of this length fits.
            self.bytes.reserve(missing.min((3 * here).max(GROW_LEN_MIN)) + HEADER_LEN_MAX + OVERREAD_LEN);
        }
        (missing + OVERREAD_LEN).min(self.bytes.capacity() - here)
    }

    /// Leaves the chunk to the next connection on this thread, and copies out the remaining bytes.
    fn pass_on(&mut self) {
        if self.is_large || self.bytes.len() > KEEP_LEN_MAX || self.bytes.capacity() == 0 {
            return;
        }
        let rest = BytesMut::from(&self.bytes[..]);
        let mut chunk = std::mem::replace(&mut self.bytes, rest);
        chunk.clear();
        // Slices of the chunk may still be in use, such as by a caller about to be woken. They may be gone by the next
        // read.
        if self.is_long {
            LONG_SPARE.set(Some(chunk));
        } else {
            SPARE.set(Some(chunk));
        }
    }
}

/// Makes glibc keep free memory instead of returning it to the kernel and faulting it in again for each large content.
///
/// By default, glibc keeps 128 KiB, or twice the size of the largest freed block with its own mapping. One such block
/// is allocated and freed here, without touching its pages. Only the first call does so. Other allocators are not
/// affected.
pub fn keep_freed_memory() {
    static ONCE: Once = Once::new();
    if cfg!(target_env = "gnu") {
        ONCE.call_once(|| drop(black_box(Vec::<u8>::with_capacity(KEPT_LEN / 2))));
    }
}

/// Sets aside a chunk with slices in use, and returns a free chunk.
#[cold]
fn next_chunk(in_use: BytesMut) -> BytesMut {
    IN_USE.with_borrow_mut(|chunks| {
        if chunks.len() < IN_USE_MAX {
            chunks.push_back(in_use);
        }
        // The oldest one is probably free by now. If not, it goes to the end: its user may keep it.
        if let Some(mut oldest) = chunks.pop_front() {
            if oldest.try_reclaim(CHUNK_LEN) {
                return oldest;
            }
            chunks.push_back(oldest);
        }
        BytesMut::with_capacity(CHUNK_LEN)
    })
}

thread_local! {
    static SPARE: Cell<Option<BytesMut>> = const { Cell::new(None) };
    static LONG_SPARE: Cell<Option<BytesMut>> = const { Cell::new(None) };
    /// Chunks that were in use when another connection needed one. Several connections of a client read before the
    /// callers of the first one run.
    static IN_USE: RefCell<VecDeque<BytesMut>> = const { RefCell::new(VecDeque::new()) };
}

/// Maximum number of chunks in use that are kept for each thread.
const IN_USE_MAX: usize = 16;

/// Maximum number of large buffers kept for each connection: one in use, and one for the content being received.
const LARGE_MAX: usize = 2;
/// Small enough to be pinned by one packet, large enough for hundreds.
const CHUNK_LEN: usize = 16 * 1024;
/// Chunk length for a connection with more arriving data than fits in a normal chunk.
const LONG_CHUNK_LEN: usize = 64 * 1024;
/// Minimum space for a read, to be worth its system call.
const READ_LEN_MIN: usize = 4 * 1024;
/// Initial size of a growing buffer.
const GROW_LEN_MIN: usize = 64 * 1024;
/// Maximum length of a partial packet copied out of its chunk while the connection waits for more.
const KEEP_LEN_MAX: usize = 1024;
/// Extra space in a read of a large packet. A read that leaves space shows the runtime that the socket is empty, which
/// saves another read. Too small for a packet with content, which would pin the large buffer.
const OVERREAD_LEN: usize = 8;
/// Minimum length of the rest of a content to wait for without reading. Less arrives before a reader wakes up.
const REST_LEN_MIN: usize = 512 * 1024;
/// Maximum length of the rest to wait for. The kernel holds as much.
const REST_LEN_MAX: usize = 4 * 1024 * 1024;
/// Free memory kept per heap arena, enough for several contents of a megabyte.
const KEPT_LEN: usize = 16 * 1024 * 1024;
/// Space for a header and some small packets.
const HEADER_READ_LEN: usize = 512;
const HEADER_LEN_MAX: usize = HeaderFormat::Magic10.header_len();

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, future::poll_fn, sync::Arc, task::Waker, time::Instant};

    use bytes::Bytes;
    use futures_util::FutureExt as _;
    use tokio::{
        io::{AsyncWriteExt as _, DuplexStream, duplex},
        net::{TcpListener, TcpStream},
    };

    use super::*;
    use crate::{
        Config, Packet,
        proto::{Connection, InputEvent, Role},
    };

    /// A reading connection and its peer.
    struct Reader {
        peer: DuplexStream,
        wire: IoStream,
        inbox: Inbox,
        core: Connection,
        reads: usize,
    }

    impl Reader {
        fn new() -> Self {
            let (peer, ours) = duplex(1 << 20);
            let core = Connection::new(Role::Server, Arc::new(Config::default()), Instant::now());
            Self { peer, wire: IoStream::Mem(ours), inbox: Inbox::default(), core, reads: 0 }
        }

        fn say(&mut self, bytes: &[u8]) {
            self.peer.write_all(bytes).now_or_never().expect("there is room").unwrap();
        }

        /// Reads until nothing is left. Returns the received contents.
        fn hear(&mut self) -> Vec<Bytes> {
            let (mut contents, mut cx) = (Vec::new(), Context::from_waker(Waker::noop()));
            let (inbox, core, now) = (&mut self.inbox, &mut self.core, Instant::now());
            while let Poll::Ready(read) =
                inbox.poll_read(&mut cx, &mut self.wire, core.content_len(), |bytes| core.announced_len(bytes))
            {
                core.handle_received(now, read.unwrap());
                self.reads += 1;
                while let Some(event) = core.handle_input(now, &mut inbox.bytes).unwrap() {
                    let InputEvent::Packet(Packet { content, .. }) = event else { panic!("only packets are said") };
                    contents.push(content.into_bytes());
                }
            }
            contents
        }
    }

    /// Encodes a packet whose content is derived from its number.
    fn packet(number: usize, len: usize) -> Vec<u8> {
        let mut packet = vec![0, 0x0f, 0, 1, 0, 20];
        packet.extend(u32::try_from(len).unwrap().to_be_bytes());
        packet.extend(content(number, len));
        packet
    }

    fn content(number: usize, len: usize) -> Vec<u8> {
        vec![number.to_le_bytes()[0]; len]
    }

    /// Lengths around all thresholds of an inbox.
    const LENS: [usize; 11] = [0, 1, 300, 1014, 16_374, 16_375, 16_385, 20_000, 20_000, 70_000, 20_000];

    #[test]
    fn contents_are_unchanged_by_later_reads() {
        // Contents held until the end, for the next packet or two, or not at all.
        for held_max in [usize::MAX, 2, 0] {
            let (mut reader, mut held) = (Reader::new(), Vec::new());
            for (number, len) in LENS.into_iter().cycle().take(2 * LENS.len()).enumerate() {
                reader.say(&packet(number, len));
                let contents = reader.hear();
                assert!(contents.len() == 1 && contents[0] == content(number, len), "{len} bytes");
                held.extend(contents.into_iter().map(|bytes| (number, len, bytes)));
                held.drain(..held.len().saturating_sub(held_max));
            }
            assert!(held.iter().all(|(number, len, bytes)| *bytes == content(*number, *len)));
        }
    }

    #[test]
    fn packets_decode_from_any_split_of_the_input() {
        let packets: Vec<_> = LENS.into_iter().enumerate().map(|(number, len)| packet(number, len)).collect();
        let said = packets.concat();
        for piece_len in [3001, 16_400, 20_010, 20_014, 20_018, said.len()] {
            let (mut reader, mut heard) = (Reader::new(), Vec::new());
            for piece in said.chunks(piece_len) {
                reader.say(piece);
                heard.extend(reader.hear());
            }
            let contents = LENS.into_iter().enumerate().map(|(number, len)| content(number, len));
            assert!(heard.into_iter().eq(contents), "in pieces of {piece_len}");
        }
    }

    #[test]
    fn held_contents_cause_no_extra_reads() {
        let mut reader = Reader::new();
        let packets: Vec<_> = (0..20).map(|number| packet(number, 20_000)).collect();
        reader.say(&packets.concat());
        let held = reader.hear();
        assert_eq!(held, (0..20).map(|number| content(number, 20_000)).collect::<Vec<_>>());
        assert!(reader.reads < 30, "{} reads", reader.reads);
    }

    #[test]
    fn a_large_content_is_read_while_the_previous_one_is_in_use() {
        let (mut reader, mut previous) = (Reader::new(), Vec::new());
        for number in 0..20 {
            let before = reader.reads;
            reader.say(&packet(number, 300_000));
            let contents = reader.hear();
            assert_eq!(contents, [content(number, 300_000)]);
            // The first two get new buffers, which grow.
            assert!(number < 2 || reader.reads == before + 1, "{} reads", reader.reads - before);
            previous = contents;
        }
        drop(previous);
        let kept = |reader: &Reader| reader.inbox.large.iter().map(BytesMut::capacity).sum::<usize>();
        reader.inbox.release(&reader.wire);
        reader.inbox.release(&reader.wire);
        assert_eq!(kept(&reader), 0);
    }

    #[cfg(target_os = "linux")]
    #[cfg_attr(miri, ignore = "Miri has no sockets")]
    #[tokio::test]
    async fn the_rest_of_a_large_content_wakes_a_reader_when_all_is_there() {
        read_contents_in_parts().await;
    }

    #[cfg(all(feature = "uring", target_os = "linux"))]
    #[cfg_attr(miri, ignore = "Miri has no sockets")]
    #[test]
    fn the_rest_of_a_large_content_wakes_a_reader_on_a_ring_when_all_is_there() {
        use crate::net::{RingKind, uring};

        for kind in [RingKind::Best, RingKind::Portable, RingKind::TokioUring] {
            if let Err(error) = uring::probe(kind) {
                eprintln!("skipped: {error}");
                continue;
            }
            let run = async || {
                read_contents_in_parts().await;
                Ok(())
            };
            uring::block_on(kind, run).unwrap();
        }
    }

    /// Reads large contents that arrive in two or three parts, on the ring of this thread if it has one.
    #[cfg(target_os = "linux")]
    async fn read_contents_in_parts() {
        async fn read(wire: &mut IoStream, inbox: &mut Inbox, core: &mut Connection) -> Vec<Bytes> {
            let read =
                |cx: &mut Context<'_>| inbox.poll_read(cx, wire, core.content_len(), |bytes| core.announced_len(bytes));
            let len = poll_fn(read).await.unwrap();
            let (mut contents, now) = (Vec::new(), Instant::now());
            core.handle_received(now, len);
            while let Some(event) = core.handle_input(now, &mut inbox.bytes).unwrap() {
                let InputEvent::Packet(Packet { content, .. }) = event else { panic!("only packets are sent") };
                contents.push(content.into_bytes());
            }
            contents
        }

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut wire = IoStream::Tcp(listener.accept().await.unwrap().0).onto_ring().unwrap();
        let mut inbox = Inbox::new(BytesMut::new(), true);
        let mut core = Connection::new(Role::Server, Arc::new(Config::default()), Instant::now());
        const LEN: usize = 2 << 20;
        for (number, is_slow) in [(1, false), (2, true), (3, false), (4, false)] {
            let packet = packet(number, LEN);
            let (first, rest) = packet.split_at(100_010);
            peer.write_all(first).await.unwrap();
            while inbox.bytes.len() + 10 < first.len() {
                assert!(read(&mut wire, &mut inbox, &mut core).await.is_empty());
            }
            assert_eq!(read(&mut wire, &mut inbox, &mut core).now_or_never(), None);
            assert_eq!(inbox.low_water, LEN - 100_000);
            let (second, rest) = rest.split_at(if is_slow { 100_000 } else { 0 });
            if is_slow {
                peer.write_all(second).await.unwrap();
                // A timer shows the bytes before the rest, and there is no further wait for this content.
                inbox.release(&wire);
                while inbox.bytes.len() < 200_000 {
                    assert!(read(&mut wire, &mut inbox, &mut core).await.is_empty());
                }
                assert_eq!(read(&mut wire, &mut inbox, &mut core).now_or_never(), None);
                assert_eq!(inbox.low_water, 0);
            }
            let reading = async {
                loop {
                    let contents = read(&mut wire, &mut inbox, &mut core).await;
                    if !contents.is_empty() {
                        break contents;
                    }
                }
            };
            let (written, contents) = tokio::join!(peer.write_all(rest), reading);
            written.unwrap();
            assert!(contents.len() == 1 && contents[0] == content(number, LEN));
            // Anything may come next.
            assert_eq!(read(&mut wire, &mut inbox, &mut core).now_or_never(), None);
            assert_eq!(inbox.low_water, 0);
        }
        peer.write_all(&packet(5, 3)).await.unwrap();
        assert_eq!(read(&mut wire, &mut inbox, &mut core).await, [content(5, 3)]);
    }

    #[test]
    fn connections_of_a_thread_share_chunks_but_no_bytes() {
        let mut readers = [Reader::new(), Reader::new(), Reader::new()];
        let mut held = Vec::new();
        for number in 0..30 {
            let reader = &mut readers[number % 3];
            let (whole, next) = (packet(number, 700), packet(number, 50));
            // The partial packet is copied out of the chunk, which goes to the next connection.
            reader.say(&[&whole[..], &next[..30]].concat());
            held.extend(reader.hear().into_iter().map(|bytes| (number, 700, bytes)));
            reader.say(&next[30..]);
            held.extend(reader.hear().into_iter().map(|bytes| (number, 50, bytes)));
            if number % 5 == 0 {
                held.drain(..held.len() / 2);
            }
            assert!(held.iter().all(|(number, len, bytes)| *bytes == content(*number, *len)));
        }
    }

    #[test]
    fn chunks_in_use_are_used_again_once_they_are_free() {
        let (mut readers, mut held) = ([Reader::new(), Reader::new(), Reader::new()], VecDeque::new());
        let mut addresses = HashSet::new();
        for number in 0..300 {
            let reader = &mut readers[number % 3];
            reader.say(&packet(number, 50));
            let heard = reader.hear().remove(0);
            addresses.insert(heard.as_ptr().addr());
            held.push_back((number, heard));
            if held.len() > 2 {
                held.pop_front();
            }
            assert!(held.iter().all(|(number, bytes)| *bytes == content(*number, 50)));
        }
        assert!(addresses.len() <= 4, "{} chunks", addresses.len());
    }

    #[test]
    fn few_chunks_are_kept_for_contents_that_are_never_freed() {
        let (mut reader, mut held) = (Reader::new(), Vec::new());
        for number in 0..10 * IN_USE_MAX {
            reader.say(&packet(number, 50));
            held.extend(reader.hear());
        }
        assert_eq!(IN_USE.with_borrow(VecDeque::len), IN_USE_MAX);
        assert!(held.iter().enumerate().all(|(number, bytes)| *bytes == content(number, 50)));
    }

    #[test]
    fn taking_the_input_back_loses_no_bytes() {
        let mut reader = Reader::new();
        let said = [packet(1, 20_000), packet(2, 20_000), packet(3, 300)].concat();
        reader.say(&said);
        let mut cx = Context::from_waker(Waker::noop());
        let mut taken = 0;
        while taken < 20_010 {
            let (inbox, core) = (&mut reader.inbox, &mut reader.core);
            let announced_len = |bytes: &[u8]| core.announced_len(bytes);
            let Poll::Ready(Ok(_)) = inbox.poll_read(&mut cx, &mut reader.wire, core.content_len(), announced_len)
            else {
                panic!("more is there")
            };
            let before = inbox.bytes.len();
            while core.handle_input(Instant::now(), &mut inbox.bytes).unwrap().is_some() {}
            taken += before - inbox.bytes.len();
        }
        let (bytes, mut rest) = (reader.inbox.into_bytes(), BytesMut::new());
        let mut wire = Pin::new(&mut reader.wire);
        while let Poll::Ready(Ok(_)) = poll_read_buf(wire.as_mut(), &mut cx, &mut rest) {}
        assert!([&bytes[..], &rest].concat() == said[taken..]);
    }
}
