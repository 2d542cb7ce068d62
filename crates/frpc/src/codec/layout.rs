//! The memory that messages of protocol buffers take, known before they are read.
//!
//! prost allocates while it reads, and an element of a list may be two bytes of input and hundreds of bytes in memory. So a
//! message whose type could take more than its budget is walked through first: the walk adds up what the allocations would be, by
//! tables that frpc-build generates, and allocates nothing that grows with the input.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::polyglot::{ALLOCATION_LEN, hash_table_len, tree_len};

/// The number of bytes that a message may take in memory when it is read, in any format.
///
/// The default is 128 MiB, or 32 times the encoded length and 1 MiB if that is more: a message at the default length limit of 4 MiB
/// may take 32 times its length. That is twice what honest messages were found to take that are mostly structure: maps and lists of
/// short texts take 7 to 18 times their length, texts and bytes their length. Only long lists of messages whose fields are nearly
/// all absent take more, a hundred times and beyond, and are refused once they take the whole budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryBudget {
    /// In KiB, so that it fits next to the small fields of a call. 0 is the default.
    kib: u32,
}

impl MemoryBudget {
    /// Returns a budget of this many bytes, rounded up to KiB.
    pub fn new(len: usize) -> Self {
        let kib = u32::try_from(len.div_ceil(1024)).unwrap_or(u32::MAX);
        Self { kib: kib.max(1) }
    }

    /// Returns how many bytes a message of this encoded length may take in memory.
    pub fn for_len(self, encoded_len: usize) -> usize {
        match self.kib {
            0 => relative(encoded_len).max(DEFAULT_LEN),
            kib => usize::try_from(u64::from(kib) << 10).unwrap_or(usize::MAX),
        }
    }

    /// Returns the lower one of this budget, if it was set, and the bound that a format has by its own design.
    #[inline]
    pub(super) fn within(self, format_max: usize, encoded_len: usize) -> usize {
        if self.kib == 0 && format_max <= DEFAULT_LEN { format_max } else { self.for_len(encoded_len).min(format_max) }
    }
}

/// The fields of a message that make it take more memory than its encoded length. Generated code has one for each message.
///
/// ```
/// use frpc::codec::{FieldLayout, Formats, Kind, Layout, Message};
/// # use frpc::{codec::{DecodeError, Reader, Sink, Writer}, prost};
///
/// #[derive(Clone, PartialEq, prost::Message)]
/// struct Points {
///     #[prost(double, repeated, tag = "1")]
///     x: Vec<f64>,
///     #[prost(message, repeated, tag = "2")]
///     parts: Vec<Points>,
/// }
///
/// impl Message for Points {
///     const NAME: &'static str = "Points";
///     const FORMATS: Option<&'static Formats<Self>> = Some(&Formats::prost().with_layout(|| {
///         static LAYOUT: Layout =
///             Layout::new(&[FieldLayout::fixed_list(1, Kind::F64), FieldLayout::message_list::<Points>(2)]);
///         &LAYOUT
///     }));
/// #   fn encode_fields<S: Sink>(&self, out: &mut Writer<S>) { let _ = out; }
/// #   fn decode_fields(&mut self, input: &mut Reader<'_>) -> Result<(), DecodeError> { let _ = input; Ok(()) }
///     // The rest as ever.
/// }
/// ```
#[derive(Debug)]
pub struct Layout {
    /// Sorted by number.
    fields: &'static [FieldLayout],
    /// The most that a byte of input can take in memory, fields of fields included. 0 until the first message is read.
    worst: AtomicUsize,
}

/// A field that makes a message take more memory than its encoded length: a list, a map or a message.
#[derive(Clone, Copy, Debug)]
pub struct FieldLayout {
    pub(super) number: u32,
    /// The size of a value.
    pub(super) value_len: usize,
    pub(super) held: Held,
    pub(super) shape: Shape,
}

/// A function that returns the layout of a message, or `None` if nobody declared it.
pub(super) type FindLayout = fn() -> Option<&'static Layout>;

/// The place of the values of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// The message itself, or a box.
    Once,
    List,
    /// A hash table or a tree.
    Map,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// A message, once or in a list.
    Message(FindLayout),
    /// A list of texts or bytes.
    Texts,
    /// A list of varints, which may be packed.
    Varints,
    /// A list of numbers of this length, which may be packed.
    Fixed(usize),
    /// A map whose values are no messages.
    Map,
    /// A map of messages.
    MessageMap(FindLayout),
}

impl Layout {
    /// Makes the layout of a message with these fields, which are sorted by number.
    pub const fn new(fields: &'static [FieldLayout]) -> Self {
        Self { fields, worst: AtomicUsize::new(0) }
    }

    /// Returns the layout of messages without lists, maps and messages in them.
    pub fn flat() -> &'static Self {
        static FLAT: Layout = Layout::new(&[]);
        &FLAT
    }

    /// Returns the most that a byte of input can take in memory.
    fn worst(&'static self) -> usize {
        match self.worst.load(Ordering::Relaxed) {
            0 => self.find_worst(),
            worst => worst,
        }
    }

    #[cold]
    fn find_worst(&'static self) -> usize {
        let mut known: Vec<&'static Self> = vec![self];
        let mut worst = 0;
        let mut at = 0;
        while let Some(layout) = known.get(at).copied() {
            for field in layout.fields {
                worst = worst.max(field.worst());
                if let Shape::Message(find) | Shape::MessageMap(find) = field.shape
                    && let Some(inner) = find()
                    && !known.iter().any(|other| std::ptr::eq(*other, inner))
                {
                    known.push(inner);
                }
            }
            at += 1;
        }
        let worst = worst.saturating_add(TEXT_LEN).max(OPAQUE_FACTOR);
        self.worst.store(worst, Ordering::Relaxed);
        worst
    }

    fn field(&self, number: u32) -> Option<(usize, &'static FieldLayout)> {
        let index = self.fields.binary_search_by_key(&number, |field| field.number).ok()?;
        Some((index, &self.fields[index]))
    }
}

impl FieldLayout {
    /// Returns what this many values take, without what they refer to.
    fn memory_len(&self, count: usize) -> usize {
        match self.held {
            _ if count == 0 => 0,
            Held::Once => count.saturating_mul(self.value_len.saturating_add(ALLOCATION_LEN)),
            Held::List => {
                let room_min = match self.value_len {
                    1 => 8,
                    2..=1024 => 4,
                    _ => 1,
                };
                let room = count.max(room_min).checked_next_power_of_two().unwrap_or(usize::MAX);
                room.saturating_mul(self.value_len).saturating_add(ALLOCATION_LEN)
            }
            Held::Map => hash_table_len(count, self.value_len).max(tree_len(count, self.value_len)),
        }
    }

    /// Returns the most that a byte of this field takes, what it refers to not included. A value has at least two bytes that belong
    /// to no other: its key, and its length or itself. One that is packed shares the key, but is no larger than eight bytes; where a
    /// list is longer, its room is at most twice what it needs.
    fn worst(&self) -> usize {
        self.memory_len(1).max(self.value_len.saturating_mul(2)).div_ceil(2)
    }
}

/// Returns how many bytes a message of protocol buffers takes in memory, or `None` if that is more than `limit`. Looks at the bytes
/// only if its type could make it take more than `uncounted_max`, and returns 0 otherwise.
#[inline]
pub(super) fn checked_len(
    layout: Option<&'static Layout>,
    bytes: &[u8],
    limit: usize,
    uncounted_max: usize,
) -> Option<usize> {
    let len = match layout {
        Some(layout) if bytes.len().saturating_mul(layout.worst()) <= uncounted_max.min(limit) => 0,
        Some(layout) => memory_len(layout, bytes, limit),
        None => opaque_len(bytes.len()),
    };
    (len <= limit).then_some(len)
}

/// Returns how many bytes a message takes in memory besides its own struct, or a number above `limit` as soon as it is more. While
/// a list or a map moves to a larger place, there is half as much on top of that.
///
/// Reads what prost reads, and is never stricter: where bytes are malformed, prost ends no later than this does. It takes one
/// step for each field and no stack.
pub(super) fn memory_len(layout: &'static Layout, bytes: &[u8], limit: usize) -> usize {
    let mut walk = Walk { bytes, at: 0, sum: 0, counts: Vec::new(), is_merged: false };
    let mut frames = vec![walk.frame(bytes.len(), layout)];
    while let Some(frame) = frames.last() {
        if walk.at >= frame.end {
            // A value that reaches over the end of its message is an error of prost's as well.
            if walk.at > frame.end {
                break;
            }
            walk.counts.truncate(frame.counts_at);
            frames.pop();
            continue;
        }
        match walk.field(frame) {
            Some(Some(inner)) if frames.len() < DEPTH_MAX => frames.push(inner),
            // prost goes no deeper, and reads nothing after that.
            Some(Some(_)) | None => break,
            Some(None) => {}
        }
        if walk.memory_len() > limit {
            break;
        }
    }
    walk.memory_len()
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    sum: usize,
    /// The number of values of each field of the messages around, outermost first.
    counts: Vec<usize>,
    /// A message that occurs once has occurred twice, and its lists go on where they ended. Then each may have twice the room.
    is_merged: bool,
}

/// A message, or an entry of a map, within which the walk is.
struct Frame {
    end: usize,
    /// Where its counts begin.
    counts_at: usize,
    inside: Inside,
}

#[derive(Clone, Copy)]
enum Inside {
    Message(&'static Layout),
    /// An entry of a map. Values that are messages have a layout.
    Entry(Option<FindLayout>),
}

impl Walk<'_> {
    fn memory_len(&self) -> usize {
        if self.is_merged { self.sum.saturating_mul(2) } else { self.sum }
    }

    fn frame(&mut self, end: usize, layout: &'static Layout) -> Frame {
        let counts_at = self.counts.len();
        self.counts.resize(counts_at + layout.fields.len(), 0);
        Frame { end, counts_at, inside: Inside::Message(layout) }
    }

    fn entry(&self, end: usize, value: Option<FindLayout>) -> Frame {
        Frame { end, counts_at: self.counts.len(), inside: Inside::Entry(value) }
    }

    /// Steps over a field, or to the beginning of the message in it. `None` where the bytes are no message.
    fn field(&mut self, frame: &Frame) -> Option<Option<Frame>> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).ok()?;
        match key & 7 {
            VARINT => {
                self.varint()?;
            }
            FIXED64 => self.skip(8)?,
            FIXED32 => self.skip(4)?,
            GROUP_START | GROUP_END => return Some(None),
            LEN => {
                let len = usize::try_from(self.varint()?).ok()?;
                if len > self.bytes.len() - self.at {
                    return None;
                }
                return Some(self.delimited(frame, number, len));
            }
            _ => return None,
        }
        // One value of a list that is not packed. Anything else takes nothing.
        if let Inside::Message(layout) = frame.inside
            && let Some((index, field)) = layout.field(number)
            && let Shape::Varints | Shape::Fixed(_) = field.shape
        {
            self.charge(frame, index, field, 1);
        }
        Some(None)
    }

    fn delimited(&mut self, frame: &Frame, number: u32, len: usize) -> Option<Frame> {
        let end = self.at + len;
        let layout = match frame.inside {
            Inside::Message(layout) => layout,
            Inside::Entry(Some(find)) if number == VALUE_OF_ENTRY => return self.message(find, end),
            Inside::Entry(_) => return self.text(end),
        };
        let Some((index, field)) = layout.field(number) else { return self.text(end) };
        let count = match field.shape {
            Shape::Varints => {
                let packed = &self.bytes[self.at..end];
                let is_cut = packed.last().is_some_and(|last| *last >= 0x80);
                packed.iter().filter(|byte| **byte < 0x80).count() + usize::from(is_cut)
            }
            Shape::Fixed(each) => len.div_ceil(each),
            _ => 1,
        };
        if count > 0 {
            self.charge(frame, index, field, count);
        }
        match field.shape {
            Shape::Message(find) => self.message(find, end),
            Shape::Texts => self.text(end),
            Shape::Map => Some(self.entry(end, None)),
            Shape::MessageMap(find) => Some(self.entry(end, Some(find))),
            Shape::Varints | Shape::Fixed(_) => {
                self.at = end;
                None
            }
        }
    }

    fn message(&mut self, find: FindLayout, end: usize) -> Option<Frame> {
        match find() {
            Some(layout) => Some(self.frame(end, layout)),
            None => {
                self.sum = self.sum.saturating_add(opaque_len(end - self.at));
                self.at = end;
                None
            }
        }
    }

    /// Steps over a text, bytes, or a field that nobody knows.
    fn text(&mut self, end: usize) -> Option<Frame> {
        let len = end - self.at;
        if len > 0 {
            self.sum = self.sum.saturating_add(len.max(TEXT_LEN_MIN) + ALLOCATION_LEN);
        }
        self.at = end;
        None
    }

    fn charge(&mut self, frame: &Frame, index: usize, field: &FieldLayout, count: usize) {
        let known = &mut self.counts[frame.counts_at + index];
        let before = *known;
        *known += count;
        self.is_merged |= field.held == Held::Once && before > 0;
        let more = field.memory_len(*known).saturating_sub(field.memory_len(before));
        self.sum = self.sum.saturating_add(more);
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for (place, byte) in self.bytes.get(self.at..)?.iter().take(VARINT_LEN_MAX).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * place);
            if *byte < 0x80 {
                self.at += place + 1;
                return Some(value);
            }
        }
        None
    }

    fn skip(&mut self, len: usize) -> Option<()> {
        self.at = self.at.checked_add(len).filter(|at| *at <= self.bytes.len())?;
        Some(())
    }
}

fn relative(encoded_len: usize) -> usize {
    encoded_len.saturating_mul(32).saturating_add(1 << 20)
}

/// Returns what a message takes of whose type nothing is declared.
fn opaque_len(encoded_len: usize) -> usize {
    encoded_len.saturating_mul(OPAQUE_FACTOR)
}

/// The default budget of messages up to the default length limit.
const DEFAULT_LEN: usize = 128 << 20;
/// The bytes that are counted for each byte of a message of whose type nothing is declared.
const OPAQUE_FACTOR: usize = 16;
/// The least that the buffer of a text takes.
const TEXT_LEN_MIN: usize = 8;
/// The memory of a text of one byte.
const TEXT_LEN: usize = TEXT_LEN_MIN + ALLOCATION_LEN;
/// Deeper than prost reads.
const DEPTH_MAX: usize = 128;
const VARINT_LEN_MAX: usize = 10;
const VALUE_OF_ENTRY: u32 = 2;
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LEN: u64 = 2;
const GROUP_START: u64 = 3;
const GROUP_END: u64 = 4;
const FIXED32: u64 = 5;
