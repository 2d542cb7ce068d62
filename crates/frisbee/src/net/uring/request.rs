//! The names of requests, and what becomes of them.

use std::io;

use super::buffers::Filled;

/// One thing that the kernel has done for a socket.
pub(super) struct Completion {
    pub(super) key: usize,
    pub(super) done: Done,
}

pub(super) enum Done {
    /// Nothing filled is the end of the stream. If it does not go on, nothing more is read before the next request.
    Received {
        result: io::Result<Option<Filled>>,
        goes_on: bool,
    },
    Sent {
        bytes: Vec<u8>,
        result: io::Result<usize>,
    },
    Readable,
    Writable,
}

/// Tells whether the kernel may do later what it refuses now: it lacks memory, or completions have to be taken first.
pub(super) fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM))
}

/// Returns what the kernel reports: a number, or the negative of an error's.
pub(super) fn result(code: i32) -> io::Result<usize> {
    usize::try_from(code).map_err(|_| io::Error::from_raw_os_error(-code))
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Op {
    Receive,
    Send,
    Readable,
    Writable,
    /// No task waits for it.
    Other,
}

/// Returns how the kernel names a request when it is done.
pub(super) fn name(key: usize, op: Op) -> u64 {
    (key as u64) << 3 | op as u64
}

pub(super) fn parse(name: u64) -> (usize, Op) {
    let op = match name & 7 {
        0 => Op::Receive,
        1 => Op::Send,
        2 => Op::Readable,
        3 => Op::Writable,
        _ => Op::Other,
    };
    ((name >> 3) as usize, op)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_a_request_was_for() {
        for op in [Op::Receive, Op::Send, Op::Readable, Op::Writable, Op::Other] {
            for key in [0, 1, 77, 1 << 28] {
                assert_eq!(parse(name(key, op)), (key, op));
            }
        }
    }
}
