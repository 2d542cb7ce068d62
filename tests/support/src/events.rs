use std::{
    mem,
    sync::{Arc, Mutex},
};

/// A log of events in the order of their occurrence.
#[derive(Clone, Debug, Default)]
pub struct EventLog(Arc<Mutex<Vec<String>>>);

impl EventLog {
    /// Adds an event.
    pub fn add(&self, event: impl Into<String>) {
        self.0.lock().unwrap().push(event.into());
    }

    /// Takes all events since the last call.
    pub fn take(&self) -> Vec<String> {
        mem::take(&mut self.0.lock().unwrap())
    }
}
