//! Values for other code on the same side, and the rarely used part of call heads.

use std::{
    any::{Any, TypeId},
    fmt,
    sync::Arc,
};

use crate::Metadata;

/// Values attached to a request or response for other code on the same side, one per type. Never sent to the peer.
#[derive(Clone, Default)]
pub struct Extensions {
    values: Vec<Arc<dyn Any + Send + Sync>>,
}

impl Extensions {
    const fn new() -> Self {
        Self { values: Vec::new() }
    }

    /// Returns the value of type `T`, if there is one.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.values.iter().find_map(|value| value.downcast_ref())
    }

    /// Attaches a value and replaces an earlier one of the same type.
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

/// The parts of a head that are empty in most calls. One pointer wide; the first write allocates. Clones share them until
/// one of them writes, so a wire can repeat the head of a call at no cost.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeadExtras(Option<Arc<ExtraFields>>);

#[derive(Clone, Debug, Default)]
struct ExtraFields {
    metadata: Metadata,
    extensions: Extensions,
    trailers: Metadata,
}

impl HeadExtras {
    pub(crate) fn metadata(&self) -> &Metadata {
        &self.get().metadata
    }

    pub(crate) fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.get_mut().metadata
    }

    pub(crate) fn extensions(&self) -> &Extensions {
        &self.get().extensions
    }

    pub(crate) fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.get_mut().extensions
    }

    pub(crate) fn trailers(&self) -> &Metadata {
        &self.get().trailers
    }

    pub(crate) fn trailers_mut(&mut self) -> &mut Metadata {
        &mut self.get_mut().trailers
    }

    /// Returns the metadata if there is nothing else.
    pub(crate) fn only_metadata(&self) -> Option<&Metadata> {
        let extras = self.get();
        (extras.extensions.values.is_empty() && extras.trailers.is_empty()).then_some(&extras.metadata)
    }

    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn clear_extensions(&mut self) {
        if let Some(inner) = &mut self.0 {
            Arc::make_mut(inner).extensions = Extensions::default();
        }
    }

    fn get(&self) -> &ExtraFields {
        static EMPTY: ExtraFields =
            ExtraFields { metadata: Metadata::new(), extensions: Extensions::new(), trailers: Metadata::new() };
        self.0.as_deref().unwrap_or(&EMPTY)
    }

    fn get_mut(&mut self) -> &mut ExtraFields {
        Arc::make_mut(self.0.get_or_insert_default())
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

    #[test]
    fn extras_are_pointer_sized_and_empty_without_allocation() {
        assert_eq!(size_of::<HeadExtras>(), size_of::<usize>());
        let extras = HeadExtras::default();
        assert!(extras.metadata().is_empty() && extras.trailers().is_empty());
        assert_eq!(extras.extensions().get::<u8>(), None);
        assert!(extras.0.is_none());
    }

    #[test]
    fn metadata_trailers_and_extensions_are_separate() {
        let mut extras = HeadExtras::default();
        extras.metadata_mut().insert("a", "head").unwrap();
        extras.trailers_mut().insert("a", "tail").unwrap();
        extras.extensions_mut().insert(1_u8);
        assert_eq!((extras.metadata().get("a"), extras.trailers().get("a")), (Some("head"), Some("tail")));
        assert_eq!(extras.extensions().get::<u8>(), Some(&1));
    }
}
