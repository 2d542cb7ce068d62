//! Calls whose messages are frames, as gRPC has all of them and Connect those with streams.

use std::time::Duration;

use frpc::{Answer, Body, CancelGuard, Code, Found, Head, Status, codec::Format};

use super::{
    requests::{RequestBody, Requests},
    site::Site,
};

/// Makes a call. Returns its answer, and what tells the handler if a stream of answers is dropped before its end.
pub(super) async fn call<B: RequestBody>(
    site: &Site,
    method: Found,
    format: Format,
    mut head: Head,
    time: Option<Duration>,
    mut requests: Requests<B>,
) -> Result<(Answer, Option<CancelGuard>), Status> {
    let kind = method.method().kind;
    // A handler that answers with one message is dropped with this, which it can tell others itself.
    let guard = kind.has_response_stream().then(|| head.cancel_on_drop());
    let body = if kind.has_request_stream() {
        Body::Many(requests.into_stream())
    } else {
        let message = requests.one(site.settings.body_time(time)).await?;
        requests.leave_to(&mut head);
        Body::from(message)
    };
    match site.endpoint.call(method, format, head, body).await {
        Ok(answer) => Ok((answer, guard)),
        Err(status) => {
            // The handler was not given up, unless its time was up.
            if status.code() != Code::DeadlineExceeded {
                guard.into_iter().for_each(CancelGuard::disarm);
            }
            Err(status)
        }
    }
}
