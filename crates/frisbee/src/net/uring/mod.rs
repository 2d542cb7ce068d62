//! Sockets whose reading and writing goes through a ring of io_uring, one for each thread.

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

use std::{env, future::Future, io, sync::OnceLock};

use tokio::runtime::Builder;

pub(crate) use self::socket::{Kind, Socket};
use self::{access::Access, borrowed::Borrowed, kernel::Kernel, ring::Ring, way::Way};

/// Asks the kernel whether sockets can go on rings here, until it has given a final answer.
pub(crate) fn probe() -> io::Result<()> {
    way().map(|_| ())
}

/// Tells whether this thread has a ring.
pub(crate) fn is_here() -> bool {
    Ring::here(|_| ()).is_some()
}

/// Runs on a runtime of this thread alone, with a ring.
pub(crate) fn block_on<F: Future<Output = io::Result<()>>>(begin: impl FnOnce() -> F) -> io::Result<()> {
    let way = way()?;
    if is_chosen("tokio-uring") {
        return Borrowed::runtime()?.block_on(async {
            task::install(Access::Borrowed(Borrowed::default()))?;
            begin().await
        });
    }
    let runtime = Builder::new_current_thread().enable_all().on_thread_park(task::spin_wait).build()?;
    runtime.block_on(async {
        task::install(Access::Own(Kernel::new(way)?))?;
        begin().await
    })
}

fn way() -> io::Result<Way> {
    /// The answer that the kernel will give again. It holds an error's text, because an error cannot be cloned.
    static FINAL: OnceLock<Result<Way, (io::ErrorKind, String)>> = OnceLock::new();
    let describe = |error: io::Error| (error.kind(), format!("io_uring is not available: {error}"));
    let found = match FINAL.get() {
        Some(found) => found.clone(),
        None => match find_way() {
            Err(error) if !is_final(&error) => Err(describe(error)),
            found => FINAL.get_or_init(|| found.map_err(describe)).clone(),
        },
    };
    found.map_err(|(kind, text)| io::Error::new(kind, text))
}

/// Tells whether this kernel will never answer otherwise. It may run out of memory or descriptors and have some again.
fn is_final(error: &io::Error) -> bool {
    use libc::{EACCES, EINVAL, ENOSYS, EOPNOTSUPP, EPERM};
    matches!(error.raw_os_error(), Some(EACCES | EINVAL | ENOSYS | EOPNOTSUPP | EPERM))
}

fn find_way() -> io::Result<Way> {
    let probe = |way| Kernel::new(way)?.probe();
    // tokio-uring wants of the kernel what the portable way does.
    if !is_chosen("portable") && !is_chosen("tokio-uring") {
        match probe(Way::Native) {
            // The kernel does not know all of it.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            native => return native.map(|()| Way::Native),
        }
    }
    probe(Way::Portable).map(|()| Way::Portable)
}

fn is_chosen(choice: &str) -> bool {
    env::var_os(CHOICE).is_some_and(|chosen| chosen == choice)
}

/// The environment variable that has a newer kernel treated as an older one, with the value `portable`, or has the ring
/// of tokio-uring used, with its name.
const CHOICE: &str = "FRISBEE_URING";
