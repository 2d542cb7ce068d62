//! What travels beside a message: words for the other side, values for this one.

use std::{
    any::{Any, TypeId},
    borrow::Cow,
    fmt,
    sync::Arc,
};

/// Names and values beside a message. Names are compared without regard to case.
///
/// **The wire of today does not carry them**: frpc-go has no place for metadata, so they stay on the side that set
/// them. They are here so that code can be written, and ported, against their place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    entries: Vec<(Cow<'static, str>, String)>,
}

impl Metadata {
    const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Sets the value of a name. The value it replaces.
    pub fn insert(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Option<String> {
        let name = name.into();
        let replaced = self.remove(&name);
        self.entries.push((name, value.into()));
        replaced
    }

    /// Takes a name away. The value it had.
    pub fn remove(&mut self, name: &str) -> Option<String> {
        let index = self.entries.iter().position(|(known, _)| known.eq_ignore_ascii_case(name))?;
        Some(self.entries.remove(index).1)
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(name, value)| (&**name, value.as_str()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Values of any types that code on this side attaches to a request or response for other code on this side, one for
/// each type.
#[derive(Clone, Default)]
pub struct Extensions {
    values: Vec<Arc<dyn Any + Send + Sync>>,
}

impl Extensions {
    const fn new() -> Self {
        Self { values: Vec::new() }
    }

    /// The value of this type.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.values.iter().find_map(|value| value.downcast_ref())
    }

    /// Attaches a value, in place of an earlier one of the same type.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.values.retain(|known| (**known).type_id() != TypeId::of::<T>());
        self.values.push(Arc::new(value));
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extensions").field("len", &self.values.len()).finish()
    }
}

/// What most messages have nothing of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extras(Option<Box<Inner>>);

#[derive(Clone, Debug, Default)]
struct Inner {
    metadata: Metadata,
    extensions: Extensions,
}

impl Extras {
    pub(crate) fn metadata(&self) -> &Metadata {
        &self.get().metadata
    }

    pub(crate) fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.0.get_or_insert_default().metadata
    }

    pub(crate) fn extensions(&self) -> &Extensions {
        &self.get().extensions
    }

    pub(crate) fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.0.get_or_insert_default().extensions
    }

    fn get(&self) -> &Inner {
        static NONE: Inner = Inner { metadata: Metadata::new(), extensions: Extensions::new() };
        self.0.as_deref().unwrap_or(&NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_value_whatever_its_case() {
        let mut metadata = Metadata::default();
        assert_eq!(metadata.insert("Token", "a"), None);
        assert_eq!(metadata.insert("token", "b"), Some("a".to_owned()));
        assert_eq!(metadata.get("TOKEN"), Some("b"));
        assert_eq!(metadata.iter().collect::<Vec<_>>(), [("token", "b")]);
        assert_eq!(metadata.remove("tokeN"), Some("b".to_owned()));
        assert!(metadata.is_empty());
    }

    #[test]
    fn a_type_has_one_value() {
        let mut extensions = Extensions::default();
        extensions.insert(1_u8);
        extensions.insert("one");
        extensions.insert(2_u8);
        assert_eq!((extensions.get::<u8>(), extensions.get::<&str>()), (Some(&2), Some(&"one")));
        assert_eq!(extensions.get::<u16>(), None);
    }
}
