//! Words for the other side that travel beside a message.

use std::borrow::Cow;

/// Names and values beside a message. Names are compared without regard to case.
///
/// **The wire of today does not carry them**: frpc-go has no place for metadata, so they stay on the side that set
/// them. They are here so that code can be written, and ported, against their place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    entries: Vec<(Cow<'static, str>, String)>,
}

impl Metadata {
    pub(crate) const fn new() -> Self {
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
}
