//! Several messages in one buffer, and streams that move messages in this form.
//!
//! ```text
//!   length u32, message | length u32, message | …
//! ```
//!
//! In the frames of gRPC, a byte of flags precedes each length. It is 0 for all messages here.
//!
//! A sending wire lets messages encode themselves into its write buffer. A receiving wire passes on the content of a
//! whole frame. Neither creates a `Bytes` per message.

use std::{
    mem,
    ops::Range,
    task::{Context, Poll, ready},
};

use bytes::{BufMut, Bytes};

use super::status::Status;

/// The poll result of a stream: the next message, or `None` at the end.
pub(crate) type PollNext<T> = Poll<Option<Result<T, Status>>>;

/// A stream that can move several messages at a time.
pub(crate) trait BatchSource<T>: Send {
    /// Polls for the next message.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> PollNext<T>;

    /// Polls for messages and appends them to `out` [in packed form](self). Stops when none is ready or `out` has
    /// `full` bytes, but accepts at least one message. Returns the first message too large to copy, if there is one.
    /// With any result, even an error or `Pending`, `out` may have grown.
    fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        _out: &mut Vec<u8>,
        _full: usize,
        _prefix: MessagePrefix,
    ) -> PollNext<Option<T>> {
        self.poll_next(cx).map(|next| next.map(|message| message.map(Some)))
    }

    /// Polls for the next message, or for all messages already received.
    fn poll_several(&mut self, cx: &mut Context<'_>) -> PollNext<ReceivedMessages<T>> {
        self.poll_next(cx).map(|next| next.map(|message| message.map(ReceivedMessages::One)))
    }
}

/// A stream of encoded messages received by a wire.
pub(crate) trait ContentSource: Send {
    /// Polls for the next message, or for all messages already received.
    fn poll_contents(&mut self, cx: &mut Context<'_>) -> PollNext<ReceivedMessages<Bytes>>;
}

/// The contents received by a wire as a stream, for readers of single messages and of packed ones.
pub(crate) struct UnpackedContents<C> {
    /// `None` after malformed packed messages.
    contents: Option<C>,
    /// Unread messages of the last packed batch.
    packed: PackedMessages,
}

/// Messages received together: one, or several in packed form.
pub(crate) enum ReceivedMessages<T> {
    One(T),
    Several(PackedMessages),
}

/// The bytes before each packed message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MessagePrefix {
    /// Its length.
    #[default]
    Length,
    /// A byte of flags, and its length.
    FlagsAndLength,
}

impl MessagePrefix {
    /// Returns the number of bytes before the length.
    #[inline]
    fn flags_len(self) -> usize {
        match self {
            Self::Length => 0,
            Self::FlagsAndLength => 1,
        }
    }

    /// Returns the number of whole packed messages, and the bytes of their contents.
    pub(crate) fn measure(self, mut packed: &[u8]) -> (u64, usize) {
        let (mut messages, mut bytes) = (0, 0);
        while let Some((len, rest)) = packed.get(self.flags_len()..).and_then(<[u8]>::split_first_chunk) {
            let len = u32::from_be_bytes(*len) as usize;
            let Some(rest) = rest.get(len..) else { break };
            (messages, bytes, packed) = (messages + 1, bytes + len, rest);
        }
        (messages, bytes)
    }

    /// Returns the maximum length of a message that is encoded after its prefix. Frames of gRPC have a buffer of their
    /// own, other messages that of a connection.
    #[inline]
    pub(crate) fn copied_len_max(self) -> usize {
        match self {
            Self::Length => COPIED_LEN_MAX,
            Self::FlagsAndLength => usize::MAX,
        }
    }

    /// Appends the prefix of a message, which follows.
    #[inline]
    pub(crate) fn open(self, out: &mut Vec<u8>) -> OpenMessage<'_> {
        let start = out.len();
        if self == Self::FlagsAndLength {
            out.push(0);
        }
        // A placeholder. The length is known only after encoding.
        put_len(out, 0);
        let len_at = out.len() - LEN_LEN;
        OpenMessage { out, start, len_at }
    }
}

/// A message being packed. It is removed again unless it is closed, also by a panic.
pub(crate) struct OpenMessage<'a> {
    pub(crate) out: &'a mut Vec<u8>,
    start: usize,
    len_at: usize,
}

impl OpenMessage<'_> {
    /// Ends the message.
    #[inline]
    pub(crate) fn close(mut self) {
        set_len(self.out, self.len_at);
        self.start = self.out.len();
    }
}

impl Drop for OpenMessage<'_> {
    #[inline]
    fn drop(&mut self) {
        self.out.truncate(self.start);
    }
}

/// Several encoded messages in one buffer.
#[derive(Debug, Default)]
pub(crate) struct PackedMessages {
    bytes: Bytes,
    prefix: MessagePrefix,
    /// The number of bytes already read.
    taken: usize,
}

/// Appends a message with its length.
pub(crate) fn put(out: &mut Vec<u8>, message: &[u8]) {
    put_len(out, message.len());
    out.extend_from_slice(message);
}

/// Appends the length of a message.
#[inline]
pub(crate) fn put_len(out: &mut Vec<u8>, len: usize) {
    out.put_u32(len.try_into().expect("messages are shorter than 4 GiB"));
}

/// Overwrites the length at `start` with the length of the message following it.
#[inline]
pub(crate) fn set_len(out: &mut [u8], start: usize) {
    let len = out.len() - start - LEN_LEN;
    (&mut out[start..]).put_u32(len.try_into().expect("messages are shorter than 4 GiB"));
}

/// The size of a length prefix.
pub(crate) const LEN_LEN: usize = 4;
/// Larger messages are sent from their own buffer instead of being copied.
pub(crate) const COPIED_LEN_MAX: usize = 4096;

impl PackedMessages {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self { bytes, prefix: MessagePrefix::Length, taken: 0 }
    }

    /// Creates the messages of frames of gRPC without flags.
    pub(crate) fn of_frames(bytes: Bytes) -> Self {
        Self { bytes, prefix: MessagePrefix::FlagsAndLength, taken: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }

    /// Returns the number of unread messages and their bytes.
    pub(crate) fn measure(&self) -> (u64, usize) {
        self.prefix.measure(&self.bytes[self.taken..])
    }

    /// Returns the next message, if there is one.
    pub(crate) fn next(&mut self) -> Option<Result<Bytes, Status>> {
        Some(self.next_part()?.map(|(bytes, message)| bytes.slice(message)))
    }

    /// Returns the next message as a range of the shared buffer. After a truncated message, the rest of the buffer is
    /// dropped.
    #[inline]
    pub(crate) fn next_part(&mut self) -> Option<Result<(&Bytes, Range<usize>), Status>> {
        if self.is_empty() {
            return None;
        }
        let Some(message) = self.next_range() else {
            *self = Self::default();
            return Some(Err(Status::invalid_argument(
                "a packed message is truncated: its length exceeds the remaining bytes",
            )));
        };
        self.taken = message.end;
        Some(Ok((&self.bytes, message)))
    }

    #[inline]
    fn next_range(&self) -> Option<Range<usize>> {
        let (len, rest) = self.bytes.get(self.taken + self.prefix.flags_len()..)?.split_first_chunk()?;
        let len = usize::try_from(u32::from_be_bytes(*len)).ok()?;
        let start = self.bytes.len() - rest.len();
        (len <= rest.len()).then(|| start..start + len)
    }
}

impl<C> UnpackedContents<C> {
    pub(crate) fn new(contents: C) -> Self {
        Self { contents: Some(contents), packed: PackedMessages::default() }
    }
}

impl<C: ContentSource> BatchSource<Bytes> for UnpackedContents<C> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> PollNext<Bytes> {
        loop {
            match self.packed.next() {
                Some(Err(status)) => {
                    self.contents = None;
                    return Poll::Ready(Some(Err(status)));
                }
                Some(message) => return Poll::Ready(Some(message)),
                // Frees the buffer before waiting: an idle stream holds no old messages.
                None => self.packed = PackedMessages::default(),
            }
            let Some(contents) = &mut self.contents else { return Poll::Ready(None) };
            match ready!(contents.poll_contents(cx)?) {
                Some(ReceivedMessages::One(content)) => return Poll::Ready(Some(Ok(content))),
                Some(ReceivedMessages::Several(packed)) => self.packed = packed,
                None => return Poll::Ready(None),
            }
        }
    }

    fn poll_several(&mut self, cx: &mut Context<'_>) -> PollNext<ReceivedMessages<Bytes>> {
        match (mem::take(&mut self.packed), &mut self.contents) {
            (packed, _) if !packed.is_empty() => Poll::Ready(Some(Ok(ReceivedMessages::Several(packed)))),
            (_, Some(contents)) => contents.poll_contents(cx),
            (_, None) => Poll::Ready(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::status::Code;

    #[test]
    fn messages_round_trip() {
        let mut out = Vec::new();
        for message in [&b"a"[..], b"", b"bc"] {
            put(&mut out, message);
        }
        let mut packed = PackedMessages::new(out.into());
        let mut read = Vec::new();
        while let Some(message) = packed.next() {
            read.push(message.unwrap());
        }
        assert_eq!(read, [&b"a"[..], b"", b"bc"]);
    }

    #[test]
    fn frames_have_a_byte_of_flags_before_each_length() {
        let mut out = Vec::new();
        for message in [&b"a"[..], b"", b"bc"] {
            let open = MessagePrefix::FlagsAndLength.open(&mut out);
            open.out.extend_from_slice(message);
            open.close();
        }
        // A message that is not closed, for example because its encoding panicked, leaves nothing.
        MessagePrefix::FlagsAndLength.open(&mut out).out.push(7);
        assert_eq!(out, b"\0\0\0\0\x01a\0\0\0\0\0\0\0\0\0\x02bc");
        let mut packed = PackedMessages::of_frames(out.into());
        let read: Vec<_> = std::iter::from_fn(|| packed.next()).map(Result::unwrap).collect();
        assert_eq!(read, [&b"a"[..], b"", b"bc"]);
        for cut in [&b"\0"[..], b"\0\0\0\0", b"\0\0\0\0\x02a"] {
            let mut packed = PackedMessages::of_frames(Bytes::from_static(cut));
            assert_eq!(packed.next().unwrap().unwrap_err().code(), Code::InvalidArgument);
            assert!(packed.next().is_none());
        }
    }

    #[test]
    fn a_truncated_message_ends_the_stream() {
        for cut in [&b"\0\0\0"[..], b"\0\0\0\x02a", b"\xff\xff\xff\xffa"] {
            let mut packed = PackedMessages::new(Bytes::from_static(cut));
            assert_eq!(packed.next().unwrap().unwrap_err().code(), Code::InvalidArgument);
            assert!(packed.next().is_none());
        }
    }
}
