use bytes::Bytes;

/// A destination of encoded bytes.
pub trait Sink {
    /// Writes the next bytes.
    fn put(&mut self, bytes: &[u8]);

    /// Writes bytes. The sink may share them instead of copying.
    #[inline]
    fn put_shared(&mut self, bytes: &Bytes) {
        self.put(bytes);
    }

    /// Returns this sink as a trait object.
    fn any(&mut self) -> &mut dyn Sink;

    /// Calls the first function, or the second one for the shared code over any sink.
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

/// A Rust type for a `bytes` field in encoding.
pub trait Writable {
    /// Returns the bytes as a slice.
    fn as_bytes(&self) -> &[u8];

    /// Writes the bytes to a sink.
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

/// A sink that counts bytes without storing them.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingSink {
    len: usize,
    shared_len: usize,
}

impl CountingSink {
    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if no bytes were written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of bytes worth sharing instead of copying.
    pub(super) fn shared_len(&self) -> usize {
        self.shared_len
    }
}

impl Sink for CountingSink {
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

/// A sink that copies short slices into one buffer and shares large ones.
#[derive(Debug, Default)]
pub(super) struct SharingSink {
    flat: Vec<u8>,
    /// The shared slices, each with the offset in `flat` to insert it at.
    shared: Vec<(usize, Bytes)>,
}

impl SharingSink {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { flat: Vec::with_capacity(capacity), shared: Vec::new() }
    }

    /// Returns all pieces in order. The first piece is never shared.
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

impl Sink for SharingSink {
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

/// Minimum length for sharing. A shorter slice is cheaper to copy than to send as a separate piece.
const SHARED_LEN_MIN: usize = 16 * 1024;
