//! The arrival of a whole answer, on the way from its transport to the counters of its call.

use std::{
    cell::Cell,
    pin::Pin,
    task::{Context, Poll, ready},
};

use frisbee::clock::Instant;
use futures_util::future::BoxFuture;

use super::{exchange::Answer, status::Status};

thread_local! {
    /// The arrival noted in the current poll of a call.
    static NOTED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Notes when the answer arrived that the current poll of [`call_within`](crate::Caller::call_within) returns.
///
/// The channel counts the time of the call until then. Otherwise it reads the clock once per call.
///
/// ```
/// use frpc::{client::note_arrival, frisbee::clock::Instant};
///
/// let read = Instant::now();
/// note_arrival(read);
/// ```
#[inline]
pub fn note_arrival(at: Instant) {
    NOTED.with(|noted| noted.set(Some(at)));
}

/// A call of a transport. Returns the noted arrival with the answer.
pub(crate) struct ArrivingCall<'a>(pub(crate) BoxFuture<'a, Result<Answer, Status>>);

impl Future for ArrivingCall<'_> {
    type Output = (Result<Answer, Status>, Option<Instant>);

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Another call may have left its note on this thread.
        NOTED.with(|noted| noted.set(None));
        let answered = ready!(self.0.as_mut().poll(cx));
        Poll::Ready((answered, NOTED.with(Cell::get)))
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use bytes::Bytes;
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn an_arrival_belongs_to_the_poll_that_notes_it() {
        let answer = || Ok(Answer::new(Bytes::new().into()));
        let at = Instant::now();
        let noting = ArrivingCall(Box::pin(async move {
            note_arrival(at);
            answer()
        }));
        assert_eq!(noting.now_or_never().map(|(_, arrival)| arrival), Some(Some(at)));
        let silent = ArrivingCall(Box::pin(ready(answer())));
        assert_eq!(silent.now_or_never().map(|(_, arrival)| arrival), Some(None));
    }
}
