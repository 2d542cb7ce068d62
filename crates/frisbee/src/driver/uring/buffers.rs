//! Buffers that the kernel picks for what it receives. A connection holds one only while something received in it waits
//! to be read.
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

/// A ring of buffers, each owned by the kernel or by a [`Filled`].
pub(super) struct Buffers {
    entries: NonNull<BufRingEntry>,
    memory: NonNull<u8>,
    /// The end of the ring, which the kernel reads behind the ring's first entry.
    tail: Cell<u16>,
    free: Cell<u16>,
}

/// What the kernel has filled of a buffer. Gives the buffer back when it goes.
pub(super) struct Filled {
    buffers: Rc<Buffers>,
    id: u16,
    range: Range<usize>,
}

impl Buffers {
    /// Gives buffers to the kernel, as those of a ring. They must live as long as the ring.
    pub(super) fn new(uring: &IoUring) -> io::Result<Rc<Self>> {
        let (entries, memory) = (allocate(ENTRIES_LAYOUT).cast(), allocate(MEMORY_LAYOUT));
        let buffers = Self { entries, memory, tail: Cell::new(0), free: Cell::new(0) };
        // SAFETY: the entries are aligned to pages, and live as long as the ring.
        unsafe { uring.submitter().register_buf_ring(entries.as_ptr() as u64, COUNT, GROUP) }?;
        (0..COUNT).for_each(|id| buffers.offer(id));
        Ok(Rc::new(buffers))
    }

    /// Takes over what the kernel reports as filled.
    pub(super) fn take(self: &Rc<Self>, id: u16, len: usize) -> Filled {
        assert!(id < COUNT && len <= BUFFER_LEN as usize, "the kernel fills the buffers it was given");
        self.free.update(|free| free - 1);
        Filled { buffers: self.clone(), id, range: 0..len }
    }

    fn offer(&self, id: u16) {
        let tail = self.tail.get().wrapping_add(1);
        // SAFETY: entries and memory are ours, the index is within both, and the kernel looks at an entry only when
        // the tail is behind it.
        unsafe {
            let entry = self.entries.add(usize::from(self.tail.get() % COUNT)).as_mut();
            entry.set_addr(self.memory.add(usize::from(id) * BUFFER_LEN as usize).as_ptr() as u64);
            entry.set_len(BUFFER_LEN);
            entry.set_bid(id);
            let shared = BufRingEntry::tail(self.entries.as_ptr()).cast::<AtomicU16>();
            (*shared).store(tail, Ordering::Release);
        }
        self.tail.set(tail);
        self.free.update(|free| free + 1);
    }
}

impl Filled {
    /// Drops so much from the front.
    pub(super) fn advance(&mut self, len: usize) {
        self.range.start += len;
    }

    /// Whether so few buffers are left that it should be copied.
    pub(super) fn is_scarce(&self) -> bool {
        self.buffers.free.get() < COUNT / 2
    }
}

impl Deref for Filled {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the kernel leaves a buffer alone from reporting it until it is given back. The range is within it.
        unsafe {
            let start = self.buffers.memory.add(usize::from(self.id) * BUFFER_LEN as usize + self.range.start);
            std::slice::from_raw_parts(start.as_ptr(), self.range.len())
        }
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        self.buffers.offer(self.id);
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: the kernel has no request left that could use them, and both were allocated with these layouts.
        unsafe {
            alloc::dealloc(self.entries.as_ptr().cast(), ENTRIES_LAYOUT);
            alloc::dealloc(self.memory.as_ptr(), MEMORY_LAYOUT);
        }
    }
}

fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: neither layout is empty.
    NonNull::new(unsafe { alloc::alloc_zeroed(layout) }).unwrap_or_else(|| alloc::handle_alloc_error(layout))
}

/// The name of the buffers in their ring.
pub(super) const GROUP: u16 = 0;
/// A power of two.
const COUNT: u16 = 256;
const BUFFER_LEN: u32 = 8 * 1024;
const PAGE_LEN: usize = 4096;

const ENTRIES_LAYOUT: Layout = layout(COUNT as usize * size_of::<BufRingEntry>());
const MEMORY_LAYOUT: Layout = layout(COUNT as usize * BUFFER_LEN as usize);

const fn layout(len: usize) -> Layout {
    match Layout::from_size_align(len, PAGE_LEN) {
        Ok(layout) => layout,
        Err(_) => panic!("the length is small"),
    }
}
