//! The call that a handler serves, as far as the calls that it makes itself inherit from it.

use std::{
    cell::RefCell,
    mem,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context as TaskContext, Poll},
    time::Instant,
};

use tokio_util::sync::CancellationToken;

use super::{head::Head, metadata::Metadata};

thread_local! {
    /// The call whose handler this thread is polling.
    static CURRENT: RefCell<Scope> = const { RefCell::new(Scope::Outside) };
}

/// The call that code runs for.
#[derive(Default)]
pub(crate) enum Scope {
    #[default]
    Outside,
    /// A call of which nobody has asked for anything.
    Unasked,
    Known(Arc<Inherited>),
}

#[derive(Default)]
pub(crate) struct Inherited {
    deadline: Option<Instant>,
    metadata: Metadata,
    /// Cancelled when the handler is dropped.
    token: OnceLock<CancellationToken>,
}

/// A handler under way. What it does while it is polled is done for its call.
pub(crate) struct InScope<'a, T> {
    handler: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
    guard: Guard,
}

/// Tells those that the handler left behind when it is dropped.
struct Guard {
    scope: Scope,
    is_over: bool,
}

impl Scope {
    /// Returns the scope of a call with this head, of whose metadata the values of these names are inherited.
    #[inline]
    pub(crate) fn of(head: &Head, names: &[String]) -> Self {
        let (deadline, metadata) = (head.deadline(), head.metadata());
        let inherits_metadata = !metadata.is_empty() && names.iter().any(|name| metadata.contains_key(name));
        if deadline.is_none() && !inherits_metadata {
            return Self::Unasked;
        }
        Self::Known(Arc::new(Inherited { deadline, metadata: metadata.only(names), token: OnceLock::new() }))
    }
}

impl<'a, T> InScope<'a, T> {
    /// Puts a handler, which must not panic, into the scope of its call.
    pub(crate) fn new(scope: Scope, handler: impl Future<Output = T> + Send + 'a) -> Self {
        Self { handler: Box::pin(handler), guard: Guard { scope, is_over: false } }
    }
}

impl<T> Future for InScope<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<T> {
        let Self { handler, guard } = &mut *self;
        let around = CURRENT.replace(mem::take(&mut guard.scope));
        let polled = handler.as_mut().poll(cx);
        guard.scope = CURRENT.replace(around);
        guard.is_over = polled.is_ready();
        polled
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let (false, Scope::Known(inherited)) = (self.is_over, &self.scope)
            && let Some(token) = inherited.token.get()
        {
            token.cancel();
        }
    }
}

/// Returns whether calls that this code makes inherit anything.
#[inline]
pub(crate) fn is_inherited() -> bool {
    CURRENT.with_borrow(|scope| matches!(scope, Scope::Known(_)))
}

/// Returns when the call ends for which this code runs.
pub(crate) fn deadline() -> Option<Instant> {
    CURRENT.with_borrow(|scope| match scope {
        Scope::Known(inherited) => inherited.deadline,
        Scope::Outside | Scope::Unasked => None,
    })
}

/// Gives `add` the metadata that calls inherit from the one for which this code runs, if there is any.
pub(crate) fn inherited_metadata(add: impl FnOnce(&Metadata)) {
    let inherited = CURRENT.with_borrow(|scope| match scope {
        Scope::Known(inherited) if !inherited.metadata.is_empty() => Some(inherited.clone()),
        _ => None,
    });
    if let Some(inherited) = inherited {
        add(&inherited.metadata);
    }
}

/// Returns a token that is cancelled if the handler for which this code runs is dropped before it is done.
pub(crate) fn token() -> Option<CancellationToken> {
    CURRENT.with_borrow_mut(|scope| {
        if let Scope::Unasked = scope {
            *scope = Scope::Known(Arc::default());
        }
        match scope {
            Scope::Known(inherited) => Some(inherited.token.get_or_init(CancellationToken::new).clone()),
            Scope::Outside | Scope::Unasked => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::{future::pending, time::Duration};

    use futures_util::FutureExt;

    use super::*;

    fn head(deadline: Option<Instant>) -> Head {
        let mut head = Head::received(None, deadline);
        head.metadata_mut().insert("traceparent", "00-1").unwrap();
        head.metadata_mut().insert("authorization", "secret").unwrap();
        head
    }

    #[test]
    fn code_in_a_handler_sees_what_it_inherits_and_code_outside_nothing() {
        let at = Instant::now() + Duration::from_secs(1);
        let names = ["traceparent".to_owned()];
        let seen = InScope::new(Scope::of(&head(Some(at)), &names), async {
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
        let outer = InScope::new(Scope::of(&head(Some(at)), &[]), async {
            let inner = InScope::new(Scope::of(&Head::received(None, None), &[]), async { deadline() });
            (inner.await, deadline())
        });
        assert_eq!(outer.now_or_never(), Some((None, Some(at))));
    }

    #[test]
    fn a_token_is_cancelled_by_the_drop_of_the_handler_and_not_by_its_end() {
        let take = |is_ready: bool| async move {
            let token = token().unwrap();
            let sent = token.clone();
            if !is_ready {
                pending::<()>().await;
            }
            sent
        };
        let ended = InScope::new(Scope::of(&head(None), &[]), take(true)).now_or_never().unwrap();
        assert!(!ended.is_cancelled());

        let mut kept = None;
        let mut held = Box::pin(InScope::new(Scope::of(&head(None), &[]), async {
            kept = token();
            pending::<()>().await;
        }));
        assert!(held.as_mut().now_or_never().is_none());
        drop(held);
        assert!(kept.unwrap().is_cancelled());
    }
}
