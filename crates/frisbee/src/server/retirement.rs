//! The age limit of a server's connections.

use std::{pin::pin, time::Duration};

use futures_util::future::{Either, select};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{
    CloseReason, Connection,
    proto::{GoAway, PeerProtocol},
};

/// Waits until a connection reaches its maximum age, asks its peer to leave, and drains it after the grace time.
///
/// Does nothing to a connection whose peer cannot be asked.
pub(super) async fn enforce_age_limit(connection: &Connection, age_max: Duration, grace: Duration) {
    sleep(with_jitter(age_max)).await;
    // Waits forever for a silent peer, which causes no load.
    let Ok(PeerProtocol::Extended(_)) = connection.recognized().await else { return };
    let text = "the connection is old".into();
    if connection.go_away(GoAway { code: GoAway::AGE, text }) {
        sleep(grace).await;
        connection.shared().drain(CloseReason::TooOld);
    }
}

/// Serves a connection of another protocol, and asks it to leave the connection at the maximum age.
pub(super) async fn serve_until_old(serving: impl Future<Output = ()>, leaving: CancellationToken, age_max: Duration) {
    let old = pin!(sleep(with_jitter(age_max)));
    if let Either::Right(((), serving)) = select(pin!(serving), old).await {
        leaving.cancel();
        serving.await;
    }
}

/// Returns the duration, changed at random by up to a tenth.
fn with_jitter(duration: Duration) -> Duration {
    duration.checked_mul(fastrand::u32(900..=1100)).map_or(duration, |scaled| scaled / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_vary_by_at_most_a_tenth() {
        let hour = Duration::from_secs(3600);
        let ages: Vec<Duration> = (0..1000).map(|_| with_jitter(hour)).collect();
        let (least, most) = (ages.iter().min().unwrap(), ages.iter().max().unwrap());
        assert!(*least >= hour * 9 / 10 && *least < hour * 95 / 100, "{least:?}");
        assert!(*most <= hour * 11 / 10 && *most > hour * 105 / 100, "{most:?}");
        assert_eq!(with_jitter(Duration::MAX), Duration::MAX);
    }
}
