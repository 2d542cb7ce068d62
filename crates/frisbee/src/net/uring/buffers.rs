//! Receive buffers selected by the kernel. A connection uses one only while it has received bytes not yet read.
#![expect(unsafe_code, reason = "the kernel and this process take turns with the memory")]

use std::{
    alloc::{self, Layout},
    cell::Cell,
    io,
    ops::{Deref, Range},
    ptr::NonNull,
    rc::Rc,
    sync::atomic::{AtomicU16, Ordering},
};

use io_uring::{IoUring, types::BufRingEntry};

/// A ring of buffers, each owned by the kernel or by a [`FilledBuffer`].
pub(super) struct RingBuffers {
    entries: NonNull<BufRingEntry>,
    memory: NonNull<u8>,
    /// The end of the ring. The kernel reads a copy of it in the first entry.
    tail: Cell<u16>,
    /// The number of buffers owned by the kernel.
    free: Cell<u16>,
    /// `true` for buffers owned by a [`FilledBuffer`], to check the kernel's reports.
    is_filled: [Cell<bool>; COUNT as usize],
}

/// The filled part of a buffer. Returns the buffer to the kernel on drop.
pub(super) struct FilledBuffer {
    buffers: Rc<RingBuffers>,
    id: u16,
    range: Range<usize>,
}

impl RingBuffers {
    /// Allocates the buffers and offers all of them to the kernel.
    pub(super) fn new() -> Rc<Self> {
        let buffers = Self {
            entries: allocate(ENTRIES_LAYOUT).cast(),
            memory: allocate(MEMORY_LAYOUT),
            tail: Cell::new(0),
            free: Cell::new(0),
            is_filled: [const { Cell::new(false) }; COUNT as usize],
        };
        (0..COUNT).for_each(|id| buffers.offer(id));
        Rc::new(buffers)
    }

    /// Registers the buffers with a ring. They must outlive all requests of that ring.
    pub(super) fn register(&self, uring: &IoUring) -> io::Result<()> {
        // SAFETY: `entries` has `COUNT` entries, aligned to pages, and every address in them points to a buffer.
        // The owner of the ring keeps them alive; see `OwnedRing::drop`.
        unsafe { uring.submitter().register_buf_ring(self.entries.as_ptr() as u64, COUNT, GROUP) }
    }

    /// Takes ownership of a buffer reported as filled.
    pub(super) fn claim(self: &Rc<Self>, id: u16, len: usize) -> FilledBuffer {
        assert!(id < COUNT && len <= BUFFER_LEN as usize, "the kernel fills the buffers it was given");
        assert!(!self.is_filled[usize::from(id)].replace(true), "the kernel fills a buffer once each time it gets it");
        self.free.update(|free| free - 1);
        FilledBuffer { buffers: self.clone(), id, range: 0..len }
    }

    /// Returns a buffer to the kernel.
    fn offer(&self, id: u16) {
        debug_assert!(self.free.get() < COUNT, "a ring of entries that is full has no room for another");
        let tail = self.tail.get().wrapping_add(1);
        // SAFETY: the entries and the memory were allocated for `COUNT` buffers, and both indices are below
        // `COUNT`. The kernel reads entries before the tail only. This entry is not before it: `free` entries are,
        // and `free` is less than `COUNT`. The tail is aligned for its type, and both sides access it atomically.
        unsafe {
            let entry = self.entries.add(usize::from(self.tail.get() % COUNT)).as_mut();
            entry.set_addr(self.memory.add(usize::from(id) * BUFFER_LEN as usize).as_ptr() as u64);
            entry.set_len(BUFFER_LEN);
            entry.set_bid(id);
            // Not `BufRingEntry::tail`: its pointer derives from a shared reference, so writing through it is not
            // allowed.
            let shared = AtomicU16::from_ptr(self.entries.as_ptr().byte_add(TAIL_OFFSET).cast());
            // Release: a kernel that sees the new tail also sees the entry before it.
            shared.store(tail, Ordering::Release);
        }
        self.tail.set(tail);
        self.free.update(|free| free + 1);
    }
}

impl FilledBuffer {
    /// Drops bytes from the front.
    ///
    /// # Panics
    ///
    /// If fewer bytes are left.
    pub(super) fn advance(&mut self, len: usize) {
        assert!(len <= self.range.len(), "no more is dropped than is there");
        self.range.start += len;
    }

    /// Returns `true` if few buffers are left, so the bytes should be copied out.
    pub(super) fn is_scarce(&self) -> bool {
        self.buffers.free.get() < COUNT / 2
    }
}

impl Deref for FilledBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        debug_assert!(self.range.end <= BUFFER_LEN as usize && self.range.start <= self.range.end, "within the buffer");
        // SAFETY: from its report until `drop` returns the buffer, the kernel does not touch it. `claim` checked
        // that the buffer exists and contains the range, and `advance` keeps the range within it. All memory was
        // zeroed once.
        unsafe {
            let start = self.buffers.memory.add(usize::from(self.id) * BUFFER_LEN as usize + self.range.start);
            std::slice::from_raw_parts(start.as_ptr(), self.range.len())
        }
    }
}

impl Drop for FilledBuffer {
    fn drop(&mut self) {
        let was_filled = self.buffers.is_filled[usize::from(self.id)].take();
        debug_assert!(was_filled, "nobody else gives it back");
        self.buffers.offer(self.id);
    }
}

impl Drop for RingBuffers {
    fn drop(&mut self) {
        debug_assert_eq!(self.free.get(), COUNT, "whoever holds a buffer holds all of them");
        // SAFETY: both were allocated with these layouts. No `FilledBuffer` exists, since each holds a reference to
        // this value. No request can use the memory either: `OwnedRing::drop` releases its reference only without
        // requests in flight.
        unsafe {
            alloc::dealloc(self.entries.as_ptr().cast(), ENTRIES_LAYOUT);
            alloc::dealloc(self.memory.as_ptr(), MEMORY_LAYOUT);
        }
    }
}

fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: neither layout has size zero.
    NonNull::new(unsafe { alloc::alloc_zeroed(layout) }).unwrap_or_else(|| alloc::handle_alloc_error(layout))
}

/// The id of the buffer group on its ring.
pub(super) const GROUP: u16 = 0;
/// The number of buffers. Must be a power of two for the kernel.
const COUNT: u16 = 256;
const BUFFER_LEN: u32 = 8 * 1024;
const PAGE_LEN: usize = 4096;
/// The kernel reads the tail from the reserved field of the first entry.
const TAIL_OFFSET: usize = 14;

const ENTRIES_LAYOUT: Layout = layout(COUNT as usize * size_of::<BufRingEntry>());
const MEMORY_LAYOUT: Layout = layout(COUNT as usize * BUFFER_LEN as usize);

const fn layout(len: usize) -> Layout {
    match Layout::from_size_align(len, PAGE_LEN) {
        Ok(layout) => layout,
        Err(_) => panic!("the length is small"),
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    /// A simulated kernel that fills buffers.
    struct Kernel {
        buffers: Rc<RingBuffers>,
        head: u16,
    }

    impl Kernel {
        fn new() -> Self {
            Self { buffers: RingBuffers::new(), head: 0 }
        }

        /// Fills the next buffer, if any.
        fn receive(&mut self, bytes: &[u8]) -> Option<FilledBuffer> {
            // SAFETY: `offer` wrote the entry before the tail, and nothing else uses its buffer.
            let id = unsafe {
                let first = self.buffers.entries.as_ptr();
                if AtomicU16::from_ptr(first.byte_add(TAIL_OFFSET).cast()).load(Ordering::Acquire) == self.head {
                    return None;
                }
                let entry = &*first.add(usize::from(self.head % COUNT));
                assert!(bytes.len() <= entry.len() as usize);
                let buffer = ptr::with_exposed_provenance_mut::<u8>(entry.addr().try_into().unwrap());
                buffer.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                entry.bid()
            };
            self.head = self.head.wrapping_add(1);
            Some(self.buffers.claim(id, bytes.len()))
        }
    }

    #[test]
    fn the_tail_has_the_offset_of_the_kernel_abi() {
        let buffers = RingBuffers::new();
        // SAFETY: `new` wrote the first entry.
        let tail = unsafe { BufRingEntry::tail(buffers.entries.as_ptr()) };
        assert_eq!(tail.addr(), buffers.entries.as_ptr().addr() + TAIL_OFFSET);
        assert_eq!(buffers.tail.get(), COUNT);
    }

    #[test]
    fn received_bytes_stay_until_they_are_dropped() {
        let mut kernel = Kernel::new();
        let mut held: Vec<_> = (0..COUNT).map(|number| kernel.receive(&number.to_be_bytes()).unwrap()).collect();
        assert!(kernel.receive(b"more").is_none(), "no buffer is left");
        for (number, filled) in (0..).zip(&mut held) {
            assert_eq!(**filled, u16::to_be_bytes(number));
            filled.advance(1);
            assert_eq!(filled[0], number.to_be_bytes()[1]);
        }
    }

    #[test]
    fn buffers_may_be_returned_in_any_order() {
        let mut kernel = Kernel::new();
        let mut held = Vec::new();
        // Enough turns for the position in the ring to wrap around.
        for turn in 0..2 * usize::from(COUNT) {
            let byte = turn.to_le_bytes()[0];
            held.push((byte, kernel.receive(&[byte; 3]).unwrap()));
            if turn % 3 > 0 {
                let (byte, filled) = held.swap_remove(turn * 7 % held.len());
                assert_eq!(*filled, [byte; 3]);
            }
        }
        assert!(held.iter().all(|(byte, filled)| **filled == [*byte; 3]));
    }

    #[test]
    fn buffers_are_scarce_when_half_are_taken() {
        let mut kernel = Kernel::new();
        let mut held: Vec<_> = (0..COUNT / 2).map(|_| kernel.receive(b"a").unwrap()).collect();
        assert!(!held[0].is_scarce());
        held.push(kernel.receive(b"a").unwrap());
        assert!(held[0].is_scarce());
        held.pop();
        assert!(!held[0].is_scarce());
    }

    #[test]
    fn received_bytes_outlive_the_ring() {
        let mut kernel = Kernel::new();
        let filled = kernel.receive(b"late").unwrap();
        drop(kernel);
        assert_eq!(*filled, *b"late");
    }
}
