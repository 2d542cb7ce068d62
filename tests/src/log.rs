use std::fmt::{Debug, Write};

use tracing::{Event, Level, Metadata, Subscriber, field, span, subscriber::set_global_default};

/// Has what frisbee logs in this process heard, from now on and down to this level.
pub fn hear_log(level: Level, hear: impl Fn(&Metadata<'_>, String) + Send + Sync + 'static) {
    set_global_default(Log { level, hear }).expect("one hears it at most");
}

struct Log<F> {
    level: Level,
    hear: F,
}

struct Line(String);

impl field::Visit for Line {
    fn record_debug(&mut self, field: &field::Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").expect("a text takes everything");
    }
}

impl<F: Fn(&Metadata<'_>, String) + Send + Sync + 'static> Subscriber for Log<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level && metadata.target().starts_with("frisbee")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        (self.hear)(event.metadata(), line.0);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
