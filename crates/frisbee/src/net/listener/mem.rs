//! Listeners within this process, without a socket.

use std::{
    collections::BTreeMap,
    io,
    sync::{Mutex, PoisonError},
};

use tokio::{io::DuplexStream, sync::mpsc};

pub(crate) struct MemListener {
    pub(super) name: String,
    pub(super) incoming: mpsc::Receiver<DuplexStream>,
}

impl MemListener {
    pub(super) fn bind(name: &str) -> io::Result<Self> {
        let (sender, incoming) = mpsc::channel(MEM_BACKLOG);
        mem_listeners(|all| match all.get(name) {
            Some(other) if !other.is_closed() => Err(io::ErrorKind::AddrInUse.into()),
            _ => {
                all.insert(name.into(), sender);
                Ok(Self { name: name.into(), incoming })
            }
        })
    }
}

impl Drop for MemListener {
    fn drop(&mut self) {
        mem_listeners(|all| all.remove(&self.name));
    }
}

/// Runs `visit` on the registry of this process's listeners, by name.
pub(super) fn mem_listeners<T>(visit: impl FnOnce(&mut BTreeMap<String, mpsc::Sender<DuplexStream>>) -> T) -> T {
    static ALL: Mutex<BTreeMap<String, mpsc::Sender<DuplexStream>>> = Mutex::new(BTreeMap::new());
    visit(&mut ALL.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The buffer of an in-memory connection, in bytes per direction.
pub(super) const MEM_BUFFER_LEN: usize = 64 * 1024;

/// Connections waiting to be accepted by one listener, at most.
const MEM_BACKLOG: usize = 1024;
