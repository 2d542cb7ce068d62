//! The trailer of a message: information lost in the plain layout.
//!
//! The plain layout loses three things: an optional field set to its default looks like an unset one, a oneof member
//! set to its default looks unset, and an enum number may have no position. Both sides number the affected fields
//! ("slots") in the order of their bytes. If any slot holds information not in the bytes, the writer appends
//!
//! ```text
//! 1f 01 | count varint | count × (slot varint, number varint)
//! ```
//!
//! A `number` of 0 means "this field is set". Other values are 1 + the zigzag encoding of the enum number. Slots are in
//! ascending order. Go readers ignore bytes after a message, and `1f` is not a kind they know. Most messages need no
//! trailer and have none.
//!
//! An error contains only a text. If it also has a code, the writer appends
//!
//! ```text
//! 1f 02 | code u8
//! ```

pub use super::presence::Presence;

use super::{
    error::{DecodeError, DecodeErrorKind},
    kind::Kind,
    reader::Reader,
    sink::Sink,
    slots::{SlotEntry, SlotTable, SlotValue},
    writer::{Writer, zigzag64},
};

/// Returns the code after an error, if there is one.
pub(super) fn code(behind: &[u8]) -> Option<u8> {
    behind.strip_prefix(&CODE_MARK)?.first().copied()
}

/// Returns the bytes that encode a code after an error.
pub(super) fn of_code(code: u8) -> [u8; 3] {
    [CODE_MARK[0], CODE_MARK[1], code]
}

/// Writes a trailer for these slots.
pub(super) fn write<S: Sink>(slots: &SlotTable, out: &mut Writer<S>) {
    out.put(&MARK);
    out.varint(slots.kept().len() as u64);
    for kept in slots.kept() {
        out.varint(kept.slot);
        out.varint(match kept.holds {
            SlotValue::Presence => 0,
            SlotValue::Number(number) => 1 + zigzag64(number.into()),
        });
    }
}

/// Reads the trailer after a message. Returns `None` if the bytes are not a trailer.
pub(super) fn read(input: &mut Reader<'_>) -> Result<Option<SlotTable>, DecodeError> {
    let Some(count) = read_count(input) else { return Ok(None) };
    input.charge_allocation(count * size_of::<SlotEntry>())?;
    let mut kept = Vec::with_capacity(count);
    for _ in 0..count {
        match read_one(input) {
            Ok(one) => kept.push(one),
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(SlotTable::of(kept)))
}

/// Reads the number of slots, if the remaining bytes can hold as many.
fn read_count(input: &mut Reader<'_>) -> Option<usize> {
    input.skip_mark(MARK)?;
    let count = input.varint::<10>(Kind::U64).ok()?;
    usize::try_from(count).ok().filter(|&count| count <= input.rest().len() / KEPT_LEN_MIN)
}

fn read_one(input: &mut Reader<'_>) -> Result<SlotEntry, DecodeError> {
    let slot = input.varint::<10>(Kind::U64)?;
    let holds = match input.varint::<10>(Kind::U64)?.checked_sub(1) {
        None => SlotValue::Presence,
        Some(zigzag) => {
            let number = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
            let too_long = DecodeErrorKind::VarintTooLong { kind: Kind::I32 };
            SlotValue::Number(i32::try_from(number).map_err(|_| too_long)?)
        }
    };
    Ok(SlotEntry { slot, holds })
}

/// The minimum length of a slot: two varints.
const KEPT_LEN_MIN: usize = 2;
const MARK: [u8; 2] = [0x1f, 0x01];
const CODE_MARK: [u8; 2] = [0x1f, 0x02];
