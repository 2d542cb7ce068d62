use super::{error::Result, reader::Reader, writer::Writer};

/// A message that an `Any` can hold.
#[derive(Clone, Copy, Debug)]
pub struct Type {
    /// The full name.
    pub(super) name: &'static str,
    /// True if JSON has it as an object of its fields, and not in a form of its own.
    pub(super) is_object: bool,
    /// True if it has no fields, so that an `Any` needs nothing but its type.
    pub(super) is_empty: bool,
    pub(super) encode: fn(&[u8], &mut Writer) -> Result<()>,
    pub(super) decode: fn(&mut Reader<'_>) -> Result<Vec<u8>>,
}

/// The messages that an `Any` can hold: those of a package, and of others that it uses.
///
/// frpc-build makes those of each package: `json_types()`. The well-known types are in all of them.
#[derive(Clone, Copy, Debug)]
pub struct Types {
    own: &'static [Type],
    others: &'static [fn() -> &'static Types],
}

impl Types {
    /// No types but the well-known ones.
    pub const WELL_KNOWN: &'static Self = &Self::new(&[], &[]);

    /// Returns the types of a package, sorted by name, with those of other packages. Of these, only their own are taken.
    pub const fn new(own: &'static [Type], others: &'static [fn() -> &'static Self]) -> Self {
        Self { own, others }
    }

    /// Returns the type of this full name.
    pub(super) fn find(&self, name: &str) -> Option<&'static Type> {
        let own = self.own.binary_search_by(|own| own.name.cmp(name)).ok().map(|index| &self.own[index]);
        own.or_else(|| {
            let mut others = self.others.iter().filter_map(|other| Types::new(other().own, &[]).find(name));
            others.next()
        })
    }
}
