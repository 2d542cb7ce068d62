use super::{error::Result, reader::Reader};

/// A oneof while it is decoded.
///
/// The wire does not say which member is set. The first present member in the order of declaration wins.
#[derive(Debug)]
pub struct Choice<'a, T> {
    into: &'a mut Option<T>,
    /// Position of the current member in the declaration. `usize::MAX` while no member is set.
    place: usize,
}

impl<'a, T> Choice<'a, T> {
    /// Creates a choice without a member.
    #[inline]
    pub fn new(into: &'a mut Option<T>) -> Self {
        Self { into, place: usize::MAX }
    }

    /// Decodes the member at position `place` of the declaration with `read`, a function for an optional field.
    #[inline]
    pub fn member<'r, M>(
        &mut self,
        place: usize,
        input: &mut Reader<'r>,
        variant: impl FnOnce(M) -> T,
        read: impl FnOnce(&mut Reader<'r>, &mut Option<M>) -> Result<()>,
    ) -> Result<()> {
        let mut member = None;
        read(input, &mut member)?;
        self.set(place, member.map(variant));
        Ok(())
    }

    /// Sets the member at position `place` of the declaration, unless an earlier member is set.
    #[inline]
    pub fn set(&mut self, place: usize, member: Option<T>) {
        if member.is_some() && place < self.place {
            *self.into = member;
            self.place = place;
        }
    }
}
