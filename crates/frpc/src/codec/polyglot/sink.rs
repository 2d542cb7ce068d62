use bytes::Bytes;

/// Takes encoded bytes.
pub trait Sink {
    /// Takes the next bytes.
    fn put(&mut self, bytes: &[u8]);

    /// Takes bytes that can be shared instead of copied.
    #[inline]
    fn put_shared(&mut self, bytes: &Bytes) {
        self.put(bytes);
    }

    /// Returns itself as any sink.
    fn any(&mut self) -> &mut dyn Sink;

    /// Calls the first function, or the second one if this is any sink, for which code exists once.
    #[inline]
    fn choose<T>(out: &mut T, own: impl FnOnce(&mut T), _: impl FnOnce(&mut T))
    where
        Self: Sized,
    {
        own(out);
    }
}

impl Sink for &mut dyn Sink {
    fn put(&mut self, bytes: &[u8]) {
        (**self).put(bytes);
    }

    fn put_shared(&mut self, bytes: &Bytes) {
        (**self).put_shared(bytes);
    }

    fn any(&mut self) -> &mut dyn Sink {
        *self
    }

    #[inline]
    fn choose<T>(out: &mut T, _: impl FnOnce(&mut T), any: impl FnOnce(&mut T)) {
        any(out);
    }
}

/// A type that a `bytes` field can have when it is written.
pub trait Writable {
    /// Returns the bytes.
    fn as_bytes(&self) -> &[u8];

    /// Gives the bytes to a sink.
    #[inline]
    fn put_into(&self, sink: &mut impl Sink) {
        sink.put(self.as_bytes());
    }
}

impl Writable for [u8] {
    #[inline]
    fn as_bytes(&self) -> &[u8] {
        self
    }
}

impl Writable for Vec<u8> {
    #[inline]
    fn as_bytes(&self) -> &[u8] {
        self
    }
}

impl Writable for Bytes {
    #[inline]
    fn as_bytes(&self) -> &[u8] {
        self
    }

    #[inline]
    fn put_into(&self, sink: &mut impl Sink) {
        sink.put_shared(self);
    }
}

impl Sink for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn any(&mut self) -> &mut dyn Sink {
        self
    }
}

/// Counts bytes instead of keeping them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counter {
    len: usize,
    shared_len: usize,
}

impl Counter {
    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there were no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of bytes that are better shared than copied.
    pub(super) fn shared_len(&self) -> usize {
        self.shared_len
    }
}

impl Sink for Counter {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
    }

    #[inline]
    fn put_shared(&mut self, bytes: &Bytes) {
        self.len += bytes.len();
        if bytes.len() >= SHARED_LEN_MIN {
            self.shared_len += bytes.len();
        }
    }

    fn any(&mut self) -> &mut dyn Sink {
        self
    }
}

/// Copies what is small and keeps what is large apart.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    flat: Vec<u8>,
    /// The large ones, each with its place between the flat bytes.
    shared: Vec<(usize, Bytes)>,
}

impl Cutter {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { flat: Vec::with_capacity(capacity), shared: Vec::new() }
    }

    /// Returns all pieces in their order. The first is never a shared one.
    pub(super) fn into_pieces(self) -> impl Iterator<Item = Bytes> {
        let flat = Bytes::from(self.flat);
        let mut start = 0;
        let mut pieces = Vec::with_capacity(2 * self.shared.len() + 1);
        for (end, shared) in self.shared {
            pieces.extend([flat.slice(start..end), shared]);
            start = end;
        }
        pieces.push(flat.slice(start..));
        pieces.into_iter().filter(|piece| !piece.is_empty())
    }
}

impl Sink for Cutter {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.flat.extend_from_slice(bytes);
    }

    fn put_shared(&mut self, bytes: &Bytes) {
        if bytes.len() >= SHARED_LEN_MIN {
            self.shared.push((self.flat.len(), bytes.clone()));
        } else {
            self.put(bytes);
        }
    }

    fn any(&mut self) -> &mut dyn Sink {
        self
    }
}

/// From this length on, a piece of its own costs less than a copy.
const SHARED_LEN_MIN: usize = 16 * 1024;
