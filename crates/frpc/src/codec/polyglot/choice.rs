use super::{error::Result, reader::Reader};

/// A oneof that is being read. Which member is set is not on the wire: it is the first that is there, in the order of
/// declaration.
#[derive(Debug)]
pub struct Choice<'a, T> {
    into: &'a mut Option<T>,
    /// The place in the declaration of the member that is set.
    place: usize,
}

impl<'a, T> Choice<'a, T> {
    /// Returns a choice that is not made.
    #[inline]
    pub fn new(into: &'a mut Option<T>) -> Self {
        Self { into, place: usize::MAX }
    }

    /// Reads the member that stands at `place` in the declaration, by a function that reads a field that may be unset.
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

    /// Sets the member that stands at `place` in the declaration, if it was there and none before it is.
    #[inline]
    pub fn set(&mut self, place: usize, member: Option<T>) {
        if member.is_some() && place < self.place {
            *self.into = member;
            self.place = place;
        }
    }
}
