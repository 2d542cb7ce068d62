//! When and how the connections of a server come to their ends.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use tokio::time::sleep;

use crate::{
    CloseReason, Connection,
    proto::{GoAway, Peer},
};

/// The time that connections get, and what their peers get to leave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retirement {
    pub(super) lame_duck: Duration,
    pub(super) age_max: Option<Duration>,
    pub(super) age_grace: Duration,
}

impl Default for Retirement {
    fn default() -> Self {
        Self { lame_duck: Duration::from_secs(5), age_max: None, age_grace: Duration::from_secs(30) }
    }
}

/// Waits until a connection is too old, asks its peer to leave, and has it drain when that takes too long. A connection whose
/// peer cannot be asked is left alone.
pub(super) async fn end_of_old_age(connection: &Connection, age_max: Duration, grace: Duration) {
    sleep(about(age_max)).await;
    // One that says nothing is not known, and does no harm.
    let Ok(Peer::Extended(_)) = connection.recognized().await else { return };
    let text = "the connection is old".into();
    if connection.go_away(GoAway { code: GoAway::AGE, text }) {
        sleep(grace).await;
        connection.shared().drain(CloseReason::TooOld);
    }
}

/// Returns a duration that is up to a tenth longer or shorter.
fn about(duration: Duration) -> Duration {
    // Every state has other keys, which makes the hash of nothing a random number.
    let thousandths = 900 + RandomState::new().hash_one(()) % 201;
    let factor = u32::try_from(thousandths).expect("it is at most 1100");
    duration.checked_mul(factor).map_or(duration, |scaled| scaled / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_differ_by_a_tenth_at_most_both_ways() {
        let hour = Duration::from_secs(3600);
        let ages: Vec<Duration> = (0..1000).map(|_| about(hour)).collect();
        let (least, most) = (ages.iter().min().unwrap(), ages.iter().max().unwrap());
        assert!(*least >= hour * 9 / 10 && *least < hour * 95 / 100, "{least:?}");
        assert!(*most <= hour * 11 / 10 && *most > hour * 105 / 100, "{most:?}");
        assert_eq!(about(Duration::MAX), Duration::MAX);
    }
}
