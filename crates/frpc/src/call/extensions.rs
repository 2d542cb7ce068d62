//! Values for code on this side, and the part of a message that is rarely there.

use std::{
    any::{Any, TypeId},
    fmt,
    sync::Arc,
};

use crate::Metadata;

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
    fn a_type_has_one_value() {
        let mut extensions = Extensions::default();
        extensions.insert(1_u8);
        extensions.insert("one");
        extensions.insert(2_u8);
        assert_eq!((extensions.get::<u8>(), extensions.get::<&str>()), (Some(&2), Some(&"one")));
        assert_eq!(extensions.get::<u16>(), None);
    }
}
