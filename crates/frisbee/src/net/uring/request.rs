//! User data and results of requests.

use std::io;

use super::buffers::FilledBuffer;

/// The result of a request for a socket.
pub(super) struct Completion {
    pub(super) key: usize,
    pub(super) done: CompletionKind,
}

pub(super) enum CompletionKind {
    /// `Ok(None)` is the end of the stream. If `goes_on` is `false`, receiving has stopped and needs a new
    /// request.
    Received {
        result: io::Result<Option<FilledBuffer>>,
        goes_on: bool,
    },
    Sent {
        bytes: Vec<u8>,
        result: io::Result<usize>,
    },
    Readable,
    Writable,
}

/// Returns `true` for errors that may pass: a lack of memory, or a full completion queue.
pub(super) fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM))
}

/// Converts a result code of the kernel: a count, or a negated error number.
pub(super) fn result(code: i32) -> io::Result<usize> {
    usize::try_from(code).map_err(|_| io::Error::from_raw_os_error(-code))
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RequestKind {
    Receive,
    Send,
    Readable,
    Writable,
    /// No task waits for the result.
    Other,
}

/// Returns the user data of a request. The kernel returns it with the completion.
pub(super) fn name(key: usize, op: RequestKind) -> u64 {
    (key as u64) << 3 | op as u64
}

pub(super) fn parse(name: u64) -> (usize, RequestKind) {
    let op = match name & 7 {
        0 => RequestKind::Receive,
        1 => RequestKind::Send,
        2 => RequestKind::Readable,
        3 => RequestKind::Writable,
        _ => RequestKind::Other,
    };
    ((name >> 3) as usize, op)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_names_round_trip() {
        for op in
            [RequestKind::Receive, RequestKind::Send, RequestKind::Readable, RequestKind::Writable, RequestKind::Other]
        {
            for key in [0, 1, 77, 1 << 28] {
                assert_eq!(parse(name(key, op)), (key, op));
            }
        }
    }
}
