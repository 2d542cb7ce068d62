//! Batches with unfinished calls.

use frpc::Status;

use super::answer::put_failure;

/// The answers of a batch, collected until its last call ends.
#[derive(Debug)]
pub(super) struct BatchAnswers {
    /// Finished answers, each followed by a comma. With `is_in_order`, only the answers available when the batch
    /// started.
    answers: Vec<u8>,
    holes: Vec<MissingAnswer>,
    /// The number of unfilled holes.
    left: usize,
    is_in_order: bool,
    /// The total length of all answers so far.
    len: usize,
    len_max: usize,
}

/// The position of a missing answer in its batch.
#[derive(Debug)]
struct MissingAnswer {
    /// The offset in `answers` at which the missing answer belongs.
    at: usize,
    answer: Vec<u8>,
}

impl BatchAnswers {
    /// Creates a batch from its finished answers and the offsets of the missing ones among them.
    pub(super) fn new(answers: Vec<u8>, holes: Vec<usize>, is_in_order: bool, len_max: usize) -> Self {
        let (left, len) = (holes.len(), answers.len());
        let holes = holes.into_iter().map(|at| MissingAnswer { at, answer: Vec::new() }).collect();
        Self { answers, holes, left, is_in_order, len, len_max }
    }

    /// Replaces `answer` by an error if it exceeds the limit on the answers of a batch.
    pub(super) fn bound(&self, id: &str, answer: &mut Vec<u8>) {
        if self.len + answer.len() > self.len_max {
            answer.clear();
            put_failure(answer, id, &too_long(self.len_max));
        }
    }

    /// Adds an answer and returns `true` if it was the last. The answer of a notification is empty.
    pub(super) fn fill(&mut self, hole: usize, mut answer: Vec<u8>) -> bool {
        if !answer.is_empty() {
            answer.push(b',');
        }
        self.len += answer.len();
        if self.is_in_order {
            self.holes[hole].answer = answer;
        } else {
            self.answers.extend_from_slice(&answer);
        }
        self.left -= 1;
        self.left == 0
    }

    /// Appends the answers to `out` as an array. Appends nothing if the batch consisted of notifications only.
    pub(super) fn put(self, out: &mut Vec<u8>) {
        let start = out.len();
        out.push(b'[');
        let mut from = 0;
        for MissingAnswer { at, answer } in &self.holes {
            if self.is_in_order {
                out.extend_from_slice(&self.answers[from..*at]);
                from = *at;
            }
            out.extend_from_slice(answer);
        }
        out.extend_from_slice(&self.answers[from..]);
        if out.pop() == Some(b',') {
            out.push(b']');
        } else {
            out.truncate(start);
        }
    }
}

pub(super) fn too_long(len_max: usize) -> Status {
    Status::resource_exhausted(format!("the answers of the batch exceed the limit of {len_max} bytes"))
}
