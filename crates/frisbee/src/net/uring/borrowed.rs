//! The ring of tokio-uring, for those who ask for it: sockets wait on it, and send on it what is small. Nothing is read
//! on it. A read in flight could not be ended without losing what it brings.

use std::{
    collections::HashMap,
    future::Future,
    io,
    mem::ManuallyDrop,
    os::fd::{AsRawFd, OwnedFd},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use futures_util::stream::{FuturesUnordered, Stream as _};
use io_uring::{
    IoUring, cqueue,
    opcode::{AsyncCancel2, PollAdd, Send},
    squeue::Entry,
    types::{CancelBuilder, Fd},
};
use tokio_uring::{OneshotOutputTransform, Runtime, UnsubmittedOneshot};
use tracing::warn;

use super::{
    kernel::REQUESTS,
    request::{Completion, Done, result},
};

/// The requests that are under way on the ring of this thread's runtime.
#[derive(Default)]
pub(super) struct Borrowed {
    under_way: FuturesUnordered<Pin<Box<dyn Future<Output = Option<Completion>>>>>,
    /// The memory that the kernel sends from, for each socket. The runtime frees what it was lent before it takes it
    /// back from the kernel when it ends, so it is lent nothing: what is still here then is lost.
    sends: ManuallyDrop<HashMap<usize, Vec<u8>>>,
}

impl Borrowed {
    /// Makes a runtime with a ring. Needs Linux 5.19, as the cancellation of all that waits for a socket does.
    pub(super) fn runtime() -> io::Result<Runtime> {
        let mut ring = IoUring::builder();
        ring.setup_coop_taskrun();
        let mut newer = ring.clone();
        newer.setup_single_issuer();
        let ring = if newer.build(1).is_ok() { newer } else { ring };
        Runtime::new(tokio_uring::builder().entries(REQUESTS).uring_builder(&ring))
    }

    /// Sends all of it. The socket must have nothing else to send under way.
    pub(super) fn send(&mut self, key: usize, fd: &Rc<OwnedFd>, bytes: Vec<u8>) {
        let len = u32::try_from(bytes.len()).expect("a send is bounded");
        let flags = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
        let request = Send::new(Fd(fd.as_raw_fd()), bytes.as_ptr(), len).flags(flags).build();
        let last = self.sends.insert(key, bytes);
        assert!(last.is_none(), "the kernel may still be sending what this would free");
        self.submit(request, fd, move |result| {
            Some(Completion { key, done: Done::Sent { bytes: Vec::new(), result } })
        });
    }

    pub(super) fn wait_readable(&mut self, key: usize, fd: &Rc<OwnedFd>) {
        let request = PollAdd::new(Fd(fd.as_raw_fd()), libc::POLLIN as u32).build();
        // However it ends: the task that waits looks again.
        self.submit(request, fd, move |_| Some(Completion { key, done: Done::Readable }));
    }

    pub(super) fn wait_writable(&mut self, key: usize, fd: &Rc<OwnedFd>) {
        let request = PollAdd::new(Fd(fd.as_raw_fd()), libc::POLLOUT as u32).build();
        self.submit(request, fd, move |_| Some(Completion { key, done: Done::Writable }));
    }

    /// Stops everything that is under way on a socket.
    pub(super) fn stop(&mut self, fd: &Rc<OwnedFd>) {
        let cancel = CancelBuilder::fd(Fd(fd.as_raw_fd())).all();
        self.submit(AsyncCancel2::new(cancel).build(), fd, |_| None);
    }

    /// Takes the next thing that was done, or has the task woken when there is one.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Option<Completion> {
        loop {
            match Pin::new(&mut self.under_way).poll_next(cx) {
                Poll::Ready(Some(Some(mut completion))) => {
                    if let Done::Sent { bytes, .. } = &mut completion.done {
                        *bytes = self.sends.remove(&completion.key).expect("a send ends once");
                    }
                    return Some(completion);
                }
                Poll::Ready(Some(None)) => {}
                Poll::Ready(None) | Poll::Pending => return None,
            }
        }
    }

    /// Hands a request to the runtime's ring, which keeps the socket open until it is done.
    fn submit(
        &mut self,
        request: Entry,
        fd: &Rc<OwnedFd>,
        done: impl FnOnce(io::Result<usize>) -> Option<Completion> + 'static,
    ) {
        let submitted = UnsubmittedOneshot::new(fd.clone(), Report, request).submit();
        self.under_way.push(Box::pin(async move { done(submitted.await) }));
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if !self.sends.is_empty() {
            warn!(sends = self.sends.len(), "the kernel did not let go of a ring: its memory is leaked");
        }
    }
}

struct Report;

impl OneshotOutputTransform for Report {
    type Output = io::Result<usize>;
    type StoredData = Rc<OwnedFd>;

    fn transform_oneshot_output(self, _: Self::StoredData, done: cqueue::Entry) -> Self::Output {
        result(done.result())
    }
}
