//! Expectations of calls, for generated mocks.

use std::{
    any::Any,
    fmt::{self, Debug, Write as _},
    future::{Future, pending},
    ops::{RangeFrom, RangeInclusive, RangeToInclusive},
    panic::Location,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll},
    thread,
    time::Duration,
};

use tokio::time::sleep;

use crate::{
    call::{
        method::Method,
        packed::{BatchSource, PollNext},
        request::{Request, Response},
        status::Status,
        streaming::Streaming,
    },
    service::boxed::BoxFuture,
};

/// The expectations of a mock, and the calls that it got. Generated mocks contain one.
///
/// Clones share their expectations. Dropping the last clone [verifies](Self::verify) them.
#[derive(Clone, Default)]
pub struct MockService(Arc<MockState>);

#[derive(Default)]
struct MockState {
    expectations: Mutex<Vec<Arc<dyn AnyExpectation>>>,
    /// Calls without a matching expectation.
    unexpected: Mutex<Vec<String>>,
    is_verified: Mutex<bool>,
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic of a predicate must not hide the panic of a test.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MockService {
    /// Adds an expectation for calls of a method.
    #[track_caller]
    pub fn expect<Q: Send + 'static, P: Send + 'static>(&self, method: &'static Method) -> Expectation<Q, P> {
        let state = ExpectationState {
            method,
            place: Location::caller(),
            rules: Mutex::new(ExpectationRules::default()),
            calls: Mutex::new(0),
        };
        let state = Arc::new(state);
        lock(&self.0.expectations).push(state.clone());
        Expectation(state)
    }

    /// Answers a call by the first matching expectation with calls left.
    ///
    /// # Errors
    ///
    /// [`Internal`](crate::Code::Internal) without such an expectation. [`verify`](Self::verify) then panics.
    pub async fn answer<Q: Debug + Send + 'static, P: Send + 'static>(
        &self,
        method: &'static Method,
        mut request: Request<Q>,
    ) -> Result<Response<P>, Status> {
        let expectations: Vec<_> = lock(&self.0.expectations).clone();
        for expectation in expectations.into_iter().filter(|expectation| expectation.method() == method) {
            let Ok(expectation) = expectation.into_any().downcast::<ExpectationState<Q, P>>() else { continue };
            let (matches, read) = {
                let rules = lock(&expectation.rules);
                (rules.matches.clone(), rules.read.clone())
            };
            if matches.is_some_and(|matches| !matches(&request)) {
                continue;
            }
            if let Some(read) = read {
                let (is_match, again) = read(request).await;
                request = again;
                if !is_match {
                    continue;
                }
            }
            if let Some(answer) = expectation.take_call() {
                return answer(request).await;
            }
        }
        let text = self.describe_unexpected(method, request.get_ref());
        lock(&self.0.unexpected).push(text.clone());
        Err(Status::internal(text))
    }

    fn describe_unexpected(&self, method: &'static Method, request: &dyn Debug) -> String {
        let mut text = format!("unexpected call of {method} with {request:?}");
        let expectations = lock(&self.0.expectations);
        let same: Vec<_> = expectations.iter().filter(|expectation| expectation.method() == method).collect();
        if same.is_empty() {
            text.push_str(", a method without expectations");
        }
        for expectation in same {
            // Writing to memory does not fail.
            let _ = write!(text, "\n  {}", expectation.describe());
        }
        text
    }

    /// Checks that every expectation got its calls, and that no other call arrived.
    ///
    /// # Panics
    ///
    /// If not. The text names each missed expectation, with its place in the test, and each unexpected call.
    #[track_caller]
    pub fn verify(&self) {
        *lock(&self.0.is_verified) = true;
        if let Some(text) = self.0.failures() {
            panic!("{text}");
        }
    }
}

impl MockState {
    fn failures(&self) -> Option<String> {
        let missed = lock(&self.expectations);
        let missed = missed.iter().filter(|expectation| !expectation.is_satisfied());
        let missed = missed.map(|expectation| format!("missed: {}", expectation.describe()));
        let failures: Vec<_> = missed.chain(lock(&self.unexpected).iter().cloned()).collect();
        (!failures.is_empty()).then(|| format!("the expectations of a mock are not met\n{}", failures.join("\n")))
    }
}

impl Drop for MockState {
    fn drop(&mut self) {
        if thread::panicking() || *lock(&self.is_verified) {
            return;
        }
        if let Some(text) = self.failures() {
            panic!("{text}");
        }
    }
}

impl Debug for MockService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expectations = lock(&self.0.expectations);
        f.debug_list().entries(expectations.iter().map(|expectation| expectation.describe())).finish()
    }
}

/// An expectation of any types.
trait AnyExpectation: Send + Sync {
    fn method(&self) -> &'static Method;
    fn is_satisfied(&self) -> bool;
    fn describe(&self) -> String;
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// Calls that a mock expects, and its answer to them.
///
/// `Q` and `P` are the messages of the method, or [`Streaming`] ones. Without further settings, it matches all requests,
/// any number of times, and fails with [`Unimplemented`](crate::Code::Unimplemented). A call is answered by the first
/// expectation that matches and has calls left.
pub struct Expectation<Q, P>(Arc<ExpectationState<Q, P>>);

struct ExpectationState<Q, P> {
    method: &'static Method,
    place: &'static Location<'static>,
    rules: Mutex<ExpectationRules<Q, P>>,
    calls: Mutex<u64>,
}

type Matching<Q> = Arc<dyn Fn(&Request<Q>) -> bool + Send + Sync>;

/// Reads a whole request and compares it. Returns a request with the same messages.
type Reading<Q> = Arc<dyn Fn(Request<Q>) -> BoxFuture<'static, (bool, Request<Q>)> + Send + Sync>;

type Answering<Q, P> = Arc<dyn Fn(Request<Q>) -> BoxFuture<'static, Result<Response<P>, Status>> + Send + Sync>;

type Changing<P> = Arc<dyn Fn(Response<P>) -> Response<P> + Send + Sync>;

struct ExpectationRules<Q, P> {
    count: CallCount,
    matches: Option<Matching<Q>>,
    read: Option<Reading<Q>>,
    answer: Option<Answering<Q, P>>,
    change: Option<Changing<P>>,
    delay: Duration,
    /// The text for people in place of the requests.
    requests: String,
    sequence: Option<(Sequence, usize)>,
}

impl<Q, P> Default for ExpectationRules<Q, P> {
    fn default() -> Self {
        Self {
            count: CallCount { min: 0, max: u64::MAX },
            matches: None,
            read: None,
            answer: None,
            change: None,
            delay: Duration::ZERO,
            requests: "any request".to_owned(),
            sequence: None,
        }
    }
}

/// A number of calls, or a range of it, for [`Expectation::times`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallCount {
    min: u64,
    max: u64,
}

impl From<u64> for CallCount {
    fn from(count: u64) -> Self {
        Self { min: count, max: count }
    }
}

impl From<RangeInclusive<u64>> for CallCount {
    fn from(range: RangeInclusive<u64>) -> Self {
        Self { min: *range.start(), max: *range.end() }
    }
}

impl From<RangeFrom<u64>> for CallCount {
    fn from(range: RangeFrom<u64>) -> Self {
        Self { min: range.start, max: u64::MAX }
    }
}

impl From<RangeToInclusive<u64>> for CallCount {
    fn from(range: RangeToInclusive<u64>) -> Self {
        Self { min: 0, max: range.end }
    }
}

impl fmt::Display for CallCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.min, self.max) {
            (0, u64::MAX) => f.write_str("any number of calls"),
            (min, u64::MAX) => write!(f, "at least {min} calls"),
            (1, 1) => f.write_str("1 call"),
            (min, max) if min == max => write!(f, "{min} calls"),
            (min, max) => write!(f, "{min} to {max} calls"),
        }
    }
}

/// An order of expectations, also of several mocks: each one gets no call before the ones added earlier are satisfied.
///
/// ```
/// use frpc::testing::Sequence;
///
/// let order = Sequence::new();
/// // mock.expect_open().times(1).in_sequence(&order).answering(…);
/// // mock.expect_close().times(1).in_sequence(&order).answering(…);
/// # let _ = order;
/// ```
#[derive(Clone, Default)]
pub struct Sequence(Arc<Mutex<Vec<Weak<dyn AnyExpectation>>>>);

impl Sequence {
    /// Creates an empty order.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sequence").field(&lock(&self.0).len()).finish()
    }
}

impl<Q: Send + 'static, P: Send + 'static> Expectation<Q, P> {
    /// Sets the number of calls: `2`, `1..=3`, `1..` or `..=2`. Default: any number.
    pub fn times(self, count: impl Into<CallCount>) -> Self {
        self.rules().count = count.into();
        self
    }

    /// Expects no call.
    pub fn never(self) -> Self {
        self.times(0)
    }

    /// Expects requests with this message.
    pub fn with(self, message: Q) -> Self
    where
        Q: PartialEq + Debug + Sync,
    {
        self.rules().requests = format!("{message:?}");
        self.matching(move |request| *request.get_ref() == message)
    }

    /// Expects requests for which the predicate returns `true`. It sees metadata and peer, too.
    pub fn withf(self, matches: impl Fn(&Request<Q>) -> bool + Send + Sync + 'static) -> Self {
        self.rules().requests = "a request that fits its predicate".to_owned();
        self.matching(matches)
    }

    fn matching(self, matches: impl Fn(&Request<Q>) -> bool + Send + Sync + 'static) -> Self {
        self.rules().matches = Some(Arc::new(matches));
        self
    }

    /// Expects the calls after the expectations added to this order before.
    pub fn in_sequence(self, order: &Sequence) -> Self {
        let own: Arc<dyn AnyExpectation> = self.0.clone();
        let at = {
            let mut all = lock(&order.0);
            all.push(Arc::downgrade(&own));
            all.len() - 1
        };
        self.rules().sequence = Some((order.clone(), at));
        self
    }

    /// Answers with the result of a function.
    pub fn returning(self, answer: impl Fn(Request<Q>) -> Result<Response<P>, Status> + Send + Sync + 'static) -> Self {
        self.returning_async(move |request| {
            let answer = answer(request);
            async { answer }
        })
    }

    /// Answers with the result of an asynchronous function.
    pub fn returning_async<F>(self, answer: impl Fn(Request<Q>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Response<P>, Status>> + Send + 'static,
    {
        self.rules().answer = Some(Arc::new(move |request| Box::pin(answer(request))));
        self
    }

    /// Answers with copies of this message.
    pub fn answering(self, message: P) -> Self
    where
        P: Clone + Sync,
    {
        self.returning(move |_| Ok(message.clone().into()))
    }

    /// Fails with this status.
    pub fn failing(self, status: Status) -> Self {
        self.returning(move |_| Err(status.clone()))
    }

    /// Never answers, so that the caller waits until its deadline.
    pub fn never_answering(self) -> Self {
        self.returning_async(|_| pending())
    }

    /// Waits before the answer.
    pub fn delayed(self, delay: Duration) -> Self {
        self.rules().delay = delay;
        self
    }

    fn rules(&self) -> MutexGuard<'_, ExpectationRules<Q, P>> {
        lock(&self.0.rules)
    }
}

impl<M: Clone + PartialEq + Debug + Send + Sync + 'static, P: Send + 'static> Expectation<Streaming<M>, P> {
    /// Expects streams of exactly these requests. The mock reads the whole stream before it answers.
    pub fn with_messages(self, messages: impl IntoIterator<Item = M>) -> Self {
        let expected: Arc<[M]> = messages.into_iter().collect();
        self.rules().requests = format!("{expected:?}");
        self.rules().read = Some(Arc::new(move |request| {
            let expected = expected.clone();
            Box::pin(async move {
                let (head, mut stream) = request.into_parts();
                let (mut read, mut failure) = (Vec::new(), None);
                loop {
                    match stream.message().await {
                        Ok(Some(message)) => read.push(message),
                        Ok(None) => break,
                        Err(status) => {
                            failure = Some(status);
                            break;
                        }
                    }
                }
                let is_match = failure.is_none() && read[..] == expected[..];
                let again = read.into_iter().map(Ok).chain(failure.map(Err));
                (
                    is_match,
                    Request::from_parts(head, Streaming::new(futures_util::stream::iter(again.collect::<Vec<_>>()))),
                )
            })
        }));
        self
    }
}

impl<Q: Send + 'static, M: Send + 'static> Expectation<Q, Streaming<M>> {
    /// Answers with a stream of these messages.
    pub fn answering_all(self, messages: impl IntoIterator<Item = M>) -> Self
    where
        M: Clone + Sync,
    {
        let messages: Arc<[M]> = messages.into_iter().collect();
        self.returning(move |_| Ok(Streaming::from_iter(messages.to_vec()).into()))
    }

    /// Cuts the stream of answers with a status after some messages.
    pub fn cut_after(self, messages: usize, status: Status) -> Self {
        self.rules().change = Some(Arc::new(move |response| {
            let cut = Some((messages, status.clone()));
            response.map(|messages| messages.changed(|messages| CutAnswers { messages, cut }))
        }));
        self
    }
}

impl<Q: Send + 'static, P: Send + 'static> ExpectationState<Q, P> {
    /// Counts a call and returns its answer, if the expectation has calls left and its turn has come.
    fn take_call(&self) -> Option<Answering<Q, P>> {
        let rules = lock(&self.rules);
        if let Some((order, at)) = &rules.sequence {
            let earlier = lock(&order.0)[..*at].to_vec();
            // An expectation of a dropped mock was verified.
            if !earlier.iter().filter_map(Weak::upgrade).all(|earlier| earlier.is_satisfied()) {
                return None;
            }
        }
        let mut calls = lock(&self.calls);
        if *calls >= rules.count.max {
            return None;
        }
        *calls += 1;
        let (answer, change, delay, method) = (rules.answer.clone(), rules.change.clone(), rules.delay, self.method);
        Some(Arc::new(move |request| {
            let (answer, change) = (answer.clone(), change.clone());
            Box::pin(async move {
                if !delay.is_zero() {
                    sleep(delay).await;
                }
                let Some(answer) = answer else {
                    return Err(Status::unimplemented(format!("the expectation of {method} has no answer")));
                };
                let response = answer(request).await?;
                Ok(match change {
                    Some(change) => change(response),
                    None => response,
                })
            })
        }))
    }
}

impl<Q: Send + 'static, P: Send + 'static> AnyExpectation for ExpectationState<Q, P> {
    fn method(&self) -> &'static Method {
        self.method
    }

    fn is_satisfied(&self) -> bool {
        let min = lock(&self.rules).count.min;
        *lock(&self.calls) >= min
    }

    fn describe(&self) -> String {
        let rules = lock(&self.rules);
        let ExpectationRules { count, requests, sequence, .. } = &*rules;
        let order = if sequence.is_some() { ", in a sequence" } else { "" };
        format!("{} with {requests}: expected {count}, got {}{order} ({})", self.method, lock(&self.calls), self.place)
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

impl<Q: Send + 'static, P: Send + 'static> Debug for Expectation<Q, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expectation").field(&self.0.describe()).finish()
    }
}

/// A stream of answers with a cut.
struct CutAnswers<M> {
    messages: Streaming<M>,
    /// The number of messages before the cut, and its status. `None` after it.
    cut: Option<(usize, Status)>,
}

impl<M: Send> BatchSource<M> for CutAnswers<M> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> PollNext<M> {
        match &mut self.cut {
            None => Poll::Ready(None),
            Some((0, _)) => Poll::Ready(self.cut.take().map(|(_, status)| Err(status))),
            Some((left, _)) => {
                let next = self.messages.poll(cx);
                if matches!(&next, Poll::Ready(Some(Ok(_)))) {
                    *left -= 1;
                }
                next
            }
        }
    }
}
