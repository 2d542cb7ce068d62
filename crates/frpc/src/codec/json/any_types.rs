//! The message types an `Any` can contain.

use super::{
    error::{ErrorKind, Result},
    message::Message,
    reader::Reader,
    types::Type,
    writer::Writer,
};
use crate::codec::{self, field_layouts::checked_memory, layout::MemoryBudget};

impl Type {
    /// Returns the functions and properties `Any` needs for a message type.
    pub const fn of<M: Message + codec::Message + prost::Message>() -> Self {
        Self {
            name: <M as Message>::NAME,
            is_object: M::IS_OBJECT,
            is_empty: size_of::<M>() == 0,
            encode: encode::<M>,
            decode: decode::<M>,
        }
    }
}

fn encode<M: Message + codec::Message + prost::Message>(bytes: &[u8], out: &mut Writer) -> Result<()> {
    let checked = checked_memory::<M>(bytes, MemoryBudget::default(), usize::MAX);
    checked.map_err(|limit| ErrorKind::TooMuchMemory { limit })?;
    let message = M::decode(bytes).map_err(ErrorKind::InvalidAny)?;
    out.message(&message);
    Ok(())
}

fn decode<M: Message + prost::Message>(input: &mut Reader<'_>) -> Result<Vec<u8>> {
    let mut message = M::default();
    input.message(&mut message)?;
    input.charge(message.encoded_len())?;
    Ok(message.encode_to_vec())
}
