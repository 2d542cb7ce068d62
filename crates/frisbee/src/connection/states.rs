//! User values attached to a connection, one of each type. Lookups take no lock. Values live as long as the connection.

use std::any::Any;

use crate::sync::OnceLock;

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

#[cfg(loom)]
#[cfg(test)]
mod models {
    use std::sync::Arc;

    use loom::{model, thread};

    use super::*;

    #[test]
    fn of_two_values_of_a_type_one_is_kept_and_both_threads_see_it() {
        model(|| {
            let states = Arc::new(AttachedStates::new(Some(Box::new("the identity"))));
            let add = |states: &AttachedStates, value: u32| {
                let added = states.add(value).copied();
                let kept = added.unwrap_or_else(|(there, _)| *there);
                assert_eq!(states.get::<u32>(), Some(&kept));
                (added.is_ok(), kept)
            };
            let other = thread::spawn({
                let states = states.clone();
                move || add(&states, 1)
            });
            let ((is_ours, ours), (is_theirs, theirs)) = (add(&states, 2), other.join().unwrap());
            assert!(is_ours != is_theirs && ours == theirs);
        });
    }

    #[test]
    fn values_of_different_types_are_all_kept() {
        model(|| {
            let states = Arc::new(AttachedStates::new(None));
            let other = thread::spawn({
                let states = states.clone();
                move || states.add(1_u8).is_ok() && states.get::<u8>() == Some(&1)
            });
            assert!(states.add(2_u16).is_ok() && states.get::<u16>() == Some(&2));
            assert!(other.join().unwrap());
            assert_eq!((states.get::<u8>(), states.get::<u16>()), (Some(&1), Some(&2)));
        });
    }
}
