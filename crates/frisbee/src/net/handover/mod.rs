//! Listeners from the previous process of a service, and for the next one.

mod message;

use std::{
    fmt, io,
    os::{fd::OwnedFd, unix::net},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::geteuid;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    time::timeout,
};
use tracing::debug;

use self::message::{ListenerKind, PassedListener, receive, send};
use super::{
    adopted::{AdoptedListener, AdoptedSocket},
    listener::unix,
    passed::{PassedListeners, PassedSockets},
    socket_file::SocketFile,
    target::{ListenOn, ListenTarget, TargetKind},
};
use crate::Address;

/// A Unix socket where a process passes its listeners to the next process of the same service.
///
/// A restart then refuses no connection: the listening sockets stay open, and the next process serves before the
/// previous one stops. All processes run the same code:
///
/// 1. [`join`](Self::join) receives the listeners of the previous process, if there is one.
/// 2. [`targets`](Self::targets) replaces addresses with these listeners.
/// 3. [`Server::hand_over`](crate::Server::hand_over) tells the previous process to stop, and waits for the next one.
/// 4. [`Server::shutdown`](crate::Server::shutdown) lets calls in flight finish.
///
/// ```no_run
/// use std::time::Duration;
///
/// use frisbee::{Handover, Server};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let mut handover = Handover::join("/run/greeter.handover").await?;
/// let server = Server::builder(()).bind(handover.targets("tcp://0.0.0.0:7300")?).await?;
/// server.hand_over(handover).await;
/// server.shutdown(Duration::from_secs(30)).await;
/// # Ok(())
/// # }
/// ```
///
/// Both processes must run as the same user, or the other one as root. Listeners for `mem:` addresses stay in their
/// process. Sockets of every [`Engine`](crate::Engine) are passed, also to a process with another engine.
///
/// Services with sockets of systemd do not need it: their sockets stay open during restarts.
pub struct Handover {
    // In this order: the file is removed before the socket closes.
    file: Option<SocketFile>,
    socket: UnixListener,
    previous: Option<UnixStream>,
    passed: Vec<PassedListeners>,
}

/// A listener to pass to the next process.
pub(crate) struct SharedListener {
    pub(crate) name: String,
    pub(crate) descriptor: OwnedFd,
    pub(crate) has_file: bool,
}

impl Handover {
    /// Receives the listeners of the process at this path. Creates the socket if no process is there.
    ///
    /// Waits until the previous process calls [`Server::hand_over`](crate::Server::hand_over), for 30 seconds at most.
    ///
    /// # Errors
    ///
    /// If the previous process does not answer in time, runs as another user, or is no server with a handover, or if
    /// the socket cannot be created.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the previous process in service.
    pub async fn join(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let joined = timeout(ANSWER_MAX, Self::join_or_create(path)).await.unwrap_or_else(|_| {
            let why = format!("the previous process has not called `Server::hand_over` within {ANSWER_MAX:?}");
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        });
        let named = |error: io::Error| io::Error::new(error.kind(), format!("handover at {}: {error}", path.display()));
        joined.map_err(named)
    }

    async fn join_or_create(path: &Path) -> io::Result<Self> {
        loop {
            match UnixStream::connect(path).await {
                Ok(previous) => match Self::receive(path, previous).await {
                    // The previous process has ended in the meantime, and so has its socket.
                    Err(error) if has_ended(&error) => {}
                    received => return received,
                },
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                    match Self::create(path).await {
                        // Another process was faster.
                        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                        created => return created,
                    }
                }
                Err(error) => return Err(error),
            }
            tokio::task::yield_now().await;
        }
    }

    async fn create(path: &Path) -> io::Result<Self> {
        let (file, socket) = unix::bind(&Address::Unix(path.to_owned())).await?;
        Ok(Self { file, socket: UnixListener::from_std(socket)?, previous: None, passed: Vec::new() })
    }

    async fn receive(path: &Path, mut previous: UnixStream) -> io::Result<Self> {
        check_user(&previous)?;
        previous.write_all(GREETING).await?;
        let mut socket = None;
        let mut passed: Vec<PassedListeners> = Vec::new();
        for PassedListener { kind, name, descriptor } in receive(&previous).await? {
            match (kind, AdoptedSocket::new(descriptor)?.into_listener()?) {
                (ListenerKind::Handover, AdoptedListener::Unix(listener)) => socket = Some(listener),
                (ListenerKind::Handover, AdoptedListener::Tcp(_)) => {
                    return Err(message::malformed("its handover is not at a Unix socket"));
                }
                (kind, listener) => add(&mut passed, name, kind == ListenerKind::WithFile, listener)?,
            }
        }
        let Some(socket) = socket else { return Err(message::malformed("its handover socket is missing")) };
        socket.set_nonblocking(true)?;
        debug!(listeners = passed.len(), "received listeners from the previous process");
        Ok(Self {
            file: SocketFile::of_another_process(path).ok(),
            socket: UnixListener::from_std(socket)?,
            previous: Some(previous),
            passed,
        })
    }

    /// Returns `true` if a previous process has passed its listeners.
    pub fn has_previous(&self) -> bool {
        self.previous.is_some()
    }

    /// Replaces each address with the listeners that the previous process had for it. Other targets stay as they are.
    ///
    /// Addresses are compared as text, so `tcp://localhost:7300` does not match `tcp://127.0.0.1:7300`. An address with
    /// port 0 keeps the actual port of the previous process.
    ///
    /// # Errors
    ///
    /// If an address is invalid.
    pub fn targets(&mut self, on: impl ListenOn) -> io::Result<Vec<ListenTarget>> {
        let mut targets = on.into_targets()?;
        for ListenTarget(target) in &mut targets {
            let Some(name) = target.requested() else { continue };
            if let Some(index) = self.passed.iter().position(|passed| passed.name == name) {
                *target = TargetKind::Passed(self.passed.swap_remove(index));
            }
        }
        Ok(targets)
    }

    /// Tells the previous process that this one serves. Closes listeners without a target.
    pub(crate) async fn confirm(&mut self) {
        for PassedListeners { name, .. } in self.passed.drain(..) {
            debug!(%name, "closes a listener of the previous process without a target in this one");
        }
        if let Some(mut previous) = self.previous.take()
            && let Err(error) = previous.write_all(&[READY]).await
        {
            debug!(%error, "the previous process has ended before the handover");
        }
        self.keep_file(false);
    }

    /// Waits for the next process.
    pub(crate) async fn accept(&self) -> io::Result<NextProcess> {
        let (stream, _) = self.socket.accept().await?;
        Ok(NextProcess(stream))
    }

    /// Passes the listeners to the next process, and waits until it serves.
    pub(crate) async fn pass(&mut self, next: NextProcess, listeners: Vec<SharedListener>) -> io::Result<()> {
        let NextProcess(mut stream) = next;
        check_user(&stream)?;
        let mut greeting = [0; GREETING.len()];
        let greeted = timeout(GREETING_MAX, stream.read_exact(&mut greeting)).await;
        greeted.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "it sent no greeting"))??;
        if greeting != *GREETING {
            return Err(message::malformed("it is not a process with this version of the handover"));
        }
        let socket = std::os::fd::AsFd::as_fd(&self.socket).try_clone_to_owned()?;
        let handover = PassedListener { kind: ListenerKind::Handover, name: String::new(), descriptor: socket };
        let listeners = listeners.into_iter().map(|SharedListener { name, descriptor, has_file }| {
            let kind = if has_file { ListenerKind::WithFile } else { ListenerKind::Plain };
            PassedListener { kind, name, descriptor }
        });
        send(&mut stream, listeners.chain([handover]).collect()).await?;
        // The next process may confirm from here on, and owns the file then, also if this process ends first.
        self.keep_file(true);
        let confirmed = stream.read_u8().await;
        if !matches!(confirmed, Ok(READY)) {
            self.keep_file(false);
        }
        match confirmed? {
            READY => Ok(()),
            _ => Err(message::malformed("it sent something else than its confirmation")),
        }
    }

    fn keep_file(&mut self, is_kept: bool) {
        if let Some(file) = &mut self.file {
            file.is_kept = is_kept;
        }
    }
}

/// A connection to the handover socket.
pub(crate) struct NextProcess(UnixStream);

/// Adds a listener to those with the same name. An engine with several threads has several.
fn add(all: &mut Vec<PassedListeners>, name: String, has_file: bool, listener: AdoptedListener) -> io::Result<()> {
    let same = all.iter_mut().find(|passed| passed.name == name);
    match (same.map(|passed| &mut passed.sockets), listener) {
        (Some(PassedSockets::Tcp(listeners)), AdoptedListener::Tcp(listener)) => listeners.push(listener),
        (Some(PassedSockets::Unix(listeners, file)), AdoptedListener::Unix(listener)) => {
            if has_file {
                *file = file_of(&listener);
            }
            listeners.push(listener);
        }
        (Some(_), _) => return Err(message::malformed("it passed two kinds of sockets for one address")),
        (None, AdoptedListener::Tcp(listener)) => {
            listener.set_nonblocking(true)?;
            all.push(PassedListeners { name, sockets: PassedSockets::Tcp(vec![listener]) });
        }
        (None, AdoptedListener::Unix(listener)) => {
            listener.set_nonblocking(true)?;
            let file = if has_file { file_of(&listener) } else { None };
            all.push(PassedListeners { name, sockets: PassedSockets::Unix(vec![listener], file) });
        }
    }
    Ok(())
}

/// Returns the file of a listener. It stays the property of the previous process until the confirmation.
fn file_of(listener: &net::UnixListener) -> Option<SocketFile> {
    let path: PathBuf = listener.local_addr().ok()?.as_pathname()?.to_owned();
    SocketFile::of_another_process(&path).ok()
}

/// Listeners are passed within one user only, and root.
fn check_user(peer: &UnixStream) -> io::Result<()> {
    let (peer, own) = (peer.peer_cred()?.uid(), geteuid().as_raw());
    if peer == own || peer == 0 {
        return Ok(());
    }
    let why = format!("the other process runs as user {peer}, and this one as {own}");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

fn has_ended(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handover").field("passed", &self.passed).finish_non_exhaustive()
    }
}

/// The first bytes of the next process, with the version of the messages.
const GREETING: &[u8; 19] = b"frisbee handover 1\n";
/// The confirmation of the next process.
const READY: u8 = b'R';
/// The time for the previous process to answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// The time for the next process to send its greeting.
const GREETING_MAX: Duration = Duration::from_secs(5);
