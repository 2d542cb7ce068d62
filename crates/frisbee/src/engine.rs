//! The threads that serve connections, and their way to the kernel.

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

use tokio::runtime::{Builder, Handle};

use crate::net::{RingKind, uring};

/// The threads that serve connections, and their way to the kernel.
///
/// The engines on io_uring need the feature `uring` and a Linux that allows it. An error otherwise says what is missing; to
/// do without, fall back by [`choose`](Self::choose). TLS connections stay on tokio's sockets there. They share system calls
/// among the connections of a thread, which pays for many busy connections and costs for a few; the guide in
/// `docs/io-uring.md` has measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Engine {
    /// The tokio runtime that the server was bound on, or the client connects on.
    ///
    /// Good for most programs: work goes to whichever thread is free, and a client shares its threads with its callers.
    #[default]
    Tokio,
    /// A thread with a tokio runtime of its own for each core. A new connection goes to the thread that has the fewest.
    ///
    /// Good for servers of many connections whose handlers are short: nothing of a connection changes threads.
    PerCore,
    /// As [`PerCore`](Self::PerCore), with the sockets of each thread on a ring of io_uring: one system call for
    /// everything that is ready, instead of two for each message. The best use of the ring that the kernel allows: the
    /// kernel reads by itself from Linux 6.1 on, and it is as with [`UringPortable`](Self::UringPortable) before.
    ///
    /// Good for hundreds of busy connections with small messages, on servers and on clients.
    Uring,
    /// As [`Uring`](Self::Uring), used as Linux 5.19 allows: sockets wait on the ring, and send on it what is small.
    ///
    /// Good for trying on a newer kernel what an older one will do.
    UringPortable,
    /// As [`UringPortable`](Self::UringPortable), on the ring of a runtime of tokio-uring for each core.
    ///
    /// Good for comparing, and for those who would rather have their connections on the ring of a widespread crate than on
    /// ours. It is slower than [`PerCore`](Self::PerCore), and a kernel that refuses to go on with the ring ends the thread
    /// with a panic. Futures of tokio-uring itself stay on one thread, so no handler can await them.
    TokioUring,
    /// The engine that suits any load: [`PerCore`](Self::PerCore) for servers, [`Tokio`](Self::Tokio) for clients. Never one
    /// on io_uring: which loads gain by it is known only once they run, and some lose.
    Auto,
}

impl Engine {
    /// Returns the engine that this one is on this machine for a server. Never [`Auto`](Self::Auto).
    ///
    /// # Errors
    ///
    /// If the engine is one on io_uring, says why it cannot be had.
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

    /// Returns the rings that the sockets of each thread are put on, if they are.
    pub(crate) fn rings(self) -> Option<RingKind> {
        match self {
            Self::Uring => Some(RingKind::Best),
            Self::UringPortable => Some(RingKind::Portable),
            Self::TokioUring => Some(RingKind::TokioUring),
            Self::Tokio | Self::PerCore | Self::Auto => None,
        }
    }

    /// Returns a runtime of those that all clients share, unless it is the current one that serves.
    pub(crate) fn runtime(self) -> io::Result<Option<Handle>> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        static SHARED: LazyLock<Mutex<HashMap<Engine, Vec<Handle>>>> = LazyLock::new(Mutex::default);
        if matches!(self, Self::Tokio | Self::Auto) || self.rings().is_some() && uring::is_here() {
            return Ok(None);
        }
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let runtimes = shared.entry(self).or_default();
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
            let ran = match self.rings() {
                Some(kind) => uring::block_on(kind, run),
                None => Builder::new_current_thread().enable_all().build().and_then(|runtime| runtime.block_on(run())),
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

/// As it is written in settings and on command lines: `tokio`, `per-core`, `uring`, `uring-portable`, `tokio-uring`, `auto`.
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
