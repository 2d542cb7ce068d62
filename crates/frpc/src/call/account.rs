//! Memory accounts of connections and servers.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::status::Status;

/// A shared memory limit for the messages of a server, or of one connection and its server. Cheap to clone.
///
/// An [`Endpoint`](crate::Endpoint) has one account for its server and creates one per connection. A wire takes a
/// [`MemoryHold`] for each message being received or handled, and drops it when the call is over.
///
/// ```
/// # fn example(endpoint: &frpc::Endpoint) -> Result<(), frpc::Status> {
/// let connection = endpoint.connection_account();
/// let hold = connection.hold();
/// hold.grow(64 * 1024)?;
/// // Reads a message of 64 KiB, and handles it.
/// drop(hold);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryAccount(Arc<AccountState>);

struct AccountState {
    used: AtomicUsize,
    limit: usize,
    /// The name of the setting with this limit, for error messages.
    setting: &'static str,
    /// The enclosing account, charged as well.
    outer: Option<MemoryAccount>,
}

/// Memory charged to a [`MemoryAccount`] until all clones are dropped.
#[derive(Clone)]
pub struct MemoryHold(Arc<HoldState>);

struct HoldState {
    account: MemoryAccount,
    len: AtomicUsize,
}

impl MemoryAccount {
    pub(crate) fn for_server(limit: usize) -> Self {
        Self(Arc::new(AccountState { used: AtomicUsize::new(0), limit, setting: "server_memory_max", outer: None }))
    }

    pub(crate) fn for_connection(limit: usize, server: &Self) -> Self {
        let (used, outer) = (AtomicUsize::new(0), Some(server.clone()));
        Self(Arc::new(AccountState { used, limit, setting: "connection_memory_max", outer }))
    }

    /// Creates a hold of zero bytes.
    pub fn hold(&self) -> MemoryHold {
        MemoryHold(Arc::new(HoldState { account: self.clone(), len: AtomicUsize::new(0) }))
    }

    /// Returns the number of bytes held.
    pub fn held(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    fn take(&self, len: usize) -> Result<(), Status> {
        let AccountState { used, limit, setting, outer } = &*self.0;
        let fits = |used: usize| used.checked_add(len).filter(|sum| sum <= limit);
        // Relaxed: the counter guards no other memory, and the limit holds in any order of the calls.
        if used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
            return Err(Status::resource_exhausted(format!(
                "the call was not executed: its messages need {len} more bytes, and `{setting}` allows {limit} bytes"
            )));
        }
        match outer.as_ref().map_or(Ok(()), |outer| outer.take(len)) {
            Ok(()) => Ok(()),
            Err(status) => {
                // Undo the charge, because the enclosing account has no room.
                used.fetch_sub(len, Ordering::Relaxed);
                Err(status)
            }
        }
    }

    fn release(&self, len: usize) {
        let mut account = Some(self);
        while let Some(Self(held)) = account {
            held.used.fetch_sub(len, Ordering::Relaxed);
            account = held.outer.as_ref();
        }
    }
}

impl MemoryHold {
    /// Increases the hold by `len` bytes.
    ///
    /// # Errors
    ///
    /// [`ResourceExhausted`](crate::Code::ResourceExhausted) if the limit of the connection or the server would be
    /// exceeded. The hold is unchanged then.
    pub fn grow(&self, len: usize) -> Result<(), Status> {
        self.0.account.take(len)?;
        self.0.len.fetch_add(len, Ordering::Relaxed);
        Ok(())
    }

    /// Returns `true` if the hold has zero bytes.
    pub fn is_empty(&self) -> bool {
        self.0.len.load(Ordering::Relaxed) == 0
    }

    /// Changes the size of the hold to `len` bytes.
    ///
    /// # Errors
    ///
    /// The errors of [`grow`](Self::grow).
    pub fn resize(&self, len: usize) -> Result<(), Status> {
        let now = self.0.len.load(Ordering::Relaxed);
        match len.checked_sub(now) {
            Some(more) => self.grow(more),
            None => {
                self.0.account.release(now - len);
                self.0.len.store(len, Ordering::Relaxed);
                Ok(())
            }
        }
    }
}

impl Drop for HoldState {
    fn drop(&mut self) {
        self.account.release(*self.len.get_mut());
    }
}

impl fmt::Debug for MemoryAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryAccount")
            .field("held", &self.held())
            .field("limit", &self.0.limit)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for MemoryHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryHold").field("len", &self.0.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    #[test]
    fn a_hold_uses_memory_of_connection_and_server() {
        let server = MemoryAccount::for_server(100);
        let (one, other) = (MemoryAccount::for_connection(80, &server), MemoryAccount::for_connection(80, &server));
        let hold = one.hold();
        hold.grow(70).unwrap();
        let status = hold.grow(11).unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().contains("`connection_memory_max` allows 80 bytes"), "{status}");
        let second = other.hold();
        let status = second.grow(31).unwrap_err();
        assert!(status.message().contains("`server_memory_max` allows 100 bytes"), "{status}");
        assert_eq!((one.held(), other.held(), server.held()), (70, 0, 70));
        second.grow(30).unwrap();
        hold.resize(20).unwrap();
        assert_eq!((one.held(), other.held(), server.held()), (20, 30, 50));
        drop(hold.clone());
        drop(hold);
        assert_eq!((one.held(), server.held()), (0, 30));
        drop(second);
        assert_eq!(server.held(), 0);
        assert!(server.hold().grow(usize::MAX).is_err());
    }
}
