//! Calls with framed messages: all gRPC calls, and Connect calls with streams.

use std::time::Duration;

use frpc::{Answer, Body, CancelGuard, Code, Head, MethodHandle, MethodKind, Status, codec::Format};

use super::{
    requests::{RequestBody, RequestMessages},
    site::ServeContext,
};

/// Makes a call. For a response stream, also returns a guard that cancels the call if the stream is dropped early.
pub(super) async fn call<B: RequestBody>(
    site: &ServeContext,
    method: MethodHandle,
    format: Format,
    mut head: Head,
    time: Option<Duration>,
    mut requests: RequestMessages<B>,
) -> Result<(Answer, Option<CancelGuard>), Status> {
    let kind = method.method().kind;
    let body = if kind.has_request_stream() {
        Body::Many(requests.into_stream())
    } else {
        let message = requests.single_message(site.settings.body_time(time)).await?;
        requests.attach_memory_to(&mut head);
        Body::from(message)
    };
    call_guarded(site, method, format, head, body).await
}

/// Makes a call with this request. For a response stream, also returns a guard that cancels the call if the stream is
/// dropped early.
pub(super) async fn call_guarded(
    site: &ServeContext,
    method: MethodHandle,
    format: Format,
    mut head: Head,
    body: Body,
) -> Result<(Answer, Option<CancelGuard>), Status> {
    let kind = method.method().kind;
    // A handler with a single response runs inside this future. Dropping the future drops the handler, so it needs no
    // guard.
    let guard = kind.has_response_stream().then(|| head.cancel_on_drop());
    let called = match kind {
        MethodKind::Unary => site.call_unary(method, format, head, body).await,
        _ => site.endpoint.call(method, format, head, body).await,
    };
    match called {
        Ok(answer) => Ok((answer, guard)),
        Err(status) => {
            // Only a deadline abandons a handler. After any other failure, the handler is done and needs no
            // cancellation.
            if status.code() != Code::DeadlineExceeded {
                guard.into_iter().for_each(CancelGuard::disarm);
            }
            Err(status)
        }
    }
}
