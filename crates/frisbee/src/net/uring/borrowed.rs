//! The ring of a tokio-uring runtime. It waits for sockets and sends small writes.
//!
//! It does not receive: canceling a receive in flight could lose the received bytes.

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
    request::{Completion, CompletionKind, result},
};

/// Requests in flight on the ring of this thread's runtime.
#[derive(Default)]
pub(super) struct BorrowedRing {
    under_way: FuturesUnordered<Pin<Box<dyn Future<Output = Option<Completion>>>>>,
    /// Memory used by sends in flight, by socket.
    ///
    /// At its end, the runtime frees the memory passed to it before the kernel has released it. The memory is
    /// therefore kept here and not passed. Buffers still here at the end are leaked.
    sends: ManuallyDrop<HashMap<usize, Vec<u8>>>,
}

impl BorrowedRing {
    /// Creates a runtime with a ring. Needs Linux 5.19, for canceling all requests of a socket.
    pub(super) fn runtime() -> io::Result<Runtime> {
        let mut ring = IoUring::builder();
        ring.setup_coop_taskrun();
        let mut newer = ring.clone();
        newer.setup_single_issuer();
        let ring = if newer.build(1).is_ok() { newer } else { ring };
        Runtime::new(tokio_uring::builder().entries(REQUESTS).uring_builder(&ring))
    }

    /// Sends all bytes. The socket must have no other send in flight.
    pub(super) fn send(&mut self, key: usize, fd: &Rc<OwnedFd>, bytes: Vec<u8>) {
        let len = u32::try_from(bytes.len()).expect("a send is bounded");
        let flags = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
        let request = Send::new(Fd(fd.as_raw_fd()), bytes.as_ptr(), len).flags(flags).build();
        let last = self.sends.insert(key, bytes);
        assert!(last.is_none(), "the kernel may still be sending what this would free");
        self.submit(request, fd, move |result| {
            Some(Completion { key, done: CompletionKind::Sent { bytes: Vec::new(), result } })
        });
    }

    pub(super) fn wait_readable(&mut self, key: usize, fd: &Rc<OwnedFd>) {
        let request = PollAdd::new(Fd(fd.as_raw_fd()), libc::POLLIN as u32).build();
        // The result does not matter: the waiting task tries to read again.
        self.submit(request, fd, move |_| Some(Completion { key, done: CompletionKind::Readable }));
    }

    pub(super) fn wait_writable(&mut self, key: usize, fd: &Rc<OwnedFd>) {
        let request = PollAdd::new(Fd(fd.as_raw_fd()), libc::POLLOUT as u32).build();
        self.submit(request, fd, move |_| Some(Completion { key, done: CompletionKind::Writable }));
    }

    /// Cancels all requests for a socket.
    pub(super) fn stop(&mut self, fd: &Rc<OwnedFd>) {
        let cancel = CancelBuilder::fd(Fd(fd.as_raw_fd())).all();
        self.submit(AsyncCancel2::new(cancel).build(), fd, |_| None);
    }

    /// Returns the next completion, or registers the task to be woken by it.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Option<Completion> {
        loop {
            match Pin::new(&mut self.under_way).poll_next(cx) {
                Poll::Ready(Some(Some(mut completion))) => {
                    if let CompletionKind::Sent { bytes, .. } = &mut completion.done {
                        *bytes = self.sends.remove(&completion.key).expect("a send ends once");
                    }
                    return Some(completion);
                }
                Poll::Ready(Some(None)) => {}
                Poll::Ready(None) | Poll::Pending => return None,
            }
        }
    }

    /// Submits a request to the runtime's ring, which keeps the socket open until completion.
    fn submit(
        &mut self,
        request: Entry,
        fd: &Rc<OwnedFd>,
        done: impl FnOnce(io::Result<usize>) -> Option<Completion> + 'static,
    ) {
        let submitted = UnsubmittedOneshot::new(fd.clone(), ResultTransform, request).submit();
        self.under_way.push(Box::pin(async move { done(submitted.await) }));
    }
}

impl Drop for BorrowedRing {
    fn drop(&mut self) {
        if !self.sends.is_empty() {
            warn!(sends = self.sends.len(), "the kernel did not release a ring: its memory is leaked");
        }
    }
}

struct ResultTransform;

impl OneshotOutputTransform for ResultTransform {
    type Output = io::Result<usize>;
    type StoredData = Rc<OwnedFd>;

    fn transform_oneshot_output(self, _: Self::StoredData, done: cqueue::Entry) -> Self::Output {
        result(done.result())
    }
}
