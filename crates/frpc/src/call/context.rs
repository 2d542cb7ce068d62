//! The call served by the current handler, and the values its own calls inherit.

use std::{
    cell::{Cell, RefCell},
    fmt, mem,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context as TaskContext, Poll},
    time::Instant,
};

use pin_project_lite::pin_project;
use tokio_util::sync::CancellationToken;

use super::{head::Head, metadata::Metadata};

thread_local! {
    /// The call of the handler polled by this thread.
    static CURRENT: Cell<CurrentCall> = const { Cell::new(CurrentCall::OUTSIDE) };
    /// The rarely used part of the same call.
    static MORE: RefCell<Option<Arc<ScopeExtras>>> = const { RefCell::new(None) };
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
#[derive(Default)]
struct ScopeExtras {
    metadata: Metadata,
    /// Cancelled when the handler is dropped before its end.
    token: OnceLock<CancellationToken>,
}

/// The values inherited by calls made inside a handler: its deadline, and [selected
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
    more: Option<Arc<ScopeExtras>>,
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
        Self { deadline: deadline(), more: MORE.with_borrow(Option::clone) }
    }

    /// Returns the values inherited from a call with this head: its deadline, and the metadata with these names.
    #[inline]
    pub(crate) fn of<'a>(head: &Head, names: impl FnOnce() -> &'a [String]) -> Self {
        let more = if head.metadata().is_empty() { None } else { ScopeExtras::of(head.metadata(), names()) };
        Self { deadline: head.deadline(), more }
    }

    /// Runs code with exactly these inherited values.
    #[inline]
    pub fn run<T>(&mut self, code: impl FnOnce() -> T) -> T {
        // The common case: nothing to inherit, and no enclosing scope to hide.
        let is_nothing = self.deadline.is_none() && self.more.is_none();
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
        let metadata = self.more.as_ref().map(|more| &more.metadata);
        f.debug_struct("Inherited").field("deadline", &self.deadline).field("metadata", &metadata).finish()
    }
}

impl CallScope {
    /// Returns the scope of a call without inherited metadata.
    #[inline]
    pub(crate) fn until(deadline: Option<Instant>) -> Self {
        Self { inherited: Inherited { deadline, more: None }, is_over: false }
    }

    /// Returns the scope of a call with this head. Calls inherit the metadata with these names.
    #[inline]
    pub(crate) fn of(head: &Head, names: &[String]) -> Self {
        Self { inherited: Inherited::of(head, || names), is_over: false }
    }
}

impl ScopeExtras {
    fn of(metadata: &Metadata, names: &[String]) -> Option<Arc<Self>> {
        let is_inherited = names.iter().any(|name| metadata.contains_key(name));
        is_inherited.then(|| Arc::new(Self { metadata: metadata.only(names), token: OnceLock::new() }))
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
        if let (false, Some(more)) = (self.is_over, &self.inherited.more)
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

/// Passes the inherited metadata of the current code to `add`, unless there is none.
pub(crate) fn inherited_metadata(add: impl FnOnce(&Metadata)) {
    let more = MORE.with_borrow(Option::clone);
    if let Some(more) = more.filter(|more| !more.metadata.is_empty()) {
        add(&more.metadata);
    }
}

/// Returns a token that is cancelled when the current handler is dropped before its end.
pub(crate) fn token() -> Option<CancellationToken> {
    let current = CURRENT.get();
    if current.around == ScopeKind::Outside {
        return None;
    }
    CURRENT.set(CurrentCall { around: ScopeKind::CallWithExtras, ..current });
    MORE.with_borrow_mut(|more| Some(more.get_or_insert_default().token.get_or_init(CancellationToken::new).clone()))
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
        head.metadata_mut().insert("traceparent", "00-1").unwrap();
        head.metadata_mut().insert("authorization", "secret").unwrap();
        head
    }

    #[test]
    fn inherited_values_are_visible_only_inside_a_handler() {
        let at = Instant::now() + Duration::from_secs(1);
        let names = ["traceparent".to_owned()];
        let seen = InScope::new(CallScope::of(&head(Some(at)), &names), async {
            let mut seen = Vec::new();
            inherited_metadata(|metadata| seen.extend(metadata.keys().map(str::to_owned)));
            (deadline(), seen)
        });
        assert_eq!(seen.now_or_never().unwrap(), (Some(at), vec!["traceparent".to_owned()]));
        assert_eq!(deadline(), None);
        inherited_metadata(|_| panic!("there is none"));
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
        let names = ["traceparent".to_owned()];
        let handler = InScope::new(CallScope::of(&head(Some(at)), &names), async { Inherited::here() });
        let mut taken = handler.now_or_never().unwrap();
        let see = || {
            let mut seen = Vec::new();
            inherited_metadata(|metadata| seen.extend(metadata.keys().map(str::to_owned)));
            (deadline(), seen)
        };
        for _ in 0..2 {
            assert_eq!(taken.run(see), (Some(at), vec!["traceparent".to_owned()]));
            assert_eq!(see(), (None, Vec::new()));
            let panicked = catch_unwind(AssertUnwindSafe(|| taken.run(|| panic!("as told"))));
            assert!(panicked.is_err());
            assert_eq!(see(), (None, Vec::new()));
        }
        assert_eq!(taken.run(|| Inherited::default().run(see)), (None, Vec::new()));
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
