//! Attempts to connect.

use std::io;

use frisbee::{Address, Backoff};
use tokio::time::{sleep, timeout};
use tracing::info;

use super::transport::ConnectSettings;
use crate::error::ConnectError;

/// Connects to a server, with the number of attempts, the timeout and the pauses of a channel.
///
/// # Errors
///
/// The error of the last attempt. An error that a retry cannot fix, such as an invalid certificate, ends the attempts
/// early.
pub async fn connect<T, F>(url: &str, settings: &ConnectSettings, attempt: impl Fn() -> F) -> Result<T, ConnectError>
where
    F: Future<Output = io::Result<T>>,
{
    let mut backoff = Backoff::new(settings.retry.pause);
    let mut attempts = 0;
    loop {
        let limit = settings.connect_timeout;
        let error = match timeout(limit, attempt()).await {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(error)) => error,
            Err(_) => io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {limit:?}")),
        };
        attempts += 1;
        let error = frisbee::ConnectError::new(Address::Url(url.to_owned()), attempts, error);
        if attempts >= settings.retry.attempts || error.is_final() {
            info!(%error, "cannot connect");
            return Err(error.into());
        }
        let pause = backoff.pause();
        info!(%error, ?pause, "cannot connect, trying again after a pause");
        sleep(pause).await;
    }
}
