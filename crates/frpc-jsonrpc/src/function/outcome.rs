//! Conversion of function results to JSON.

use std::{
    future::Future,
    pin::Pin,
    task::{Context as TaskContext, Poll, Waker, ready},
};

use frpc::{Inherited, Status};
use pin_project_lite::pin_project;
use serde::Serialize;

use super::Called;

/// Appends the result of a finished function.
#[inline]
pub fn finish<T: Serialize>(function: &'static str, result: Result<T, Status>, out: &mut Vec<u8>) -> Called {
    match result.and_then(|value| write(function, &value, out)) {
        Ok(()) => Called::Written,
        Err(status) => Called::Failed(status),
    }
}

/// Starts an `async` function. Appends its result if it finishes immediately.
#[inline]
pub fn start<T, F>(function: &'static str, future: F, out: &mut Vec<u8>) -> Called
where
    T: Serialize,
    F: Future<Output = Result<T, Status>> + Send + 'static,
{
    let mut future = Box::pin(RunningFunction { function, future });
    // No waker is needed: the receiver of a pending future polls it again.
    match future.as_mut().project().future.poll(&mut TaskContext::from_waker(Waker::noop())) {
        Poll::Ready(result) => finish(function, result, out),
        Poll::Pending => Called::Later(future),
    }
}

/// Runs a blocking function on the thread pool for blocking tasks.
pub fn block<T: Serialize>(function: &'static str, run: impl FnOnce() -> Result<T, Status> + Send + 'static) -> Called {
    let mut inherited = Inherited::here();
    let handle = tokio::task::spawn_blocking(move || inherited.run(|| to_vec(function, run())));
    Called::Later(Box::pin(async move {
        match handle.await {
            Ok(result) => result,
            Err(error) if error.is_panic() => Err(Status::internal("the handler panicked")),
            Err(_) => Err(Status::unavailable("the server is shutting down")),
        }
    }))
}

/// Converts the result of a fallible function.
#[inline]
pub fn result<T, E: Into<Status>>(result: Result<T, E>) -> Result<T, Status> {
    result.map_err(Into::into)
}

pin_project! {
    /// A running function with a JSON result. It is boxed before the first poll, so it does not move afterwards.
    struct RunningFunction<F> {
        function: &'static str,
        #[pin]
        future: F,
    }
}

impl<T: Serialize, F: Future<Output = Result<T, Status>>> Future for RunningFunction<F> {
    type Output = Result<Vec<u8>, Status>;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.future.poll(cx));
        Poll::Ready(to_vec(this.function, result))
    }
}

fn to_vec<T: Serialize>(function: &str, result: Result<T, Status>) -> Result<Vec<u8>, Status> {
    let mut out = Vec::new();
    write(function, &result?, &mut out)?;
    Ok(out)
}

#[inline]
fn write<T: Serialize>(function: &str, value: &T, out: &mut Vec<u8>) -> Result<(), Status> {
    let start = out.len();
    serde_json::to_writer(&mut *out, value).map_err(|error| {
        out.truncate(start);
        Status::internal(format!("the result of `{function}` cannot be written as JSON: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn an_unserializable_result_leaves_no_output() {
        let mut out = b"before".to_vec();
        let value = HashMap::from([((1, 2), 3)]);
        let Called::Failed(status) = finish("f", Ok(value), &mut out) else { panic!("keys are text") };
        assert_eq!(status.message(), "the result of `f` cannot be written as JSON: key must be a string");
        assert_eq!(out, b"before");
    }
}
