//! The trailer of a message: holds what the layout loses.
//!
//! A plain reader cannot tell an optional field that is set to its default from one that is not set, nor which member
//! of a oneof was set if it is at its default, nor an enum number that has no position. Both sides count these places
//! ("slots") as they come up in the bytes. If any of them holds more than the bytes say, the writer appends
//!
//! ```text
//! 1f 01 | count varint | count × (slot varint, number varint)
//! ```
//!
//! where `number` is 0 for "this field is set", and otherwise 1 + the zigzag of the enum's number. Slots ascend. Go
//! readers ignore what follows a message; `1f` is no kind of theirs. A message that needs no trailer has none.
//!
//! An error has room for a text only. If it has a code as well, the writer appends
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
    slots::{Holds, Kept, Slots},
    writer::{Writer, zigzag64},
};

/// Returns the code behind an error, if there is one.
pub(super) fn code(behind: &[u8]) -> Option<u8> {
    behind.strip_prefix(&CODE_MARK)?.first().copied()
}

/// Returns the bytes that stand behind an error with this code.
pub(super) fn of_code(code: u8) -> [u8; 3] {
    [CODE_MARK[0], CODE_MARK[1], code]
}

/// Writes the trailer of these slots.
pub(super) fn write<S: Sink>(slots: &Slots, out: &mut Writer<S>) {
    out.put(&MARK);
    out.varint(slots.kept().len() as u64);
    for kept in slots.kept() {
        out.varint(kept.slot);
        out.varint(match kept.holds {
            Holds::Presence => 0,
            Holds::Number(number) => 1 + zigzag64(number.into()),
        });
    }
}

/// Reads what follows a message: `None` if it is no trailer.
pub(super) fn read(input: &mut Reader<'_>) -> Result<Option<Slots>, DecodeError> {
    let Some(count) = read_count(input) else { return Ok(None) };
    input.charge_allocation(count * size_of::<Kept>())?;
    let mut kept = Vec::with_capacity(count);
    for _ in 0..count {
        match read_one(input) {
            Ok(one) => kept.push(one),
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(Slots::of(kept)))
}

/// Reads how many slots follow, if they can.
fn read_count(input: &mut Reader<'_>) -> Option<usize> {
    input.skip_mark(MARK)?;
    let count = input.varint::<10>(Kind::U64).ok()?;
    usize::try_from(count).ok().filter(|&count| count <= input.rest().len() / KEPT_LEN_MIN)
}

fn read_one(input: &mut Reader<'_>) -> Result<Kept, DecodeError> {
    let slot = input.varint::<10>(Kind::U64)?;
    let holds = match input.varint::<10>(Kind::U64)?.checked_sub(1) {
        None => Holds::Presence,
        Some(zigzag) => {
            let number = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
            let too_long = DecodeErrorKind::VarintTooLong { kind: Kind::I32 };
            Holds::Number(i32::try_from(number).map_err(|_| too_long)?)
        }
    };
    Ok(Kept { slot, holds })
}

/// Two varints.
const KEPT_LEN_MIN: usize = 2;
const MARK: [u8; 2] = [0x1f, 0x01];
const CODE_MARK: [u8; 2] = [0x1f, 0x02];
