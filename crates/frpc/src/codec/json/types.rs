use super::{error::Result, reader::Reader, writer::Writer};

/// A message type an `Any` can contain.
#[derive(Clone, Copy, Debug)]
pub struct Type {
    /// The full name.
    pub(super) name: &'static str,
    /// `true` if its JSON form is an object of its fields. `false` for types with a special form.
    pub(super) is_object: bool,
    /// `true` if it has no fields, so an `Any` needs only the type.
    pub(super) is_empty: bool,
    pub(super) encode: fn(&[u8], &mut Writer) -> Result<()>,
    pub(super) decode: fn(&mut Reader<'_>) -> Result<Vec<u8>>,
}

/// The message types an `Any` can contain: the types of a package and of the packages it uses.
///
/// frisbee-rpc-build generates a function `json_types()` per package. The well-known types are always included.
#[derive(Clone, Copy, Debug)]
pub struct Types {
    own: &'static [Type],
    others: &'static [fn() -> &'static Types],
}

impl Types {
    /// The well-known types only.
    pub const WELL_KNOWN: &'static Self = &Self::new(&[], &[]);

    /// Combines the types of packages. `packages` are the functions `json_types` of their generated code.
    ///
    /// ```
    /// # mod details { pub const fn json_types() -> &'static frpc::codec::json::Types { frpc::codec::json::Types::WELL_KNOWN } }
    /// # use details as shop;
    /// use frpc::codec::json::Types;
    ///
    /// const ANY_TYPES: &Types = &Types::of_packages(&[details::json_types, shop::json_types]);
    /// # let _ = ANY_TYPES;
    /// ```
    pub const fn of_packages(packages: &'static [fn() -> &'static Self]) -> Self {
        Self::new(&[], packages)
    }

    /// Creates the types of a package. `own` must be sorted by name. Of the other packages, only their own types are
    /// included, not their dependencies.
    pub const fn new(own: &'static [Type], others: &'static [fn() -> &'static Self]) -> Self {
        Self { own, others }
    }

    /// Returns the type with this full name.
    pub(super) fn find(&self, name: &str) -> Option<&'static Type> {
        let own = self.own.binary_search_by(|own| own.name.cmp(name)).ok().map(|index| &self.own[index]);
        own.or_else(|| {
            let mut others = self.others.iter().filter_map(|other| Types::new(other().own, &[]).find(name));
            others.next()
        })
    }
}
