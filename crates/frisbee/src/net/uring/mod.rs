//! Sockets with I/O through an io_uring, one ring per thread.

mod access;
mod borrowed;
mod buffers;
mod kernel;
mod request;
mod ring;
mod slot;
mod socket;
mod task;
mod way;

use std::{future::Future, io, sync::OnceLock};

use tokio::runtime::Builder;

pub(crate) use self::socket::{RingSocket, SocketKind};
use self::{access::RingAccess, borrowed::BorrowedRing, kernel::OwnedRing, ring::Ring, way::RingFeatures};
use super::ring_kind::RingKind;

/// Checks that sockets of this process can use io_uring. Remembers final answers of the kernel.
pub(crate) fn probe(kind: RingKind) -> io::Result<()> {
    available_features(kind).map(|_| ())
}

/// Returns `true` if this thread has a ring.
pub(crate) fn is_here() -> bool {
    Ring::here(|_| ()).is_some()
}

/// Runs a future on a new runtime of this thread, with a ring.
pub(crate) fn block_on<F: Future<Output = io::Result<()>>>(
    kind: RingKind,
    begin: impl FnOnce() -> F,
) -> io::Result<()> {
    let way = available_features(kind)?;
    if kind == RingKind::TokioUring {
        return BorrowedRing::runtime()?.block_on(async {
            task::install(RingAccess::Borrowed(BorrowedRing::default()))?;
            begin().await
        });
    }
    let runtime = Builder::new_current_thread().enable_all().on_thread_park(task::spin_wait).build()?;
    runtime.block_on(async {
        task::install(RingAccess::Own(OwnedRing::new(way)?))?;
        begin().await
    })
}

fn available_features(kind: RingKind) -> io::Result<RingFeatures> {
    /// A final answer of the kernel. Errors are stored as text, because an `io::Error` cannot be cloned.
    type CachedProbe = OnceLock<Result<RingFeatures, (io::ErrorKind, String)>>;
    static BEST: CachedProbe = OnceLock::new();
    static PORTABLE: CachedProbe = OnceLock::new();
    let known = if kind == RingKind::Best { &BEST } else { &PORTABLE };
    let describe = |error: io::Error| (error.kind(), format!("io_uring is not available: {error}"));
    let found = match known.get() {
        Some(found) => found.clone(),
        None => match probe_features(kind) {
            Err(error) if !is_final(&error) => Err(describe(error)),
            found => known.get_or_init(|| found.map_err(describe)).clone(),
        },
    };
    found.map_err(|(kind, text)| io::Error::new(kind, text))
}

/// Returns `true` for errors that will not change. A lack of memory or descriptors may pass.
fn is_final(error: &io::Error) -> bool {
    use libc::{EACCES, EINVAL, ENOSYS, EOPNOTSUPP, EPERM};
    matches!(error.raw_os_error(), Some(EACCES | EINVAL | ENOSYS | EOPNOTSUPP | EPERM))
}

fn probe_features(kind: RingKind) -> io::Result<RingFeatures> {
    let probe = |way| OwnedRing::new(way)?.probe();
    // tokio-uring needs the same kernel features as the portable ring.
    if kind == RingKind::Best {
        match probe(RingFeatures::Native) {
            // The kernel lacks some of the features.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            native => return native.map(|()| RingFeatures::Native),
        }
    }
    probe(RingFeatures::Portable).map(|()| RingFeatures::Portable)
}
