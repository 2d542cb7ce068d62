//! The call served by the current handler, and the values its own calls inherit.

use std::{
    cell::{Cell, RefCell},
    fmt, mem,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context as TaskContext, Poll},
};

use frisbee::clock::Instant;
use pin_project_lite::pin_project;
use tokio_util::sync::CancellationToken;

use super::{
    extensions::HeadExtras,
    head::Head,
    metadata::Metadata,
    trace::{self, ReceivedTrace, TraceContext},
};

thread_local! {
    /// The call of the handler polled by this thread.
    static CURRENT: Cell<CurrentCall> = const { Cell::new(CurrentCall::OUTSIDE) };
    /// The rarely used part of the same call.
    static MORE: RefCell<ScopeMore> = const { RefCell::new(ScopeMore::None) };
}

/// The part of a call that is read without an atomic operation or a lock.
#[derive(Clone, Copy)]
struct CurrentCall {
    around: ScopeKind,
    deadline: Option<Instant>,
}

/// The scope of the running code. Register-sized, because every poll saves and restores it.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
enum ScopeKind {
    Outside,
    Call,
    CallWithExtras,
}

/// The part of a call that most calls do not need.
#[derive(Clone, Default)]
enum ScopeMore {
    #[default]
    None,
    /// The metadata of a call with a `traceparent`. Shared with the head of the call, so it takes no memory, and read when
    /// a call inherits it.
    Received(HeadExtras),
    Full(Arc<ScopeExtras>),
}

#[derive(Default)]
struct ScopeExtras {
    /// Without the trace context.
    metadata: Metadata,
    trace: Option<TraceContext>,
    /// Cancelled when the handler is dropped before its end.
    token: OnceLock<CancellationToken>,
    /// The metadata and the trace context, for calls without metadata of their own. Calls share it.
    carried: OnceLock<HeadExtras>,
}

/// The values inherited by calls made inside a handler: its deadline, its [trace context](TraceContext), and [selected
/// metadata](crate::CallSettings::inherit_metadata). Calls made by the handler inherit them automatically; use this type to
/// carry them to another thread.
///
/// ```
/// use frpc::Inherited;
///
/// # async fn handler() -> Result<(), tokio::task::JoinError> {
/// let mut inherited = Inherited::here();
/// tokio::task::spawn_blocking(move || {
///     inherited.run(|| {
///         // Calls made here end with the call served by the handler.
///     })
/// })
/// .await
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Inherited {
    deadline: Option<Instant>,
    more: ScopeMore,
}

/// The scope of a call. If it is dropped before its code [finished](Self::is_over), it cancels the token of the call.
pub(crate) struct CallScope {
    inherited: Inherited,
    is_over: bool,
}

pin_project! {
    /// A running handler. Code run while polling it belongs to its call.
    pub(crate) struct InScope<F> {
        #[pin]
        handler: F,
        scope: CallScope,
    }
}

pin_project! {
    /// A future whose calls inherit other values than the code around it. Made by [`Inherited::wrap`].
    pub struct InheritedFuture<F> {
        #[pin]
        future: F,
        scope: CallScope,
    }
}

impl<F: Future> Future for InheritedFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<F::Output> {
        let this = self.project();
        // The scope ends even after a panic of the future.
        let polled = this.scope.inherited.run(|| this.future.poll(cx));
        this.scope.is_over = polled.is_ready();
        polled
    }
}

impl<F> fmt::Debug for InheritedFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InheritedFuture").field("inherited", &self.scope.inherited).finish_non_exhaustive()
    }
}

impl CurrentCall {
    const OUTSIDE: Self = Self { around: ScopeKind::Outside, deadline: None };

    #[inline]
    fn has_more(self) -> bool {
        self.around == ScopeKind::CallWithExtras
    }
}

impl Inherited {
    /// Captures the values inherited by calls from the current code. Empty outside of handlers.
    pub fn here() -> Self {
        let more = MORE.with_borrow(|more| match more {
            // The metadata of the call would keep its memory and its extensions after the end of the handler.
            ScopeMore::Received(received) => ScopeExtras::of_trace(TraceContext::of(received.metadata())),
            more => more.clone(),
        });
        Self { deadline: deadline(), more }
    }

    /// Returns the trace context of these values.
    pub fn trace(&self) -> Option<TraceContext> {
        self.more.trace()
    }

    /// Returns the same values with another trace context.
    ///
    /// ```
    /// use frpc::{Inherited, TraceContext};
    ///
    /// # async fn example() {
    /// let job = async { /* Calls made here belong to the trace. */ };
    /// Inherited::here().with_trace(Some(TraceContext::root(true))).wrap(job).await;
    /// # }
    /// ```
    pub fn with_trace(self, trace: Option<TraceContext>) -> Self {
        let Self { deadline, more } = self;
        let extras = match &more {
            // The token is that of the handler, so both scopes share it.
            ScopeMore::Full(more) => {
                let (metadata, token) = (more.metadata.clone(), more.token.clone());
                ScopeExtras { metadata, trace, token, ..ScopeExtras::default() }
            }
            _ => ScopeExtras { trace, ..ScopeExtras::default() },
        };
        Self { deadline, more: ScopeMore::Full(Arc::new(extras)) }
    }

    /// Wraps a future, so that calls made by it inherit exactly these values.
    pub fn wrap<F: Future>(self, future: F) -> InheritedFuture<F> {
        InheritedFuture { future, scope: CallScope { inherited: self, is_over: false } }
    }

    /// Returns the values inherited from a call with this head: its deadline, and the metadata with these names.
    #[inline]
    pub(crate) fn of<'a>(head: &Head, names: impl FnOnce() -> &'a [String]) -> Self {
        let more = if head.metadata().is_empty() { ScopeMore::None } else { ScopeMore::of(head, names()) };
        Self { deadline: head.deadline(), more }
    }

    /// Runs code with exactly these inherited values.
    #[inline]
    pub fn run<T>(&mut self, code: impl FnOnce() -> T) -> T {
        // The common case: nothing to inherit, and no enclosing scope to hide.
        let is_nothing = self.deadline.is_none() && !self.more.is_some();
        if is_nothing && CURRENT.get().around == ScopeKind::Outside {
            return code();
        }
        let around = self.enter();
        let _inside = EnteredScope { inherited: self, around };
        code()
    }

    /// Enters this scope and returns the enclosing one.
    #[inline]
    fn enter(&mut self) -> CurrentCall {
        let around = CURRENT.replace(self.current());
        // Most calls skip this swap: it costs a second thread-local access with a borrow check.
        if self.more.is_some() || around.has_more() {
            self.swap_more();
        }
        around
    }

    /// Restores the enclosing scope.
    #[inline]
    fn leave(&mut self, around: CurrentCall) {
        let left = CURRENT.replace(around);
        if left.has_more() || around.has_more() {
            self.swap_more();
        }
    }

    #[inline]
    fn current(&self) -> CurrentCall {
        let around = if self.more.is_some() { ScopeKind::CallWithExtras } else { ScopeKind::Call };
        CurrentCall { around, deadline: self.deadline }
    }

    fn swap_more(&mut self) {
        MORE.with_borrow_mut(|more| mem::swap(more, &mut self.more));
    }
}

/// A running closure. Its drop restores the enclosing scope even after a panic.
struct EnteredScope<'a> {
    inherited: &'a mut Inherited,
    around: CurrentCall,
}

impl Drop for EnteredScope<'_> {
    #[inline]
    fn drop(&mut self) {
        self.inherited.leave(self.around);
    }
}

impl fmt::Debug for Inherited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Inherited");
        debug.field("deadline", &self.deadline).field("trace", &self.trace());
        if let ScopeMore::Full(more) = &self.more {
            debug.field("metadata", &more.metadata);
        }
        debug.finish()
    }
}

impl CallScope {
    /// Returns the scope of a call without inherited metadata.
    #[inline]
    pub(crate) fn until(deadline: Option<Instant>) -> Self {
        Self { inherited: Inherited { deadline, more: ScopeMore::None }, is_over: false }
    }

    /// Returns the scope of a call with this head. Calls inherit the metadata with these names.
    #[inline]
    pub(crate) fn of(head: &Head, names: &[String]) -> Self {
        Self { inherited: Inherited::of(head, || names), is_over: false }
    }
}

impl ScopeMore {
    /// Returns the extras of a call with metadata. Calls inherit the metadata with these names.
    fn of(head: &Head, names: &[String]) -> Self {
        let metadata = head.metadata();
        let is_inherited = |name: &[u8]| {
            !trace::is_name(name) && names.iter().any(|wanted| name.eq_ignore_ascii_case(wanted.as_bytes()))
        };
        if !names.is_empty() && metadata.entries().any(|entry| is_inherited(entry.name)) {
            let (metadata, trace) = (metadata.only(is_inherited), TraceContext::of(metadata));
            return Self::Full(Arc::new(ScopeExtras { metadata, trace, ..ScopeExtras::default() }));
        }
        if trace::has_parent(metadata) { Self::Received(head.extras.clone()) } else { Self::None }
    }

    #[inline]
    fn is_some(&self) -> bool {
        !matches!(self, Self::None)
    }

    fn trace(&self) -> Option<TraceContext> {
        match self {
            Self::None => None,
            Self::Received(received) => TraceContext::of(received.metadata()),
            Self::Full(more) => more.trace.clone(),
        }
    }

    /// Returns the extras with room for a token.
    fn full(&mut self) -> &Arc<ScopeExtras> {
        if !matches!(self, Self::Full(_)) {
            *self = Self::Full(Arc::new(ScopeExtras { trace: self.trace(), ..ScopeExtras::default() }));
        }
        match self {
            Self::Full(more) => more,
            _ => unreachable!("it is full"),
        }
    }
}

impl ScopeExtras {
    fn of_trace(trace: Option<TraceContext>) -> ScopeMore {
        match trace {
            None => ScopeMore::None,
            trace => ScopeMore::Full(Arc::new(Self { trace, ..Self::default() })),
        }
    }

    /// Adds the metadata and the trace context to a call. Values of the call take precedence.
    fn inherit(&self, extras: &mut HeadExtras) {
        if !self.metadata.is_empty() {
            extras.metadata_mut().inherit(&self.metadata);
        }
        if let Some(trace) = &self.trace {
            trace.inherit(extras.metadata_mut());
        }
    }

    /// Returns what a call without metadata inherits.
    fn carried(&self) -> &HeadExtras {
        self.carried.get_or_init(|| {
            let mut extras = HeadExtras::default();
            self.inherit(&mut extras);
            extras
        })
    }
}

impl<F> InScope<F> {
    /// Wraps a handler in the scope of its call. The handler must not panic: its scope would stay in effect for later
    /// code of the thread.
    #[inline]
    pub(crate) fn new(scope: CallScope, handler: F) -> Self {
        Self { handler, scope }
    }
}

impl<F: Future> Future for InScope<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<F::Output> {
        let this = self.project();
        let around = this.scope.inherited.enter();
        let polled = this.handler.poll(cx);
        this.scope.inherited.leave(around);
        this.scope.is_over = polled.is_ready();
        polled
    }
}

impl Drop for CallScope {
    #[inline]
    fn drop(&mut self) {
        if let (false, ScopeMore::Full(more)) = (self.is_over, &self.inherited.more)
            && let Some(token) = more.token.get()
        {
            token.cancel();
        }
    }
}

/// Returns `true` if calls made by the current code inherit anything.
#[inline]
pub(crate) fn is_inherited() -> bool {
    let current = CURRENT.get();
    current.deadline.is_some() || current.has_more()
}

/// Returns the deadline of the call served by the current code.
pub(crate) fn deadline() -> Option<Instant> {
    CURRENT.get().deadline
}

/// Adds the inherited metadata and trace context of the current code to a call. Values of the call take precedence.
pub(crate) fn inherit_metadata(head: &mut Head) {
    MORE.with_borrow(|more| match more {
        ScopeMore::None => {}
        // Most calls share the metadata, so passing it on takes no memory.
        ScopeMore::Received(received)
            if head.extras.is_none() && received.only_metadata().is_some_and(trace::is_only_context) =>
        {
            head.extras = received.clone();
        }
        ScopeMore::Full(more) if head.extras.is_none() => head.extras = more.carried().clone(),
        ScopeMore::Received(received) => {
            if let Some(trace) = ReceivedTrace::of(received.metadata()) {
                trace.inherit(head.metadata_mut());
            }
        }
        ScopeMore::Full(more) => more.inherit(&mut head.extras),
    });
}

impl TraceContext {
    /// Returns the context inherited by calls of the current code: in a handler the context of its call, or of the span
    /// around the handler; see [`layers::Trace`](crate::layers::Trace). `None` outside of handlers.
    pub fn current() -> Option<Self> {
        if CURRENT.get().has_more() { MORE.with_borrow(ScopeMore::trace) } else { None }
    }
}

/// Returns a token that is cancelled when the current handler is dropped before its end.
pub(crate) fn token() -> Option<CancellationToken> {
    let current = CURRENT.get();
    if current.around == ScopeKind::Outside {
        return None;
    }
    CURRENT.set(CurrentCall { around: ScopeKind::CallWithExtras, ..current });
    MORE.with_borrow_mut(|more| Some(more.full().token.get_or_init(CancellationToken::new).clone()))
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        panic::{AssertUnwindSafe, catch_unwind},
        time::Duration,
    };

    use futures_util::FutureExt;

    use super::*;

    fn head(deadline: Option<Instant>) -> Head {
        let mut head = Head::received(None, deadline);
        head.metadata_mut().insert("x-tenant", "7").unwrap();
        head.metadata_mut().insert("traceparent", TRACE).unwrap();
        head.metadata_mut().insert("tracestate", "a=1").unwrap();
        head.metadata_mut().insert("authorization", "secret").unwrap();
        head
    }

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

    /// Returns the names of the metadata of a call made here.
    fn inherited() -> Vec<String> {
        let mut head = Head::default();
        inherit_metadata(&mut head);
        head.metadata().keys().map(str::to_owned).collect()
    }

    #[test]
    fn inherited_values_are_visible_only_inside_a_handler() {
        let at = Instant::now() + Duration::from_secs(1);
        let names = ["x-tenant".to_owned()];
        for (names, expected) in
            [(&names[..], &["x-tenant", "traceparent", "tracestate"][..]), (&[], &["traceparent", "tracestate"])]
        {
            let seen = InScope::new(CallScope::of(&head(Some(at)), names), async {
                (deadline(), inherited(), TraceContext::current())
            });
            let (deadline, seen, trace) = seen.now_or_never().unwrap();
            assert_eq!(deadline, Some(at));
            assert_eq!(seen, expected);
            assert_eq!(trace.map(|trace| trace.to_string()).as_deref(), Some(TRACE));
        }
        assert_eq!(deadline(), None);
        assert!(inherited().is_empty() && TraceContext::current().is_none());
        assert!(token().is_none());
    }

    #[test]
    fn scopes_nest() {
        let at = Instant::now();
        let outer = InScope::new(CallScope::of(&head(Some(at)), &[]), async {
            let inner = InScope::new(CallScope::of(&Head::received(None, None), &[]), async { deadline() });
            (inner.await, deadline())
        });
        assert_eq!(outer.now_or_never(), Some((None, Some(at))));
    }

    #[test]
    fn captured_context_applies_until_its_scope_ends() {
        let at = Instant::now();
        let names = ["x-tenant".to_owned(), "Traceparent".to_owned()];
        let handler = InScope::new(CallScope::of(&head(Some(at)), &names), async { Inherited::here() });
        let mut taken = handler.now_or_never().unwrap();
        let see = || (deadline(), inherited());
        let expected = ["x-tenant", "traceparent", "tracestate"].map(str::to_owned).to_vec();
        for _ in 0..2 {
            assert_eq!(taken.run(see), (Some(at), expected.clone()));
            assert_eq!(see(), (None, Vec::new()));
            let panicked = catch_unwind(AssertUnwindSafe(|| taken.run(|| panic!("as told"))));
            assert!(panicked.is_err());
            assert_eq!(see(), (None, Vec::new()));
        }
        assert_eq!(taken.run(|| Inherited::default().run(see)), (None, Vec::new()));
    }

    #[test]
    fn an_invalid_trace_is_not_inherited() {
        let mut head = Head::received(None, None);
        head.metadata_mut().insert("traceparent", "00-1").unwrap();
        head.metadata_mut().insert("tracestate", "a=1").unwrap();
        let names = ["traceparent".to_owned()];
        for names in [&[][..], &names] {
            let seen = InScope::new(CallScope::of(&head, names), async { (inherited(), TraceContext::current()) });
            assert_eq!(seen.now_or_never(), Some((Vec::new(), None)));
        }
    }

    #[test]
    fn an_unread_trace_takes_no_memory_and_captured_values_do_not_keep_the_head() {
        let head = head(None);
        let scope = CallScope::of(&head, &[]);
        assert!(matches!(scope.inherited.more, ScopeMore::Received(_)));
        let captured = InScope::new(scope, async { Inherited::here() }).now_or_never().unwrap();
        assert!(matches!(captured.more, ScopeMore::Full(_)));
        assert_eq!(captured.trace(), TraceContext::of(head.metadata()));
    }

    #[test]
    fn calls_share_inherited_metadata_until_they_change_it() {
        let mut received = Head::received(None, None);
        received.metadata_mut().insert("traceparent", TRACE).unwrap();
        let call = || {
            let mut head = Head::default();
            inherit_metadata(&mut head);
            head
        };
        let scope = CallScope::of(&received, &[]);
        let (mut first, second) = InScope::new(scope, async { (call(), call()) }).now_or_never().unwrap();
        first.metadata_mut().insert("traceparent", "changed").unwrap();
        first.extensions_mut().insert(1_u8);
        assert_eq!(second.metadata().get("traceparent"), Some(TRACE));
        assert_eq!(received.metadata(), second.metadata());
        // Only the context is inherited, and not in a form of a later version.
        for (parent, name) in [(TRACE, "x-user"), (&*TRACE.replacen("00", "01", 1), "tracestate")] {
            let mut received = Head::received(None, None);
            received.metadata_mut().insert("traceparent", parent).unwrap();
            received.metadata_mut().insert(name, "a=1").unwrap();
            received.extensions_mut().insert(1_u8);
            let called = InScope::new(CallScope::of(&received, &[]), async { call() }).now_or_never().unwrap();
            assert_eq!(called.metadata().get("traceparent"), Some(TRACE));
            assert_eq!((called.metadata().get("x-user"), called.extensions().get::<u8>()), (None, None));
        }
    }

    #[test]
    fn a_span_replaces_the_trace_and_shares_the_token() {
        let span = TraceContext::root(true);
        let mut kept = None;
        let mut handler = Box::pin(InScope::new(CallScope::of(&head(None), &[]), async {
            let outer = token().unwrap();
            Inherited::here()
                .with_trace(Some(span.clone()))
                .wrap(async {
                    assert_eq!(TraceContext::current(), Some(span.clone()));
                    kept = Some((outer, token().unwrap()));
                    pending::<()>().await;
                })
                .await;
        }));
        assert!(handler.as_mut().now_or_never().is_none());
        assert!(TraceContext::current().is_none());
        drop(handler);
        let (outer, inner) = kept.unwrap();
        assert!(outer.is_cancelled() && inner.is_cancelled());
    }

    #[test]
    fn dropping_the_handler_cancels_the_token() {
        let take = |is_ready: bool| async move {
            let token = token().unwrap();
            let sent = token.clone();
            if !is_ready {
                pending::<()>().await;
            }
            sent
        };
        let ended = InScope::new(CallScope::of(&head(None), &[]), take(true)).now_or_never().unwrap();
        assert!(!ended.is_cancelled());

        let mut kept = None;
        let mut held = Box::pin(InScope::new(CallScope::of(&head(None), &[]), async {
            kept = token();
            pending::<()>().await;
        }));
        assert!(held.as_mut().now_or_never().is_none());
        drop(held);
        assert!(kept.unwrap().is_cancelled());
    }
}
