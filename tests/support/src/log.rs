use std::{
    fmt::{Debug, Write},
    mem,
    sync::{Arc, LazyLock, Mutex},
};

use tracing::{
    Dispatch, Event, Level, Metadata, Subscriber, field, span,
    subscriber::{DefaultGuard, Interest, set_default, set_global_default},
};

/// Passes all events logged by frisbee in this process to `hear`. Ignores events below a level.
pub fn hear_log(level: Level, hear: impl Fn(&Metadata<'_>, String) + Send + Sync + 'static) {
    set_global_default(Log { level, hear }).expect("one hears it at most");
}

struct Log<F> {
    level: Level,
    hear: F,
}

/// Captures the log of frisbee and frpc on this thread until it is dropped. Ignores events below a level.
pub struct ThreadLog {
    heard: Arc<Mutex<Heard>>,
    _hearing: DefaultGuard,
}

#[derive(Default)]
struct Heard {
    lines: Vec<String>,
    /// Text of each span. The id of a span is its index plus 1.
    spans: Vec<String>,
    entered: Vec<u64>,
}

impl ThreadLog {
    /// Starts capturing.
    pub fn hear(level: Level) -> Self {
        LazyLock::force(&UNCACHED);
        let heard = Arc::<Mutex<Heard>>::default();
        let hearing = set_default(ThreadListener { level, heard: heard.clone() });
        Self { heard, _hearing: hearing }
    }

    /// Takes the lines since the last call, such as `WARN span{field=1}: message field=2`.
    pub fn take(&self) -> Vec<String> {
        mem::take(&mut self.heard.lock().expect("nobody panics with it").lines)
    }
}

struct ThreadListener {
    level: Level,
    heard: Arc<Mutex<Heard>>,
}

impl ThreadListener {
    fn heard(&self) -> std::sync::MutexGuard<'_, Heard> {
        self.heard.lock().expect("nobody panics with it")
    }
}

/// A listener for the whole life of the process. If another thread meets an event first while a listener starts, tracing can
/// cache that nobody hears the event. With this listener, it asks each time.
static UNCACHED: LazyLock<Dispatch> =
    LazyLock::new(|| Dispatch::new(ThreadListener { level: Level::ERROR, heard: Arc::default() }));

impl Subscriber for ThreadListener {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        *metadata.level() <= self.level && (target.starts_with("frisbee") || target.starts_with("frpc"))
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Line(String::new());
        event.record(&mut fields);
        let mut heard = self.heard();
        let mut line = event.metadata().level().to_string();
        for id in &heard.entered {
            let index = usize::try_from(*id).expect("ids are small") - 1;
            write!(line, " {}:", heard.spans[index]).expect("a text takes everything");
        }
        line.push(' ');
        line.push_str(fields.0.trim_end().trim_start_matches("message="));
        heard.lines.push(line);
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        let mut fields = Line(String::new());
        span.record(&mut fields);
        let mut heard = self.heard();
        heard.spans.push(format!("{}{{{}}}", span.metadata().name(), fields.0.trim_end()));
        span::Id::from_u64(heard.spans.len() as u64)
    }

    fn record(&self, id: &span::Id, values: &span::Record<'_>) {
        let mut fields = Line(String::new());
        values.record(&mut fields);
        let index = usize::try_from(id.into_u64()).expect("ids are small") - 1;
        let span = &mut self.heard().spans[index];
        span.truncate(span.len() - 1);
        write!(span, " {}}}", fields.0.trim_end()).expect("a text takes everything");
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, id: &span::Id) {
        self.heard().entered.push(id.into_u64());
    }

    fn exit(&self, id: &span::Id) {
        let mut heard = self.heard();
        if let Some(index) = heard.entered.iter().rposition(|entered| *entered == id.into_u64()) {
            heard.entered.remove(index);
        }
    }
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
