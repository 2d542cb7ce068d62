//! Packet contents in one or several pieces.

use std::{fmt, ops::Deref, slice, sync::Arc, sync::OnceLock};

use bytes::{Bytes, BytesMut};

/// The bytes of one packet, or of one piece of data on a stream.
///
/// A content dereferences to [`Bytes`], and so to `[u8]`. Slice it, pass it to a parser as `&packet.content`, or
/// convert it with [`into_bytes`](Self::into_bytes). All types with a conversion to `Bytes` convert to a content.
///
/// A content for sending may consist of several pieces. Large existing buffers are then sent without a copy into a
/// common one. Received contents always have one piece. Reading a content of several pieces as `Bytes` copies them
/// together, once.
///
/// ```
/// use bytes::Bytes;
/// use frisbee::Content;
///
/// let content = Content::from("hello, world");
/// assert_eq!(content, "hello, world");
/// assert!(content.starts_with(b"hello"));
///
/// let pieces = vec![Bytes::from("hello, "), Bytes::from("world")];
/// assert_eq!(Content::from(pieces), content);
/// ```
#[derive(Clone)]
pub struct Content(ContentRepr);

#[derive(Clone)]
enum ContentRepr {
    One(Bytes),
    Several(Arc<ContentPieces>),
}

#[derive(Debug)]
struct ContentPieces {
    pieces: Vec<Bytes>,
    len: usize,
    /// The pieces joined into one, filled on first use.
    joined: OnceLock<Bytes>,
}

impl Content {
    /// Returns the number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            ContentRepr::One(bytes) => bytes.len(),
            ContentRepr::Several(several) => several.len,
        }
    }

    /// Returns `true` if there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the pieces, at least one, without copying.
    #[inline]
    pub fn pieces(&self) -> &[Bytes] {
        match &self.0 {
            ContentRepr::One(bytes) => slice::from_ref(bytes),
            ContentRepr::Several(several) => &several.pieces,
        }
    }

    /// Returns all bytes in one piece. Copies only a content of several pieces.
    #[inline]
    pub fn into_bytes(self) -> Bytes {
        match self.0 {
            ContentRepr::One(bytes) => bytes,
            ContentRepr::Several(several) => several.into_joined(),
        }
    }

    /// Returns the bytes of a single piece, or all pieces as an error.
    #[inline]
    pub(crate) fn into_one(self) -> Result<Bytes, Vec<Bytes>> {
        match self.0 {
            ContentRepr::One(bytes) => Ok(bytes),
            ContentRepr::Several(several) => {
                Err(Arc::try_unwrap(several).map_or_else(|shared| shared.pieces.clone(), |several| several.pieces))
            }
        }
    }
}

impl ContentPieces {
    fn joined(&self) -> &Bytes {
        self.joined.get_or_init(|| self.pieces.concat().into())
    }

    #[cold]
    fn into_joined(self: Arc<Self>) -> Bytes {
        self.joined().clone()
    }
}

impl Deref for Content {
    type Target = Bytes;

    #[inline]
    fn deref(&self) -> &Bytes {
        match &self.0 {
            ContentRepr::One(bytes) => bytes,
            ContentRepr::Several(several) => several.joined(),
        }
    }
}

impl AsRef<[u8]> for Content {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Default for Content {
    fn default() -> Self {
        Bytes::new().into()
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Content {
    fn eq(&self, other: &T) -> bool {
        ***self == *other.as_ref()
    }
}

impl Eq for Content {}

impl From<Content> for Bytes {
    fn from(content: Content) -> Self {
        content.into_bytes()
    }
}

impl From<Bytes> for Content {
    #[inline]
    fn from(bytes: Bytes) -> Self {
        Self(ContentRepr::One(bytes))
    }
}

/// Creates a content of these pieces, in order.
impl From<Vec<Bytes>> for Content {
    fn from(mut pieces: Vec<Bytes>) -> Self {
        if pieces.len() <= 1 {
            return pieces.pop().unwrap_or_default().into();
        }
        let len = pieces.iter().map(Bytes::len).sum();
        Self(ContentRepr::Several(Arc::new(ContentPieces { pieces, len, joined: OnceLock::new() })))
    }
}

macro_rules! from_one_piece {
    ($($type:ty)*) => {$(
        impl From<$type> for Content {
            fn from(bytes: $type) -> Self {
                Bytes::from(bytes).into()
            }
        }
    )*};
}

from_one_piece!(BytesMut Vec<u8> Box<[u8]> String &'static [u8] &'static str);

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces() -> Vec<Bytes> {
        ["one", "", "two"].map(Bytes::from).into()
    }

    #[test]
    fn content_is_as_small_as_bytes() {
        assert_eq!(size_of::<Content>(), size_of::<Bytes>());
    }

    #[test]
    fn bytes_round_trip_without_a_copy() {
        let bytes = Bytes::from(vec![7; 100]);
        let content = Content::from(vec![bytes.clone()]);
        assert_eq!(content.as_ptr(), bytes.as_ptr());
        assert_eq!(content.into_bytes().as_ptr(), bytes.as_ptr());
    }

    #[test]
    fn several_pieces_read_as_one_content() {
        let content = Content::from(pieces());
        assert_eq!((content.len(), content.is_empty()), (6, false));
        assert_eq!(content, "onetwo");
        assert_eq!(content[2..4], *b"et");
        assert_eq!(format!("{content:?}"), r#"b"onetwo""#);
        assert_eq!(content.pieces(), pieces());
        assert_eq!(content.clone().into_one(), Err(pieces()), "another holds it");
        assert_eq!(content.clone().into_bytes(), "onetwo");
        assert_eq!(content.into_one(), Err(pieces()));
    }

    #[test]
    fn equality_ignores_how_contents_are_split() {
        assert_eq!(Content::from(pieces()), Content::from("onetwo"));
        assert_ne!(Content::from(pieces()), Content::from("onetwothree"));
        assert_eq!(Content::from(Vec::<Bytes>::new()), Content::default());
        assert_eq!(Content::default().pieces(), [Bytes::new()]);
    }
}
