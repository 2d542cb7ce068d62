use std::fmt;

/// The kind byte before each value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// An absent message.
    Nil = 0x00,
    /// A list.
    Slice = 0x01,
    /// A map.
    Map = 0x02,
    /// The element kind of lists and maps of messages. Never used before a value.
    Any = 0x03,
    /// Bytes with a length prefix.
    Bytes = 0x04,
    /// UTF-8 text with a length prefix.
    String = 0x05,
    /// An error text in place of a message.
    Error = 0x06,
    /// One byte, 0 or 1.
    Bool = 0x07,
    /// One byte.
    U8 = 0x08,
    /// A varint of at most 3 bytes.
    U16 = 0x09,
    /// A varint of at most 5 bytes.
    U32 = 0x0a,
    /// A varint of at most 10 bytes.
    U64 = 0x0b,
    /// Same as `U32`, with zigzag encoding.
    I32 = 0x0c,
    /// Same as `U64`, with zigzag encoding.
    I64 = 0x0d,
    /// Four bytes, big-endian.
    F32 = 0x0e,
    /// Eight bytes, big-endian.
    F64 = 0x0f,
}

impl Kind {
    /// Returns the kind with this byte.
    pub const fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            0x00 => Self::Nil,
            0x01 => Self::Slice,
            0x02 => Self::Map,
            0x03 => Self::Any,
            0x04 => Self::Bytes,
            0x05 => Self::String,
            0x06 => Self::Error,
            0x07 => Self::Bool,
            0x08 => Self::U8,
            0x09 => Self::U16,
            0x0a => Self::U32,
            0x0b => Self::U64,
            0x0c => Self::I32,
            0x0d => Self::I64,
            0x0e => Self::F32,
            0x0f => Self::F64,
            _ => return None,
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nil => "nil",
            Self::Slice => "list",
            Self::Map => "map",
            Self::Any => "message",
            Self::Bytes => "bytes",
            Self::String => "string",
            Self::Error => "error",
            Self::Bool => "bool",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F32 => "f32",
            Self::F64 => "f64",
        })
    }
}
