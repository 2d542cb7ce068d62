//! Engines: the threads that serve connections, and the kernel interface for their sockets.

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    io,
    str::FromStr,
    sync::{
        LazyLock, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
};

#[cfg(not(target_family = "wasm"))]
use tokio::runtime::Builder;
use tokio::runtime::Handle;

use crate::net::{RingKind, uring};

/// The threads that serve connections, and the kernel interface for their sockets.
///
/// The io_uring engines need the feature `uring` and a Linux kernel that allows io_uring. Otherwise they fail with
/// an error that names the missing part; [`choose`](Self::choose) helps with a fallback. TLS connections stay on
/// tokio's sockets. A ring shares system calls among the connections of a thread. This pays off for many busy
/// connections and costs time for a few. `docs/guide/engines.md` lists the requirements, and `docs/notes/performance.md` has
/// measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Engine {
    /// The tokio runtime of the caller of `bind` or `connect`.
    ///
    /// A good choice for most programs. Any free thread takes the next work, and a client shares threads with its
    /// callers.
    #[default]
    Tokio,
    /// One thread per core, each with its own tokio runtime. A new connection goes to the thread with the fewest
    /// connections.
    ///
    /// A good choice for servers with many connections and short handlers: no work of a connection changes
    /// threads.
    PerCore,
    /// Like [`PerCore`](Self::PerCore), with the sockets of each thread on an io_uring. One system call then
    /// handles everything ready, instead of two per message.
    ///
    /// Uses the newest features of the kernel: from Linux 6.1 on, the kernel receives into buffers it selects. On
    /// older kernels this equals [`UringPortable`](Self::UringPortable). A good choice for hundreds of busy
    /// connections with small messages, on servers and on clients.
    Uring,
    /// Like [`Uring`](Self::Uring), limited to the operations of Linux 5.19: waiting for sockets, and sending
    /// small writes.
    ///
    /// Useful for testing the behavior of an older kernel on a newer one.
    UringPortable,
    /// Like [`UringPortable`](Self::UringPortable), on one tokio-uring runtime per core.
    ///
    /// Useful for comparison, or for a preference for the ring of a widely used crate. It is slower than
    /// [`PerCore`](Self::PerCore), and a kernel error of the ring ends the thread with a panic. Futures of
    /// tokio-uring are not `Send`, so handlers cannot await them.
    TokioUring,
    /// A safe choice for any load: [`PerCore`](Self::PerCore) for servers, [`Tokio`](Self::Tokio) for clients.
    ///
    /// Never an io_uring engine: only a running load shows a gain, and some loads lose.
    Auto,
}

impl Engine {
    /// Returns the engine for a server on this machine. Never [`Auto`](Self::Auto).
    ///
    /// # Errors
    ///
    /// Returns the reason if the engine uses io_uring and io_uring is not available.
    ///
    /// ```
    /// use frisbee::Engine;
    ///
    /// let engine = Engine::Uring.choose().unwrap_or_else(|error| {
    ///     eprintln!("serving without io_uring: {error}");
    ///     Engine::PerCore
    /// });
    /// # assert_ne!(engine, Engine::Auto);
    /// ```
    pub fn choose(self) -> io::Result<Self> {
        match (self, self.rings()) {
            (Self::Auto, _) => Ok(Self::PerCore),
            (_, Some(kind)) => uring::probe(kind).map(|()| self),
            _ => Ok(self),
        }
    }

    /// Returns the kind of ring for the sockets of each thread, for the io_uring engines.
    pub(crate) fn rings(self) -> Option<RingKind> {
        match self {
            Self::Uring => Some(RingKind::Best),
            Self::UringPortable => Some(RingKind::Portable),
            Self::TokioUring => Some(RingKind::TokioUring),
            Self::Tokio | Self::PerCore | Self::Auto => None,
        }
    }

    /// Returns one of the runtimes shared by all clients, or `None` to use the current runtime.
    pub(crate) fn runtime(self) -> io::Result<Option<Handle>> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        static SHARED: LazyLock<Mutex<HashMap<Engine, Vec<Handle>>>> = LazyLock::new(Mutex::default);
        if matches!(self, Self::Tokio | Self::Auto) || self.rings().is_some() && uring::is_here() {
            return Ok(None);
        }
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let runtimes = shared.entry(self).or_default();
        // If a start fails, the threads started so far are kept for the next call.
        for core in runtimes.len()..cores() {
            // These threads run until the process ends.
            runtimes.push(self.start(core, std::future::pending())?.0);
        }
        Ok(runtimes.get(NEXT.fetch_add(1, Ordering::Relaxed) % runtimes.len()).cloned())
    }

    /// Starts a thread for one core, with a runtime that runs until `end` is done. Returns once the runtime is
    /// running.
    pub(crate) fn start(
        self,
        core: usize,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<(Handle, JoinHandle<()>)> {
        let (sender, begun) = mpsc::sync_channel(1);
        let thread = thread::Builder::new().name(format!("frisbee-{core}")).spawn(move || {
            let told = sender.clone();
            let run = async move || {
                // The starting thread waits for this message.
                let _ = told.send(Ok(Handle::current()));
                end.await;
                Ok(())
            };
            let ran = match self.rings() {
                Some(kind) => uring::block_on(kind, run),
                None => block_on(run()),
            };
            if let Err(error) = ran {
                // Has no receiver if the runtime started: the starting thread has left by then.
                let _ = sender.send(Err(error));
            }
        })?;
        match begun.recv().unwrap_or_else(|_| Err(io::Error::other("the thread ended during its start"))) {
            Ok(runtime) => Ok((runtime, thread)),
            Err(error) => {
                // The thread is about to end. Joining it makes sure that all of its resources are freed. The panic
                // hook has already reported a panic of the thread.
                let _ = thread.join();
                Err(error)
            }
        }
    }
}

/// Runs a future on a runtime of its thread.
#[cfg(not(target_family = "wasm"))]
fn block_on(future: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    Builder::new_current_thread().enable_all().build()?.block_on(future)
}

/// Returns an error: a browser has one event loop.
#[cfg(target_family = "wasm")]
fn block_on(_: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "a browser has only the engine `tokio`"))
}

/// Formats as in settings and on command lines: `tokio`, `per-core`, `uring`, `uring-portable`, `tokio-uring`,
/// `auto`.
impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tokio => "tokio",
            Self::PerCore => "per-core",
            Self::Uring => "uring",
            Self::UringPortable => "uring-portable",
            Self::TokioUring => "tokio-uring",
            Self::Auto => "auto",
        })
    }
}

impl FromStr for Engine {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        let all = [Self::Tokio, Self::PerCore, Self::Uring, Self::UringPortable, Self::TokioUring, Self::Auto];
        all.into_iter().find(|engine| engine.to_string() == text).ok_or_else(|| {
            let why =
                format!("no engine {text:?}: expected tokio, per-core, uring, uring-portable, tokio-uring or auto");
            io::Error::new(io::ErrorKind::InvalidInput, why)
        })
    }
}

pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}
