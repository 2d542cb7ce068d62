//! Strangers on the bus.
