//! A compact map for data that most connections do not have.

use std::{collections::HashMap, hash::Hash};

/// A map with the size of a pointer until its first insertion.
#[expect(clippy::box_collection, reason = "a map without anything in it is six pointers wide")]
pub(crate) struct LazyMap<K, V>(Option<Box<HashMap<K, V>>>);

impl<K: Eq + Hash, V> LazyMap<K, V> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|map| map.is_empty())
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.0.as_ref().is_some_and(|map| map.contains_key(key))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().flat_map(|map| map.keys())
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.get_or_insert_default().insert(key, value)
    }

    /// Returns the value of a key, inserting the default value if the key is missing.
    pub(crate) fn get_or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.0.get_or_insert_default().entry(key).or_default()
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.0.as_mut()?.remove(key)
    }

    pub(crate) fn into_values(self) -> impl Iterator<Item = V> {
        self.0.into_iter().flat_map(|map| map.into_values())
    }
}

impl<K, V> Default for LazyMap<K, V> {
    fn default() -> Self {
        Self(None)
    }
}
