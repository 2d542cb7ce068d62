use bytes::Bytes;

/// A value whose default cannot be told from its absence.
pub trait Presence: Default {
    /// Returns whether its bytes are those of an absent field.
    fn is_default(&self) -> bool;
}

macro_rules! presence {
    ($($type:ty: $value:ident => $is_default:expr;)*) => {$(
        impl Presence for $type {
            fn is_default(&self) -> bool {
                let $value = self;
                $is_default
            }
        }
    )*};
}

presence! {
    bool: value => !*value;
    i32: value => *value == 0;
    i64: value => *value == 0;
    u32: value => *value == 0;
    u64: value => *value == 0;
    f32: value => value.to_bits() == 0;
    f64: value => value.to_bits() == 0;
    String: value => value.is_empty();
    Vec<u8>: value => value.is_empty();
    Bytes: value => value.is_empty();
}
