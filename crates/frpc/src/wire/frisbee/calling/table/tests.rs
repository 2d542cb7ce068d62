use std::{collections::HashSet, time::Duration};

use frisbee::Operation;

use super::*;

const SAY: u16 = 10;
const ASK: u16 = 11;

fn answer(id: u16) -> Packet {
    Packet::new(id, Operation::new(SAY).unwrap(), "answer")
}

fn begin(table: &mut CallIdTable) -> u16 {
    table.insert(SAY, None, None).unwrap().unwrap()
}

fn begin_and_give_up(table: &mut CallIdTable) -> u16 {
    let id = begin(table);
    table.remove(id, true);
    id
}

/// Makes and answers `times` calls, and returns their ids.
fn answered(table: &mut CallIdTable, times: u32) -> HashSet<u16> {
    (0..times)
        .map(|_| {
            let id = begin(table);
            assert!(table.complete(answer(id), None).is_ok());
            table.remove(id, true);
            id
        })
        .collect()
}

#[test]
fn ids_of_pending_calls_are_skipped_on_wraparound() {
    let mut table = CallIdTable::new(100);
    let waiting = [begin(&mut table), begin(&mut table)];
    let seen = answered(&mut table, u32::from(u16::MAX));
    assert!(waiting.iter().all(|id| !seen.contains(id)));
    assert!(seen.len() > 40_000, "{} ids used", seen.len());
}

#[test]
fn every_id_can_be_in_use_simultaneously() {
    let mut table = CallIdTable::new(usize::MAX);
    let ids: HashSet<u16> = (0..CALLS_MAX).map(|_| begin(&mut table)).collect();
    assert_eq!(ids.len(), CALLS_MAX);
    assert!(table.insert(SAY, None, None).unwrap().is_none());
    table.remove(ids.into_iter().next().unwrap(), true);
    begin(&mut table);
}

#[test]
fn an_abandoned_id_is_reserved_until_its_answer() {
    let mut table = CallIdTable::new(100);
    let given_up = begin_and_give_up(&mut table);
    assert!(!answered(&mut table, 1 << 17).contains(&given_up));
    let other = Packet { operation: Operation::new(ASK).unwrap(), ..answer(given_up) };
    let asked = table.insert(ASK, None, None).unwrap().unwrap();
    assert!(table.complete(other, None).is_ok());
    assert!(!answered(&mut table, 1 << 17).contains(&given_up), "that was no answer to it");
    table.remove(asked, true);
    assert!(table.complete(answer(given_up), None).is_ok());
    assert!(answered(&mut table, 1 << 17).contains(&given_up));
}

#[test]
fn an_unsent_call_reserves_no_id() {
    let mut table = CallIdTable::new(100);
    for _ in 0..1 << 17 {
        let id = begin(&mut table);
        table.remove(id, false);
    }
    assert_eq!(table.owed.len(), 0);
}

#[test]
fn no_call_starts_with_over_half_of_the_ids_abandoned() {
    let mut table = CallIdTable::new(usize::MAX);
    let waiting = begin(&mut table);
    let given_up: Vec<u16> = (0..=OWED_MAX).map(|_| begin_and_give_up(&mut table)).collect();
    assert_eq!(given_up.iter().collect::<HashSet<_>>().len(), OWED_MAX + 1);
    let refused = table.insert(SAY, None, None).unwrap_err();
    assert!(matches!(refused, CannotBegin::OutOfIds { owed } if owed == OWED_MAX + 1), "{refused:?}");
    let cx = Context::from_waker(Waker::noop());
    assert!(table.complete(answer(waiting), None).is_ok());
    assert!(matches!(table.poll(&cx, waiting), Poll::Ready(Ok(_))), "a call under way may still be answered");
    assert!(table.complete(answer(given_up[0]), None).is_ok());
    assert!(!given_up[1..].contains(&begin(&mut table)));
}

#[test]
fn all_other_ids_stay_usable_with_half_of_them_abandoned() {
    let mut table = CallIdTable::new(usize::MAX);
    let mut given_up: HashSet<u16> = (0..OWED_MAX).map(|_| begin_and_give_up(&mut table)).collect();
    given_up.extend((0..CALLS_MAX).map(|_| begin(&mut table)));
    assert_eq!(given_up.len(), 1 << 16);
}

#[test]
fn answers_match_calls_by_id_and_operation() {
    let mut table = CallIdTable::new(100);
    let id = begin(&mut table);
    let other = Packet { operation: Operation::new(ASK).unwrap(), ..answer(id) };
    assert_eq!(table.complete(other.clone(), None).unwrap_err(), other, "it answers nothing that was asked");
    assert!(table.complete(answer(id + 1), None).is_ok(), "late answers are nobody's business");
    let cx = Context::from_waker(Waker::noop());
    assert!(table.poll(&cx, id).is_pending());
    assert!(table.complete(answer(id), None).unwrap().is_some());
    assert!(table.complete(answer(id), None).unwrap().is_none(), "a second answer is dropped");
    assert!(matches!(table.poll(&cx, id), Poll::Ready(Ok(CallReply::Plain(content))) if content == "answer"));
}

/// A random schedule of callers, table and peer. Each answer contains the number of its call.
struct Schedule {
    random: u64,
    table: CallIdTable,
    now: Instant,
    calls_made: u32,
    waiting: Vec<(u32, u16)>,
    /// Answers to be sent by the peer, in any order.
    asked: Vec<Packet>,
    /// The last answers of the peer. It may send them again.
    said: Vec<Packet>,
    refused: usize,
    answered: usize,
}

impl Schedule {
    const CALLS_MAX: usize = 1000;

    fn new(seed: u64) -> Self {
        Self {
            random: seed,
            table: CallIdTable::new(Self::CALLS_MAX),
            now: Instant::now(),
            calls_made: 0,
            waiting: Vec::new(),
            asked: Vec::new(),
            said: Vec::new(),
            refused: 0,
            answered: 0,
        }
    }

    /// Returns a random number below `bound` (xorshift).
    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) as usize % bound
    }

    fn begin(&mut self) {
        let operation = [SAY, ASK][self.below(2)];
        let deadline = (self.below(4) > 0).then(|| self.now + Duration::from_millis(5));
        let id = match self.table.insert(operation, deadline, None) {
            Ok(Some(id)) => id,
            Ok(None) => return self.give_up(),
            Err(CannotBegin::OutOfIds { .. }) => return self.refused += 1,
            Err(refused) => panic!("{refused:?}"),
        };
        self.calls_made += 1;
        if self.below(10) == 0 {
            self.table.remove(id, false);
            return;
        }
        let content = self.calls_made.to_be_bytes().to_vec();
        self.waiting.push((self.calls_made, id));
        self.asked.push(Packet::new(id, Operation::new(operation).unwrap(), content));
    }

    fn give_up(&mut self) {
        if !self.waiting.is_empty() {
            let index = self.below(self.waiting.len());
            let (_, id) = self.waiting.swap_remove(index);
            self.table.remove(id, true);
        }
    }

    fn answer(&mut self) {
        if !self.asked.is_empty() {
            let index = self.below(self.asked.len());
            let packet = self.asked.swap_remove(index);
            if self.said.len() == 100 {
                self.said.remove(0);
            }
            self.said.push(packet.clone());
            self.table.complete(packet, None).unwrap();
        }
    }

    fn say_again(&mut self) {
        if !self.said.is_empty() {
            let index = self.below(self.said.len());
            let packet = self.said[index].clone();
            self.table.complete(packet, None).unwrap();
        }
    }

    /// Polls all waiting calls.
    fn look(&mut self) {
        let Self { table, waiting, answered, .. } = self;
        let cx = Context::from_waker(Waker::noop());
        waiting.retain(|(number, id)| {
            match table.poll(&cx, *id) {
                Poll::Pending => return true,
                Poll::Ready(Err(NoAnswer::TimedOut)) => {}
                Poll::Ready(Ok(content)) => {
                    assert_eq!(
                        content,
                        CallReply::Plain(number.to_be_bytes().to_vec().into()),
                        "call {number} got the answer of another"
                    );
                    *answered += 1;
                }
                Poll::Ready(Err(unanswered)) => panic!("{unanswered:?}"),
            }
            table.remove(*id, true);
            false
        });
    }

    fn reconnect(&mut self) {
        self.look();
        self.table = CallIdTable::new(Self::CALLS_MAX);
        self.waiting.clear();
        self.asked.clear();
        self.said.clear();
    }

    /// Runs for some steps. The peer answers `percent_answered` of a hundred calls.
    fn run(&mut self, steps: usize, percent_answered: usize) {
        for step in 0..steps {
            match self.below(100) {
                0..5 => self.give_up(),
                5..10 => self.say_again(),
                10 => self.now += Duration::from_millis(1),
                _ => self.begin(),
            }
            if self.below(100) < percent_answered {
                self.answer();
            }
            if step % 256 == 0 {
                let _ = self.table.end_due(self.now);
                self.look();
            }
        }
    }
}

#[test]
fn no_call_gets_the_answer_of_another() {
    let (mut answered, mut refused) = (0, 0);
    for seed in 1..=3 {
        let mut schedule = Schedule::new(seed);
        // First, more calls are cancelled than answered, until no call can begin. Then the late answers arrive.
        schedule.run(100_000, 30);
        refused += schedule.refused;
        schedule.run(200_000, 95);
        answered += schedule.answered;
        schedule.reconnect();
        schedule.run(20_000, 85);
    }
    assert!(answered > 100_000 && refused > 1000, "{answered} answered, {refused} refused");
}
