//! Credit-based flow control of streams: how much a sender may send before the reader has read more.
//!
//! ```text
//!   ┌───────────────────────────────── window ────────────────────────────────┐
//!   credit ──data──▶ in flight ──▶ queued, or with the reader ──▶ owed ──CREDIT──▶ credit
//!   SendCredit                                          ReceiveWindow
//! ```
//! At any time, the amounts at the four stations add up to the window, so no credit is lost. A frame may cost more
//! than the remaining credit. The credit then becomes negative.
//!
//! One half of the memory limit for a connection's streams backs their initial windows. [`WindowBudget`] lends out
//! the other half. A window widens while its reader is fast, but only if a multiple of the additional bytes
//! remains available for later streams. Bytes held by a stream beyond its window, after a large frame, are taken
//! from the same half and are not lent meanwhile. All windows filled at the same time therefore never exceed the
//! limit of the connection.
//!
//! After reusing an id, a side may receive credit or data meant for the old stream. Its credit may then be too
//! high, but never too low for its next frame: for a waiting reader, the receiver returns credit once it owes the
//! initial window, however wide it believes the window to be. It never shrinks a window.

use std::time::Duration;

use crate::{Config, clock::Instant};

/// The credit of a stream's sender: the bytes it may still send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SendCredit(i64);

/// The error for a credit above its maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CreditOverflow;

impl SendCredit {
    /// Creates the credit of a new stream.
    pub(super) fn new(window: u32) -> Self {
        let mut credit = Self(0);
        credit.open(window);
        credit
    }

    /// Adds the window of the peer. Data sent before the window was known has already been subtracted.
    pub(super) fn open(&mut self, window: u32) {
        self.0 += i64::from(window).min(CREDIT_MAX);
    }

    #[cfg(test)]
    pub(super) fn left(self) -> i64 {
        self.0
    }

    /// Returns `true` if a frame of any cost may be sent.
    pub(super) fn may_send(self) -> bool {
        self.0 > 0
    }

    /// Subtracts the cost of a frame.
    pub(super) fn spend(&mut self, cost: usize) {
        self.0 = self.0.saturating_sub_unsigned(cost as u64);
    }

    /// Adds credit from the peer. Returns `true` if the sender was out of credit and no longer is.
    pub(super) fn grant(&mut self, len: u32) -> Result<bool, CreditOverflow> {
        let could_send = self.may_send();
        let credit = self.0 + i64::from(len);
        if credit > CREDIT_MAX {
            return Err(CreditOverflow);
        }
        self.0 = credit;
        Ok(self.may_send() && !could_send)
    }
}

/// The window of a stream, on the receiving side.
#[derive(Debug)]
pub(super) struct ReceiveWindow {
    /// The initial width.
    initial: usize,
    len: usize,
    /// Bytes released by the reader and not yet returned to the sender.
    owed: usize,
    /// Credit returned since `since`.
    returned: usize,
    /// The time of the first data, or of the last complete turn of the window.
    since: Option<Instant>,
}

impl ReceiveWindow {
    pub(super) fn new(budget: &WindowBudget) -> Self {
        Self { initial: budget.initial, len: budget.initial, owed: 0, returned: 0, since: None }
    }

    /// Records received data. Returns `true` if the sender had credit for it.
    ///
    /// `held` is the cost of earlier data that is queued or with the reader.
    pub(super) fn receive(&mut self, now: Instant, held: usize) -> bool {
        self.since.get_or_insert(now);
        held + self.owed < self.len
    }

    /// Records that data of this cost was released.
    pub(super) fn release(&mut self, cost: usize) {
        self.owed += cost;
    }

    /// Returns `true` if enough credit is owed to send it.
    ///
    /// Half of the window is enough. While the reader waits, the initial window is also enough, because the sender may
    /// be waiting too. A busy reader will soon release more.
    pub(super) fn is_due(&self, reader_waits: bool) -> bool {
        let enough = if reader_waits { self.initial.min(self.len / 2) } else { self.len / 2 };
        self.owed > 0 && self.owed >= enough
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[cfg(test)]
    pub(super) fn owed(&self) -> usize {
        self.owed
    }

    /// Returns the most bytes the stream may come to hold, given the bytes it holds now.
    pub(super) fn claim(&self, held: usize) -> usize {
        self.len.max(held)
    }

    /// Returns the owed credit, and additional credit after a fast turn of the whole window.
    ///
    /// `claim` is the current claim of the stream on the budget.
    pub(super) fn take_credit(
        &mut self,
        now: Instant,
        round_trip: Option<Duration>,
        budget: &WindowBudget,
        claim: usize,
    ) -> u32 {
        // Any remainder stays due and follows immediately.
        let owed = self.owed.min(WINDOW_MAX);
        self.owed -= owed;
        self.returned += owed;
        let before = self.len;
        if self.returned >= self.len {
            let since = self.since.replace(now).unwrap_or(now);
            let quick = 2 * round_trip.unwrap_or(ROUND_TRIP_UNKNOWN).max(ROUND_TRIP_MIN);
            if now.saturating_duration_since(since) <= quick {
                self.len = self.len.max(budget.widest(claim).min(self.len * 2));
            }
            self.returned = 0;
        }
        u32::try_from(owed + self.len - before).expect("neither window nor owed are more than WINDOW_MAX")
    }
}

/// The memory limit of a connection's streams, divided among their windows.
#[derive(Debug)]
pub(super) struct WindowBudget {
    initial: usize,
    /// The width of the widest window.
    len_max: usize,
    /// The rest of the lent half. Negative after frames beyond their windows.
    free: isize,
}

impl WindowBudget {
    pub(super) fn new(config: &Config) -> Self {
        let initial = initial_window(config) as usize;
        let spare = config.streams_len_max - config.streams_len_max / 2;
        Self { initial, len_max: widest_window(config), free: isize::try_from(spare).unwrap_or(isize::MAX) }
    }

    /// Replaces a stream's claim in the budget. A new or removed stream has a claim of zero.
    pub(super) fn count(&mut self, before: usize, after: usize) {
        self.free = self.free.saturating_add_unsigned(self.lent(before)).saturating_sub_unsigned(self.lent(after));
    }

    #[cfg(test)]
    pub(super) fn free(&self) -> isize {
        self.free
    }

    /// Returns the widest window for a stream with this claim. A multiple of the additional bytes stays available.
    fn widest(&self, claim: usize) -> usize {
        let free = self.free.saturating_add_unsigned(self.lent(claim));
        self.len_max.min(self.initial + usize::try_from(free / (1 + LEFT_MULTIPLE)).unwrap_or(0))
    }

    fn lent(&self, claim: usize) -> usize {
        claim.saturating_sub(self.initial)
    }
}

/// Returns the initial window: half of the memory limit, divided by the largest number of streams.
///
/// It is at least 1, enough to send one frame after the other.
pub(super) fn initial_window(config: &Config) -> u32 {
    let share = config.streams_len_max / 2 / config.streams_max.max(1);
    u32::try_from(share.clamp(1, widest_window(config))).expect("no window is wider than WINDOW_MAX")
}

/// Returns the widest window: twice the limit on unread data, because data being processed counts too.
fn widest_window(config: &Config) -> usize {
    config.stream_queue_len_max.saturating_mul(2).clamp(1, WINDOW_MAX)
}

/// The maximum credit.
const CREDIT_MAX: i64 = i32::MAX as i64;
/// The widest window given by this side. It is far below the maximum credit, to leave room for credits of an old
/// stream on a reused id.
const WINDOW_MAX: usize = 1 << 30;
/// The multiple of its additional bytes that a widening window leaves available. Enough for dozens of busy streams
/// to widen.
const LEFT_MULTIPLE: isize = 8;
/// The round trip assumed before the first measurement.
const ROUND_TRIP_UNKNOWN: Duration = Duration::from_millis(100);
/// The shortest assumed round trip. Frames queued after data take longer than a PING.
const ROUND_TRIP_MIN: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Option<Duration> = Some(Duration::from_millis(50));
    /// The initial window in these tests.
    const INITIAL: usize = 1000;

    /// A budget for ten initial windows and the same amount to lend.
    fn budget() -> WindowBudget {
        WindowBudget::new(&config())
    }

    fn config() -> Config {
        Config {
            streams_max: 10,
            streams_len_max: 20 * INITIAL,
            stream_queue_len_max: 4 * INITIAL,
            ..Config::default()
        }
    }

    /// A window and its claim in the budget.
    struct Lent {
        window: ReceiveWindow,
        claim: usize,
    }

    impl Lent {
        fn new(budget: &WindowBudget) -> Self {
            Self { window: ReceiveWindow::new(budget), claim: INITIAL }
        }

        /// Simulates a reader that releases data of this cost immediately. Returns the credit.
        fn consume(&mut self, now: Instant, cost: usize, budget: &mut WindowBudget) -> u32 {
            self.window.receive(now, 0);
            self.window.release(cost);
            if !self.window.is_due(true) {
                return 0;
            }
            let given = self.window.take_credit(now, ROUND_TRIP, budget, self.claim);
            self.hold(0, budget);
            given
        }

        fn hold(&mut self, held: usize, budget: &mut WindowBudget) {
            let claim = self.window.claim(held);
            budget.count(std::mem::replace(&mut self.claim, claim), claim);
        }

        /// Widens the window as far as possible.
        fn widen(&mut self, now: Instant, budget: &mut WindowBudget) -> usize {
            for _ in 0..10 {
                self.consume(now, self.window.len, budget);
            }
            self.window.len
        }
    }

    #[test]
    fn credit_returns_at_half_a_window_or_for_waiting_readers() {
        let (now, mut budget) = (Instant::now(), budget());
        let mut lent = Lent::new(&budget);
        let len = lent.widen(now, &mut budget);
        assert!(len > 2 * INITIAL);
        lent.window.release(INITIAL - 1);
        assert!(!lent.window.is_due(true));
        lent.window.release(1);
        assert!(lent.window.is_due(true) && !lent.window.is_due(false));
        lent.window.release(len / 2 - INITIAL);
        assert!(lent.window.is_due(false));
    }

    /// Takes every sequence of steps of this length, from a state in which sender and receiver agree.
    fn check_all(credit: SendCredit, window: &Lent, held: &[usize], budget: &WindowBudget, steps: u32) {
        let queued: usize = held.iter().sum();
        let sum = credit.left() + i64::try_from(queued + window.window.owed).unwrap();
        assert_eq!(sum, i64::try_from(window.window.len).unwrap(), "credit is lost or made up");
        let copy = || {
            let ReceiveWindow { initial, len, owed, returned, since } = window.window;
            let budget = WindowBudget { ..*budget };
            (Lent { window: ReceiveWindow { initial, len, owed, returned, since }, claim: window.claim }, budget)
        };
        let now = window.window.since.unwrap_or_else(Instant::now);
        let give = |credit: &mut SendCredit, window: &mut Lent, budget: &mut WindowBudget| {
            let given = window.window.take_credit(now, ROUND_TRIP, budget, window.claim);
            credit.grant(given).expect("the credit is below its maximum");
        };
        if steps == 0 {
            let (mut credit, (mut window, mut budget)) = (credit, copy());
            window.window.release(queued);
            while window.window.is_due(true) {
                give(&mut credit, &mut window, &mut budget);
            }
            return assert!(credit.may_send(), "the sender waits forever");
        }
        for cost in [1, 400, 3 * INITIAL] {
            let (mut credit, (mut window, mut budget)) = (credit, copy());
            if credit.may_send() {
                assert!(window.window.receive(now, queued), "the receiver has seen no credit for it");
                credit.spend(cost);
                window.hold(queued + cost, &mut budget);
                check_all(credit, &window, &[held, &[cost]].concat(), &budget, steps - 1);
            }
        }
        if let [first, rest @ ..] = held {
            let (mut window, mut budget) = copy();
            window.window.release(*first);
            window.hold(queued - first, &mut budget);
            check_all(credit, &window, rest, &budget, steps - 1);
        }
        if window.window.is_due(held.is_empty()) {
            let (mut credit, (mut window, mut budget)) = (credit, copy());
            give(&mut credit, &mut window, &mut budget);
            window.hold(queued, &mut budget);
            check_all(credit, &window, held, &budget, steps - 1);
        }
    }

    #[test]
    fn every_sequence_of_steps_conserves_credit_and_no_sender_waits_forever() {
        let budget = budget();
        let window = Lent::new(&budget);
        check_all(SendCredit::new(INITIAL.try_into().unwrap()), &window, &[], &budget, 7);
    }

    #[test]
    fn bytes_sent_before_the_window_is_known_count() {
        let mut credit = SendCredit::new(0);
        credit.spend(150);
        credit.open(100);
        assert_eq!(credit, SendCredit(-50));
        let mut credit = SendCredit::new(u32::MAX);
        assert_eq!(credit, SendCredit(CREDIT_MAX));
        credit.spend(usize::MAX);
        assert!(!credit.may_send());
    }

    #[test]
    fn credit_returns_when_half_a_window_is_owed() {
        let (now, mut budget) = (Instant::now(), budget());
        let mut slow = Lent::new(&budget);
        assert_eq!(slow.consume(now, 499, &mut budget), 0);
        assert_eq!(slow.consume(now, 1, &mut budget), 500);
        assert_eq!(slow.window.owed, 0);
        assert_eq!(slow.consume(now, 499, &mut budget), 0);
    }

    #[test]
    fn the_smallest_window_passes_one_frame_at_a_time() {
        let now = Instant::now();
        let narrow = Config { streams_len_max: 1, stream_queue_len_max: 0, ..Config::default() };
        let mut budget = WindowBudget::new(&narrow);
        let mut window = ReceiveWindow::new(&budget);
        assert!(window.receive(now, 0));
        budget.count(1, 64);
        assert!(!window.receive(now, 64), "the sender had to wait");
        window.release(64);
        assert!(window.is_due(true));
        budget.count(64, 1);
        assert_eq!(window.take_credit(now, None, &budget, 1), 64);
        assert!(window.receive(now, 0));
    }

    #[test]
    fn windows_double_when_consumed_within_two_round_trips() {
        let (start, mut budget) = (Instant::now(), budget());
        let quick = ROUND_TRIP.unwrap() * 2;
        let mut fast = Lent::new(&budget);
        assert_eq!(fast.consume(start, 500, &mut budget), 500, "this is half a window");
        assert_eq!(fast.consume(start + quick, 500, &mut budget), 500 + 1000);
        let mut slow = Lent::new(&budget);
        assert_eq!(slow.consume(start, 500, &mut budget), 500);
        let late = start + quick + Duration::from_nanos(1);
        assert_eq!(slow.consume(late, 500, &mut budget), 500);
        assert_eq!(slow.consume(late, 1000, &mut budget), 1000 + 1000, "the time counts from the last time round");
    }

    #[test]
    fn round_trips_have_a_default_and_a_minimum() {
        let start = Instant::now();
        for (round_trip, quick) in [(None, ROUND_TRIP_UNKNOWN), (Some(Duration::ZERO), ROUND_TRIP_MIN)] {
            for (took, given) in [(quick * 2, 2000), (quick * 3, 1000)] {
                let budget = budget();
                let mut window = ReceiveWindow::new(&budget);
                window.receive(start, 0);
                window.release(1000);
                assert_eq!(window.take_credit(start + took, round_trip, &budget, INITIAL), given);
            }
        }
    }

    #[test]
    fn windows_widen_while_the_budget_lasts() {
        let (now, mut budget) = (Instant::now(), budget());
        let mut lent: Vec<Lent> = (0..3).map(|_| Lent::new(&budget)).collect();
        let widened: Vec<usize> = lent.iter_mut().map(|lent| lent.widen(now, &mut budget)).collect();
        // A ninth of 10000, then of the rest, then of the new rest.
        assert_eq!(widened, [1000 + 1111, 1000 + 987, 1000 + 878]);
        lent.iter().for_each(|lent| budget.count(lent.claim, 0));
        assert_eq!(budget.free, 10_000, "streams that go leave everything");
    }

    #[test]
    fn windows_are_limited_to_twice_the_queue_limit() {
        let (now, mut budget) = (Instant::now(), WindowBudget::new(&Config { streams_len_max: 1 << 20, ..config() }));
        assert_eq!(budget.initial, 8 * INITIAL);
        let config = Config { streams_max: 1000, streams_len_max: 1 << 20, ..config() };
        budget = WindowBudget::new(&config);
        let mut lent = Lent { window: ReceiveWindow::new(&budget), claim: 0 };
        assert_eq!(lent.widen(now, &mut budget), 8 * INITIAL);
    }

    #[test]
    fn frames_over_their_window_reduce_the_budget() {
        let (now, mut budget) = (Instant::now(), budget());
        let (mut wide, mut over) = (Lent::new(&budget), Lent::new(&budget));
        over.hold(1000 + 9100, &mut budget);
        assert_eq!(budget.free, 900);
        assert_eq!(wide.widen(now, &mut budget), 1000 + 100);
        over.hold(20_000, &mut budget);
        assert_eq!(wide.widen(now, &mut budget), 1000 + 100, "nothing is taken back");
        over.hold(0, &mut budget);
        assert_eq!(wide.widen(now, &mut budget), 1000 + 1111);
    }

    #[test]
    fn wide_windows_return_credit_at_the_initial_size() {
        let (now, mut budget) = (
            Instant::now(),
            WindowBudget::new(&Config { streams_len_max: 100 * INITIAL, streams_max: 50, ..config() }),
        );
        let mut wide = Lent::new(&budget);
        assert_eq!(wide.widen(now, &mut budget), 1000 + 50_000 / 9);
        assert_eq!(wide.consume(now, 999, &mut budget), 0);
        assert_eq!(wide.consume(now, 1, &mut budget), 1000);
    }

    #[test]
    fn streams_share_half_of_the_budget() {
        let default = Config::default();
        assert_eq!(initial_window(&default), 16 * 1024);
        assert_eq!(initial_window(&Config { streams_max: 0, ..default.clone() }), 2 * 1024 * 1024);
        assert_eq!(initial_window(&Config { streams_len_max: 0, ..default.clone() }), 1);
        assert_eq!(initial_window(&Config { stream_queue_len_max: 100, ..default.clone() }), 200);
        let huge = usize::MAX;
        let huge = Config { streams_len_max: huge, stream_queue_len_max: huge, streams_max: 1, ..default };
        assert_eq!(initial_window(&huge) as usize, WINDOW_MAX);
    }
}
