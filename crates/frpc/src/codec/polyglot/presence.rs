use bytes::Bytes;

/// A field value whose default and absence have the same encoding.
pub trait Presence: Default {
    /// Returns `true` if the value is encoded like an absent field.
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
