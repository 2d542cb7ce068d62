//! Listeners from the service manager.

use std::{
    env, fmt, io,
    ops::Range,
    os::fd::RawFd,
    process,
    sync::atomic::{AtomicBool, Ordering},
};

use super::{
    adopted::{AdoptedSocket, adopt},
    target::{ListenOn, ListenTarget, targets_of},
};

/// Listening sockets opened by systemd, or another service manager with the same environment variables.
///
/// With [socket activation](https://www.freedesktop.org/software/systemd/man/latest/sd_listen_fds.html), the service
/// manager opens the sockets. It starts the service with the first connection, and keeps the sockets open while the
/// service restarts. `LISTEN_FDS` has their number, `LISTEN_PID` the process they are for, and `LISTEN_FDNAMES` their
/// names (`FileDescriptorName=` of the socket unit). Development tools such as `systemfd --no-pid` leave out
/// `LISTEN_PID`; the sockets are then for any process.
///
/// Pass all of them to [`ServerBuilder::bind`](crate::ServerBuilder::bind), or take some by name or index for several
/// servers.
///
/// ```
/// use frisbee::{ListenOn, Server, SystemdListeners};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let listeners = SystemdListeners::from_env()?;
/// let on = if listeners.is_empty() { "tcp://127.0.0.1:0".into_targets()? } else { listeners.into_targets()? };
/// let server = Server::builder(()).bind(on).await?;
/// # Ok(())
/// # }
/// ```
pub struct SystemdListeners {
    /// Sockets taken by the application are `None`.
    sockets: Vec<(String, Option<AdoptedSocket>)>,
    /// Why there are no sockets.
    absence: Option<String>,
}

/// `true` once this process has taken ownership of the sockets.
static ARE_TAKEN: AtomicBool = AtomicBool::new(false);

impl SystemdListeners {
    /// Takes ownership of the sockets passed to this process.
    ///
    /// Without sockets, the result is [empty](Self::is_empty). The environment variables stay as they are.
    ///
    /// # Errors
    ///
    /// If the variables are malformed, announce descriptors that are not open, or were used before in this process.
    pub fn from_env() -> io::Result<Self> {
        let variable = |name| env::var(name).ok();
        let announced = announced(
            variable("LISTEN_PID").as_deref(),
            variable("LISTEN_FDS").as_deref(),
            variable("LISTEN_FDNAMES").as_deref(),
            process::id(),
        );
        let (descriptors, names) = match announced? {
            Announced::Sockets(descriptors, names) => (descriptors, names),
            Announced::Absent(why) => return Ok(Self { sockets: Vec::new(), absence: Some(why) }),
        };
        if ARE_TAKEN.swap(true, Ordering::Relaxed) {
            return Err(invalid("the sockets of LISTEN_FDS were taken before; call SystemdListeners::from_env once"));
        }
        let sockets = adopt(descriptors).map_err(|why| invalid(&format!("LISTEN_FDS: {why}")))?;
        Ok(Self { sockets: names.into_iter().zip(sockets.into_iter().map(Some)).collect(), absence: None })
    }

    /// Returns `true` if the service manager passed no sockets, for example if the program was started in a shell.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Returns the names of the sockets, by index. Unnamed sockets are called `unknown`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sockets.iter().map(|(name, _)| name.as_str())
    }

    /// Takes all sockets with this name. A socket unit with several `ListenStream=` lines passes several.
    ///
    /// # Errors
    ///
    /// If no socket with this name is left, or one of them is not a listening stream socket over TCP or Unix.
    pub fn take(&mut self, name: &str) -> io::Result<Vec<ListenTarget>> {
        let indices: Vec<usize> = (0..self.sockets.len()).filter(|&index| self.has(index, Some(name))).collect();
        if indices.is_empty() {
            return Err(self.missing(&format!("named {name:?}")));
        }
        indices.into_iter().map(|index| self.take_at(index)).collect()
    }

    /// Takes the socket at this index, in the order of the socket unit, from 0.
    ///
    /// # Errors
    ///
    /// If there is no such socket, it was taken before, or it is not a listening stream socket over TCP or Unix.
    pub fn take_at(&mut self, index: usize) -> io::Result<ListenTarget> {
        if !self.has(index, None) {
            return Err(self.missing(&format!("with index {index}")));
        }
        let (name, socket) = &mut self.sockets[index];
        let Some(socket) = socket.take() else { unreachable!("it was checked above") };
        let named = |error: io::Error| {
            let hint = "use ListenStream= with Accept=no in the socket unit";
            io::Error::new(error.kind(), format!("socket {index} of the service manager ({name}) {error}; {hint}"))
        };
        socket.into_target().map_err(named)
    }

    fn has(&self, index: usize, name: Option<&str>) -> bool {
        self.sockets.get(index).is_some_and(|(its, socket)| socket.is_some() && name.is_none_or(|name| name == its))
    }

    fn missing(&self, which: &str) -> io::Error {
        let left: Vec<String> = (0..self.sockets.len())
            .filter(|&index| self.has(index, None))
            .map(|index| format!("{index} ({})", self.sockets[index].0))
            .collect();
        let why = match &self.absence {
            Some(why) => format!("the service manager passed no sockets: {why}"),
            None if left.is_empty() => format!("no socket {which}: all sockets of the service manager are taken"),
            None => format!("the service manager passed no socket {which}; left are {}", left.join(", ")),
        };
        io::Error::new(io::ErrorKind::NotFound, why)
    }
}

/// All sockets that are left.
impl ListenOn for SystemdListeners {
    fn into_targets(mut self) -> io::Result<Vec<ListenTarget>> {
        let left: Vec<usize> = (0..self.sockets.len()).filter(|&index| self.has(index, None)).collect();
        if left.is_empty() {
            return Err(self.missing("left"));
        }
        targets_of(left.into_iter().map(|index| self.take_at(index)).collect::<io::Result<Vec<_>>>()?)
    }
}

impl fmt::Debug for SystemdListeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

#[derive(Debug, PartialEq)]
enum Announced {
    Sockets(Range<RawFd>, Vec<String>),
    Absent(String),
}

/// Reads the three variables, for the process `own`.
fn announced(pid: Option<&str>, count: Option<&str>, names: Option<&str>, own: u32) -> io::Result<Announced> {
    let Some(count) = count else { return Ok(Announced::Absent("LISTEN_FDS is not set".to_owned())) };
    let number = |name, text: &str| text.parse::<u32>().map_err(|_| invalid(&format!("{name} is no number: {text:?}")));
    let (pid, count) = (pid.map(|pid| number("LISTEN_PID", pid)).transpose()?, number("LISTEN_FDS", count)?);
    if let Some(pid) = pid
        && pid != own
    {
        let why =
            format!("LISTEN_PID is {pid}, and this process has the id {own}; start it without a shell in between");
        return Ok(Announced::Absent(why));
    }
    if count == 0 {
        return Ok(Announced::Absent("LISTEN_FDS is 0".to_owned()));
    }
    if count > DESCRIPTORS_MAX {
        return Err(invalid(&format!("LISTEN_FDS is {count}: the maximum is {DESCRIPTORS_MAX}")));
    }
    let given: Vec<&str> =
        names.filter(|names| !names.is_empty()).map_or(Vec::new(), |names| names.split(':').collect());
    if given.len() > count as usize {
        return Err(invalid(&format!("LISTEN_FDNAMES has {} names for {count} sockets", given.len())));
    }
    let unnamed = count as usize - given.len();
    let names = given.into_iter().chain(std::iter::repeat_n("unknown", unnamed)).map(str::to_owned).collect();
    Ok(Announced::Sockets(FIRST_DESCRIPTOR..FIRST_DESCRIPTOR + count.cast_signed(), names))
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// The first descriptor after standard input, output and error.
const FIRST_DESCRIPTOR: RawFd = 3;

/// Far above the sockets of a service. systemd has no limit but that of open files.
const DESCRIPTORS_MAX: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::{Announced, announced};

    #[test]
    fn reads_the_variables_of_the_service_manager() {
        let names = |text: &[&str]| text.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let sockets = announced(Some("7"), Some("3"), Some("rpc:admin"), 7).unwrap();
        assert_eq!(sockets, Announced::Sockets(3..6, names(&["rpc", "admin", "unknown"])));
        for pid in [Some("7"), None] {
            let sockets = announced(pid, Some("1"), None, 7).unwrap();
            assert_eq!(sockets, Announced::Sockets(3..4, names(&["unknown"])));
        }
    }

    #[test]
    fn variables_for_another_process_or_none_are_an_absence() {
        for (pid, count) in [(None, None), (Some("7"), None), (Some("8"), Some("1")), (Some("7"), Some("0"))] {
            let absent = announced(pid, count, None, 7).unwrap();
            assert!(matches!(absent, Announced::Absent(_)), "{pid:?} {count:?}: {absent:?}");
        }
    }

    #[test]
    fn malformed_variables_are_errors() {
        for (pid, count, names) in [
            ("7", "-1", None),
            ("7", "x", None),
            ("", "1", None),
            ("7", "99999999999", None),
            ("7", "4097", None),
            ("7", "1", Some("a:b")),
        ] {
            announced(Some(pid), Some(count), names, 7).unwrap_err();
        }
    }
}
