//! Frames encoded once and shared by many connections.

use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};

use super::{
    header::{Header, HeaderFormat},
    transmit::{COPY_LEN_MAX, FLAT_LEN_MAX},
};
use crate::{Content, Operation, Packet, PacketName};

/// A buffer that collects packets for many connections, and encodes each of them once.
///
/// Send them with
/// [`Connection::try_send_frames`](https://docs.rs/frisbee-net/latest/frisbee/struct.Connection.html#method.try_send_frames).
///
/// ```
/// use frisbee::{FrameBuffer, Operation, PacketName};
///
/// const TICK: Operation = Operation::new(20).unwrap();
///
/// let mut buffer = FrameBuffer::new();
/// for id in 0..3 {
///     buffer.push(PacketName { id, operation: TICK }, &[b"tick ", b"tock"]);
/// }
/// let mut frames = buffer.take();
/// assert_eq!((frames.count(), buffer.count()), (3, 0));
///
/// let first = frames.split_to(1);
/// assert_eq!((first.count(), frames.count()), (1, 2));
/// assert!(frames.iter().all(|packet| packet.content == "tick tock"));
/// ```
#[derive(Debug)]
pub struct FrameBuffer {
    format: HeaderFormat,
    parts: Vec<FramePart>,
    /// Frames being collected, after `parts`.
    tail: BytesMut,
    tail_count: usize,
    totals: FrameTotals,
}

/// Encoded packets, ready for any number of connections. Clones share the bytes.
///
/// The peer receives them like packets sent one by one. Small packets share buffers of up to 64 KiB. A buffer
/// stays allocated while any of its packets is.
#[derive(Clone, Debug)]
pub struct Frames(Arc<EncodedFrames>);

#[derive(Debug)]
struct EncodedFrames {
    /// In the longer header format. The shorter one omits the start of each header.
    parts: Vec<FramePart>,
    totals: FrameTotals,
    /// In the shorter header format, encoded on first use.
    short: OnceLock<Vec<FramePart>>,
}

/// Facts about several frames, available without decoding.
#[derive(Clone, Copy, Debug, Default)]
struct FrameTotals {
    count: usize,
    len: usize,
    content_len_max: usize,
    has_extended: bool,
}

/// A part of encoded frames. The rest of a content may follow its flat part as a separate part.
#[derive(Clone, Debug)]
pub(super) enum FramePart {
    /// This number of frames. The content of the last one may continue in the next part.
    Flat(Bytes, usize),
    Content(Bytes),
}

impl FrameBuffer {
    /// Creates an empty buffer.
    pub fn new() -> Self {
        Self::in_format(HeaderFormat::Magic10)
    }

    fn in_format(format: HeaderFormat) -> Self {
        Self { format, parts: Vec::new(), tail: BytesMut::new(), tail_count: 0, totals: FrameTotals::default() }
    }

    /// Adds a packet with these byte slices as its content, one after the other. Copies them.
    ///
    /// # Panics
    ///
    /// If the content has 4 GiB or more, the limit of the wire format.
    pub fn push(&mut self, name: PacketName, content: &[&[u8]]) {
        self.begin(header(name, content.iter().map(|bytes| bytes.len()).sum()));
        content.iter().for_each(|bytes| self.tail.extend_from_slice(bytes));
        self.end();
    }

    /// Adds a packet with `head` and `content` as its content. Copies `head`, and a `content` of less than 4 KiB.
    ///
    /// # Panics
    ///
    /// If the content has 4 GiB or more, the limit of the wire format.
    pub fn push_content(&mut self, name: PacketName, head: &[u8], content: &Bytes) {
        if content.len() < COPY_LEN_MAX {
            return self.push(name, &[head, content]);
        }
        self.begin(header(name, head.len() + content.len()));
        self.tail.extend_from_slice(head);
        self.end_with(content);
    }

    /// Returns the number of packets.
    pub fn count(&self) -> usize {
        self.totals.count
    }

    /// Returns the number of bytes, with headers of ten bytes.
    pub fn len(&self) -> usize {
        self.totals.len
    }

    /// Returns `true` if there are no packets.
    pub fn is_empty(&self) -> bool {
        self.totals.count == 0
    }

    /// Takes out all packets. The buffer is empty afterwards and can be reused.
    pub fn take(&mut self) -> Frames {
        if !self.tail.is_empty() {
            self.close_tail();
        }
        Frames::new(std::mem::take(&mut self.parts), std::mem::take(&mut self.totals))
    }

    fn begin(&mut self, header: Header) {
        header.encode(self.format, &mut self.tail);
        self.tail_count += 1;
        self.totals.add(header);
    }

    fn end(&mut self) {
        if self.tail.len() >= FLAT_LEN_MAX {
            self.close_tail();
        }
    }

    fn end_with(&mut self, content: &Bytes) {
        self.close_tail();
        self.parts.push(FramePart::Content(content.clone()));
    }

    fn close_tail(&mut self) {
        let tail = self.tail.split().freeze();
        self.parts.push(FramePart::Flat(tail, std::mem::take(&mut self.tail_count)));
    }
}

impl Default for FrameBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl Frames {
    fn new(parts: Vec<FramePart>, totals: FrameTotals) -> Self {
        Self(Arc::new(EncodedFrames { parts, totals, short: OnceLock::new() }))
    }

    /// Returns the number of packets.
    pub fn count(&self) -> usize {
        self.0.totals.count
    }

    /// Returns the number of bytes, with headers of ten bytes.
    pub fn len(&self) -> usize {
        self.0.totals.len
    }

    /// Returns `true` if there are no packets.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Returns an iterator over the packets. Copies nothing.
    pub fn iter(&self) -> impl Iterator<Item = Packet> + '_ {
        self.each().filter_map(|(header, content)| {
            let operation = Operation::from_wire(header.operation)?;
            Some(Packet { id: header.id, operation, content })
        })
    }

    /// Removes and returns the first `count` packets, or all if there are fewer. Copies nothing.
    ///
    /// Takes time proportional to the number of packets.
    pub fn split_to(&mut self, count: usize) -> Self {
        let (mut first, mut rest) = (FrameTotals::default(), FrameTotals::default());
        let mut walk = self.walk();
        walk.by_ref().take(count).for_each(|found| first.add(found.header));
        let (index, offset) = (walk.index, walk.offset);
        walk.for_each(|found| rest.add(found.header));

        let mut parts = self.0.parts[..index].to_vec();
        let mut behind = Vec::new();
        if let Some(FramePart::Flat(bytes, whole)) = self.0.parts.get(index) {
            let before: usize = parts.iter().map(FramePart::count).sum();
            let here = first.count - before;
            if here > 0 {
                parts.push(FramePart::Flat(bytes.slice(..offset), here));
            }
            behind.push(FramePart::Flat(bytes.slice(offset..), whole - here));
            behind.extend_from_slice(&self.0.parts[index + 1..]);
        }
        *self = Self::new(behind, rest);
        Self::new(parts, first)
    }

    /// Returns the length of the largest content.
    pub(crate) fn content_len_max(&self) -> usize {
        self.0.totals.content_len_max
    }

    /// Returns `true` if any packet needs an extended peer.
    pub(super) fn has_extended(&self) -> bool {
        self.0.totals.has_extended
    }

    /// Returns the frames in this header format.
    pub(super) fn parts(&self, format: HeaderFormat) -> &[FramePart] {
        match format {
            HeaderFormat::Magic10 => &self.0.parts,
            format => self.0.short.get_or_init(|| self.encode(format)),
        }
    }

    /// Returns an iterator over the frames.
    pub(super) fn each(&self) -> impl Iterator<Item = (Header, Content)> + '_ {
        self.walk().map(|found| (found.header, found.into_content()))
    }

    #[cold]
    fn encode(&self, format: HeaderFormat) -> Vec<FramePart> {
        let mut buffer = FrameBuffer::in_format(format);
        for found in self.walk() {
            buffer.begin(found.header);
            buffer.tail.extend_from_slice(&found.flat[found.start..found.end]);
            match found.content {
                Some(content) => buffer.end_with(content),
                None => buffer.end(),
            }
        }
        if !buffer.tail.is_empty() {
            buffer.close_tail();
        }
        buffer.parts
    }

    fn walk(&self) -> FrameLocator<'_> {
        FrameLocator { parts: &self.0.parts, index: 0, offset: 0 }
    }
}

fn header(name: PacketName, len: usize) -> Header {
    let len = u32::try_from(len).expect("a packet carries less than 4 GiB");
    Header { id: name.id, operation: name.operation.number(), len }
}

impl FrameTotals {
    fn add(&mut self, header: Header) {
        let content_len = header.len as usize;
        self.count += 1;
        self.len += HeaderFormat::Magic10.header_len() + content_len;
        self.content_len_max = self.content_len_max.max(content_len);
        self.has_extended |= header.operation == Operation::EXTENDED.number();
    }
}

impl FramePart {
    fn count(&self) -> usize {
        match self {
            Self::Flat(_, count) => *count,
            Self::Content(_) => 0,
        }
    }
}

/// An iterator that locates each frame.
struct FrameLocator<'a> {
    parts: &'a [FramePart],
    /// The part with the start of the next frame, and its offset there.
    index: usize,
    offset: usize,
}

/// A located frame: its bytes in a flat part, and the content after that part, if any.
struct LocatedFrame<'a> {
    header: Header,
    flat: &'a Bytes,
    start: usize,
    end: usize,
    content: Option<&'a Bytes>,
}

impl<'a> Iterator for FrameLocator<'a> {
    type Item = LocatedFrame<'a>;

    fn next(&mut self) -> Option<LocatedFrame<'a>> {
        let Some(FramePart::Flat(flat, _)) = self.parts.get(self.index) else { return None };
        let format = HeaderFormat::Magic10;
        let header = Header::decode(format, &flat[self.offset..]).ok()??;
        let start = self.offset + format.header_len();
        let end = (start + header.len as usize).min(flat.len());
        let content = match self.parts.get(self.index + 1) {
            Some(FramePart::Content(content)) if end == flat.len() => Some(content),
            _ => None,
        };
        self.offset = end;
        if end == flat.len() {
            self.offset = 0;
            self.index += 1 + usize::from(content.is_some());
        }
        Some(LocatedFrame { header, flat, start, end, content })
    }
}

impl LocatedFrame<'_> {
    fn into_content(self) -> Content {
        let head = self.flat.slice(self.start..self.end);
        match self.content {
            None => head.into(),
            Some(content) if head.is_empty() => content.clone().into(),
            Some(content) => vec![head, content.clone()].into(),
        }
    }
}
