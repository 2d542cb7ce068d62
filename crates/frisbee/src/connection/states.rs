//! User values attached to a connection, one of each type. Lookups take no lock. Values live as long as the connection.

use std::{any::Any, sync::OnceLock};

pub(super) struct AttachedStates {
    first: OnceLock<Box<AttachedState>>,
}

struct AttachedState {
    value: Box<dyn Any + Send + Sync>,
    next: OnceLock<Box<AttachedState>>,
}

impl AttachedStates {
    /// Creates the list, with a first value if there is one.
    pub(super) fn new(first: Option<Box<dyn Any + Send + Sync>>) -> Self {
        let first = first.map(|value| Box::new(AttachedState { value, next: OnceLock::new() }));
        Self { first: first.map_or_else(OnceLock::new, OnceLock::from) }
    }

    #[inline]
    pub(super) fn get<T: 'static>(&self) -> Option<&T> {
        let mut place = &self.first;
        while let Some(state) = place.get() {
            if let Some(value) = state.value.downcast_ref() {
                return Some(value);
            }
            place = &state.next;
        }
        None
    }

    /// Attaches a value and returns a reference to it.
    ///
    /// # Errors
    ///
    /// Returns the existing value of the same type, and `value`.
    pub(super) fn add<T: Send + Sync + 'static>(&self, value: T) -> Result<&T, (&T, T)> {
        let mut state = Box::new(AttachedState { value: Box::new(value), next: OnceLock::new() });
        let mut place = &self.first;
        loop {
            match place.set(state) {
                Ok(()) => break,
                Err(later) => state = later,
            }
            let taken = place.get().expect("a place that cannot be set is set");
            if let Some(there) = taken.value.downcast_ref() {
                let value = state.value.downcast().expect("it was made of this type");
                return Err((there, *value));
            }
            place = &taken.next;
        }
        Ok(place.get().and_then(|state| state.value.downcast_ref()).expect("it was set right now"))
    }
}
