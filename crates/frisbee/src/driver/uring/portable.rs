//! The ring of tokio-uring, for kernels that do not read by themselves: sockets wait on it, and send on it what is
//! small. Nothing is read on it. A read in flight could not be ended without losing what it brings.

use std::{
    future::Future,
    io,
    os::fd::{AsRawFd, OwnedFd},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use futures_util::stream::{FuturesUnordered, Stream as _};
use io_uring::{
    cqueue,
    opcode::{AsyncCancel2, PollAdd, Send},
    squeue::Entry,
    types::{CancelBuilder, Fd},
};
use tokio_uring::{OneshotOutputTransform, UnsubmittedOneshot};

use super::kernel::{Completion, Done};

#[derive(Default)]
pub(super) struct Portable {
    under_way: FuturesUnordered<Pin<Box<dyn Future<Output = Option<Completion>>>>>,
}

impl Portable {
    pub(super) fn send(&mut self, key: usize, fd: &Rc<OwnedFd>, bytes: Vec<u8>) {
        let len = u32::try_from(bytes.len()).expect("a send is bounded");
        let flags = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
        let request = Send::new(Fd(fd.as_raw_fd()), bytes.as_ptr(), len).flags(flags).build();
        self.submit(request, fd, bytes, move |result, bytes| {
            Some(Completion { key, done: Done::Sent { bytes, result } })
        });
    }

    pub(super) fn wait_readable(&mut self, key: usize, fd: &Rc<OwnedFd>) {
        let request = PollAdd::new(Fd(fd.as_raw_fd()), libc::POLLIN as u32).build();
        // However it ends: whoever waits looks again.
        self.submit(request, fd, Vec::new(), move |_, _| Some(Completion { key, done: Done::Readable }));
    }

    pub(super) fn wait_writable(&mut self, key: usize, fd: &Rc<OwnedFd>) {
        let request = PollAdd::new(Fd(fd.as_raw_fd()), libc::POLLOUT as u32).build();
        self.submit(request, fd, Vec::new(), move |_, _| Some(Completion { key, done: Done::Writable }));
    }

    /// Stops everything that is under way on a socket.
    pub(super) fn stop(&mut self, fd: &Rc<OwnedFd>) {
        let cancel = CancelBuilder::fd(Fd(fd.as_raw_fd())).all();
        self.submit(AsyncCancel2::new(cancel).build(), fd, Vec::new(), |_, _| None);
    }

    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Option<Completion> {
        loop {
            match Pin::new(&mut self.under_way).poll_next(cx) {
                Poll::Ready(Some(Some(completion))) => return Some(completion),
                Poll::Ready(Some(None)) => {}
                Poll::Ready(None) | Poll::Pending => return None,
            }
        }
    }

    /// Hands a request to the runtime's ring, which keeps the socket open and the bytes in place until it is done.
    fn submit(
        &mut self,
        request: Entry,
        fd: &Rc<OwnedFd>,
        bytes: Vec<u8>,
        done: impl FnOnce(io::Result<usize>, Vec<u8>) -> Option<Completion> + 'static,
    ) {
        let submitted = UnsubmittedOneshot::new((fd.clone(), bytes), GiveBack, request).submit();
        self.under_way.push(Box::pin(async move {
            let (result, bytes) = submitted.await;
            done(result, bytes)
        }));
    }
}

struct GiveBack;

impl OneshotOutputTransform for GiveBack {
    type Output = (io::Result<usize>, Vec<u8>);
    type StoredData = (Rc<OwnedFd>, Vec<u8>);

    fn transform_oneshot_output(self, (_, bytes): Self::StoredData, done: cqueue::Entry) -> Self::Output {
        (result(done.result()), bytes)
    }
}

/// What the kernel reports: a number, or the negative of an error's.
pub(super) fn result(code: i32) -> io::Result<usize> {
    usize::try_from(code).map_err(|_| io::Error::from_raw_os_error(-code))
}
