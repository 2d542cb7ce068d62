//! Runs any sequence of calls, answers and ends against the table of pending calls, and compares it with a slow model.
#![no_main]

use std::collections::HashMap;

use arbitrary::Arbitrary;
use frisbee::{Operation, Packet};
use frisbee_fuzz::fuzz_target;
use frpc::fuzzing::{CallTable, PendingCall};

#[derive(Arbitrary, Debug)]
struct Input {
    calls_max: u8,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Begin {
        operation: u8,
    },
    Send {
        call: u8,
    },
    Drop {
        call: u8,
    },
    Look {
        call: u8,
    },
    /// An answer to an earlier id, counted back from the latest one.
    Answer {
        back: u8,
        operation: u8,
        is_too_large: bool,
    },
    /// `count` calls, each answered immediately.
    Pass {
        count: u16,
    },
    /// `count` calls, each dropped before its answer.
    GiveUp {
        count: u16,
    },
    Close,
}

/// A call in the model.
struct Call<'a> {
    pending: PendingCall<'a>,
    operation: Operation,
    is_sent: bool,
    /// The first answer received. `Some(None)` for an answer above the length limit.
    answer: Option<Option<u32>>,
}

#[derive(Default)]
struct Model<'a> {
    calls: Vec<Call<'a>>,
    /// Ids of dropped calls whose answers may still arrive, with their operations.
    owed: HashMap<u16, Operation>,
    operations: Vec<Operation>,
    /// All ids used so far, in order.
    ids: Vec<u16>,
    is_closed: bool,
    answers: u32,
    /// Steps that may still make many calls.
    many_left: u32,
}

fuzz_target!(|input: Input| {
    let limit = usize::from(input.calls_max).max(1);
    let table = CallTable::new(limit);
    let mut model = Model { many_left: MANY_STEPS_MAX, ..Model::default() };
    for step in input.steps.iter().take(STEPS_MAX) {
        model.take(&table, limit, step);
    }
});

impl<'a> Model<'a> {
    fn take(&mut self, table: &'a CallTable, limit: usize, step: &Step) {
        match *step {
            Step::Begin { operation } => drop(self.begin(table, limit, of(operation))),
            Step::Send { call } => {
                if let Some(index) = self.index(call) {
                    self.calls[index].pending.sent();
                    self.calls[index].is_sent = true;
                }
            }
            Step::Drop { call } => {
                if let Some(index) = self.index(call) {
                    self.forget(index);
                }
            }
            Step::Look { call } => {
                if let Some(index) = self.index(call) {
                    self.look(index);
                }
            }
            Step::Answer { back, operation, is_too_large } => {
                let Some(&id) = self.ids.iter().rev().nth(back.into()) else { return };
                self.answer(table, id, of(operation), is_too_large);
            }
            Step::Pass { count } => {
                for _ in 0..self.many(count) {
                    let Some(index) = self.begin(table, limit, of(0)) else { return };
                    self.calls[index].pending.sent();
                    self.calls[index].is_sent = true;
                    self.answer(table, self.calls[index].pending.id(), of(0), false);
                    self.look(index);
                }
            }
            Step::GiveUp { count } => {
                for _ in 0..self.many(count) {
                    let Some(index) = self.begin(table, limit, of(0)) else { return };
                    self.calls[index].pending.sent();
                    self.calls[index].is_sent = true;
                    self.forget(index);
                }
            }
            Step::Close => {
                self.is_closed = true;
                table.close();
            }
        }
        assert_eq!(table.is_out_of_ids(), self.owed.len() > OWED_MAX);
    }

    /// Returns how many calls a step makes. Few counts stand for many of them, and none that libFuzzer prefers.
    fn many(&mut self, count: u16) -> u16 {
        let count = if count >> 8 == 0xa5 && self.many_left > 0 { MANY } else { count % FEW_MAX };
        self.many_left -= u32::from(count == MANY);
        count
    }

    fn begin(&mut self, table: &'a CallTable, limit: usize, operation: Operation) -> Option<usize> {
        let begun = table.begin(operation);
        let Ok(begun) = begun else {
            assert!(self.is_closed || self.owed.len() > OWED_MAX, "a call begins unless it cannot");
            return None;
        };
        assert!(!self.is_closed && self.owed.len() <= OWED_MAX);
        let Some(pending) = begun else {
            assert_eq!(self.calls.len(), limit, "a call begins as long as there is room");
            return None;
        };
        assert!(self.calls.len() < limit);
        let id = pending.id();
        assert!(self.calls.iter().all(|call| call.pending.id() != id), "no two calls have one id");
        assert!(!self.owed.contains_key(&id), "an id is not used while its answer may come");
        if !self.operations.contains(&operation) {
            self.operations.push(operation);
        }
        self.ids.push(id);
        self.calls.push(Call { pending, operation, is_sent: false, answer: None });
        Some(self.calls.len() - 1)
    }

    fn answer(&mut self, table: &CallTable, id: u16, operation: Operation, is_too_large: bool) {
        self.answers += 1;
        let number = self.answers;
        let is_known = if is_too_large {
            table.fail(id, operation)
        } else {
            table.complete(Packet::new(id, operation, number.to_be_bytes().to_vec())).is_none()
        };
        assert_eq!(is_known, self.operations.contains(&operation), "other packets come back");
        let waiting = self.calls.iter_mut().find(|call| (call.pending.id(), call.operation) == (id, operation));
        if let Some(call) = waiting {
            if !self.is_closed {
                call.answer.get_or_insert((!is_too_large).then_some(number));
            }
        } else if self.owed.get(&id) == Some(&operation) {
            self.owed.remove(&id);
        }
    }

    /// Checks the state of a call, and drops it if it is complete.
    fn look(&mut self, index: usize) {
        let call = &mut self.calls[index];
        match (call.pending.answer(), call.answer) {
            (None, None) => return assert!(!self.is_closed, "the end of the connection ends every call"),
            (Some(Ok(content)), Some(Some(number))) => assert_eq!(content, number.to_be_bytes()[..], "its own answer"),
            (Some(Err(())), Some(None)) => {}
            (Some(Err(())), None) => assert!(self.is_closed),
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
        self.forget(index);
    }

    fn forget(&mut self, index: usize) {
        let call = self.calls.swap_remove(index);
        if call.is_sent && call.answer.is_none() && !self.is_closed {
            self.owed.insert(call.pending.id(), call.operation);
        }
    }

    fn index(&self, call: u8) -> Option<usize> {
        usize::from(call).checked_rem(self.calls.len())
    }
}

fn of(operation: u8) -> Operation {
    Operation::new(10 + u16::from(operation % 3)).expect("not reserved")
}

/// Maximum number of ids of dropped calls whose answers may still arrive.
const OWED_MAX: usize = 1 << 15;
const STEPS_MAX: usize = 64;
const FEW_MAX: u16 = 32;
/// Calls of one step, and the number of such steps: enough for the id counter to wrap, and for more than
/// [`OWED_MAX`] dropped calls, but fast for any input.
const MANY: u16 = 8200;
const MANY_STEPS_MAX: u32 = 9;
