//! The threads that serve connections, and their way to the kernel.

use std::{
    fmt,
    future::Future,
    io,
    str::FromStr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
};

use tokio::runtime::{Builder, Handle};
use tracing::info;

use crate::net::uring;

/// The threads that serve connections, and their way to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Engine {
    /// The tokio runtime that the server was bound on, or the client connects on.
    #[default]
    Tokio,
    /// A thread with a tokio runtime of its own for each core. Over TCP each has its own listener and the kernel
    /// spreads connections among them, so a few connections may be spread unevenly.
    PerCore,
    /// As [`PerCore`](Self::PerCore), with the sockets of each thread on a ring of io_uring: one system call for
    /// everything that is ready, instead of two for each message. TLS connections stay on tokio's sockets. Needs the
    /// feature `uring` and a Linux that allows it; an error otherwise, which says what is missing.
    Uring,
    /// [`Uring`](Self::Uring) where that works, and [`PerCore`](Self::PerCore) elsewhere, with a line in the log.
    Auto,
}

impl Engine {
    /// Returns the engine that this one is on this machine. Never [`Auto`](Self::Auto).
    ///
    /// # Errors
    ///
    /// If io_uring itself was asked for, says why it cannot be had.
    pub fn choose(self) -> io::Result<Self> {
        match self {
            Self::Uring => uring::probe().map(|()| self),
            Self::Auto => Ok(match uring::probe() {
                Ok(()) => Self::Uring,
                Err(error) => {
                    info!(%error, "connections are served without io_uring");
                    Self::PerCore
                }
            }),
            _ => Ok(self),
        }
    }

    /// Returns a runtime of those that all clients share, unless it is the current one that serves.
    pub(crate) fn runtime(self) -> io::Result<Option<Handle>> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        static PER_CORE: Mutex<Vec<Handle>> = Mutex::new(Vec::new());
        static URING: Mutex<Vec<Handle>> = Mutex::new(Vec::new());
        let shared = match self {
            Self::PerCore => &PER_CORE,
            Self::Uring if !uring::is_here() => &URING,
            _ => return Ok(None),
        };
        let mut runtimes = shared.lock().unwrap_or_else(PoisonError::into_inner);
        for core in runtimes.len()..cores() {
            // These threads serve until the process ends.
            runtimes.push(self.start(core, std::future::pending())?.0);
        }
        Ok(runtimes.get(NEXT.fetch_add(1, Ordering::Relaxed) % runtimes.len()).cloned())
    }

    /// Starts a thread for one core, with a runtime that runs until `end` is done. Returns the runtime once it does.
    pub(crate) fn start(
        self,
        core: usize,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<(Handle, JoinHandle<()>)> {
        let (sender, begun) = mpsc::sync_channel(1);
        let thread = thread::Builder::new().name(format!("frisbee-{core}")).spawn(move || {
            let told = sender.clone();
            let run = async move || {
                // The other thread waits for it.
                let _ = told.send(Ok(Handle::current()));
                end.await;
                Ok(())
            };
            let ran = match self {
                Self::Uring => uring::block_on(run),
                _ => Builder::new_current_thread().enable_all().build().and_then(|runtime| runtime.block_on(run())),
            };
            if let Err(error) = ran {
                // Without effect unless it never began.
                let _ = sender.send(Err(error));
            }
        })?;
        match begun.recv().unwrap_or_else(|_| Err(io::Error::other("the thread ended at once"))) {
            Ok(runtime) => Ok((runtime, thread)),
            Err(error) => {
                // It is about to end, and nothing of it may be left. A panic of it was reported already.
                let _ = thread.join();
                Err(error)
            }
        }
    }
}

/// As it is written in settings and on command lines: `tokio`, `per-core`, `uring`, `auto`.
impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tokio => "tokio",
            Self::PerCore => "per-core",
            Self::Uring => "uring",
            Self::Auto => "auto",
        })
    }
}

impl FromStr for Engine {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        let all = [Self::Tokio, Self::PerCore, Self::Uring, Self::Auto];
        all.into_iter().find(|engine| engine.to_string() == text).ok_or_else(|| {
            let why = format!("no engine {text:?}: expected tokio, per-core, uring or auto");
            io::Error::new(io::ErrorKind::InvalidInput, why)
        })
    }
}

pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}
