use std::{
    mem,
    sync::{Arc, Mutex},
};

/// Events in the order in which they happened.
#[derive(Clone, Debug, Default)]
pub struct EventLog(Arc<Mutex<Vec<String>>>);

impl EventLog {
    /// Adds an event.
    pub fn add(&self, event: impl Into<String>) {
        self.0.lock().unwrap().push(event.into());
    }

    /// Returns the events since the last time.
    pub fn take(&self) -> Vec<String> {
        mem::take(&mut self.0.lock().unwrap())
    }
}
