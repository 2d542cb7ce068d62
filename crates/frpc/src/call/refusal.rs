//! Calls refused by a server before they are executed.

use std::{error::Error, fmt, sync::Arc};

use super::status::{Code, Status};

/// The source of the status of a refused call, on the server.
#[derive(Debug)]
struct NotExecuted;

impl fmt::Display for NotExecuted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the call was not executed")
    }
}

impl Error for NotExecuted {}

/// The source of the status of a refused call, on the client.
#[derive(Debug)]
struct RefusedByServer;

impl fmt::Display for RefusedByServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server refused the call")
    }
}

impl Error for RefusedByServer {}

impl Status {
    /// Returns the status of a call that this server refuses without executing it, with [`Code::Unavailable`]. For
    /// layers that protect a server.
    ///
    /// Channels to several servers then make the call on another one, for any method. They know it from the refusal of
    /// frisbee, and on other wires from the metadata entry `frpc-not-executed`.
    pub fn not_executed(message: impl Into<String>) -> Self {
        let mut status =
            Self::new(Code::Unavailable, message).with_source(Arc::new(NotExecuted) as Arc<dyn Error + Send + Sync>);
        status.mark_not_executed();
        status
    }

    /// Adds the metadata entry for wires without a refusal of their own.
    pub(crate) fn mark_not_executed(&mut self) {
        // The name and the value are valid.
        let _ = self.metadata_mut().insert(ENTRY, "1");
    }

    /// Removes the metadata entry. Returns `true` if there was one.
    ///
    /// On a client, always: a handler may forward the status of its own call, and that handler was executed.
    pub(crate) fn take_not_executed(&mut self) -> bool {
        !self.metadata().is_empty() && self.metadata_mut().remove(ENTRY)
    }

    /// Reads the refusal of a server in the status of a received stream.
    #[cold]
    pub(crate) fn receive_refusal(&mut self) {
        if self.take_not_executed() {
            let status = std::mem::replace(self, Self::new(Code::Unknown, ""));
            *self = status.with_source(Arc::new(RefusedByServer) as Arc<dyn Error + Send + Sync>);
        }
    }

    /// Returns `true` if the server of a stream has refused the call.
    pub(crate) fn was_refused(&self) -> bool {
        self.source().is_some_and(|source| source.is::<RefusedByServer>())
    }

    /// Returns `true` for the status of [`not_executed`](Self::not_executed), on the server.
    pub(crate) fn is_refusal(&self) -> bool {
        self.source().is_some_and(|source| source.is::<NotExecuted>())
    }
}

/// The name of the metadata entry.
const ENTRY: &str = "frpc-not-executed";
