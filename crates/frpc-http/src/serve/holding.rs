//! The memory of the messages of a request.

use frpc::{Head, MemoryAccount, MemoryHold, Status};

/// The memory that the messages of a request take of the account of its connection. Small ones do not count.
#[derive(Debug)]
pub(crate) struct Holding {
    account: MemoryAccount,
    hold: Option<MemoryHold>,
}

impl Holding {
    pub(crate) fn new(account: &MemoryAccount) -> Self {
        Self { account: account.clone(), hold: None }
    }

    /// Holds this many bytes, which may be more or less than before.
    ///
    /// # Errors
    ///
    /// If the connection or the server has no room for them.
    #[inline]
    pub(crate) fn set(&mut self, len: usize) -> Result<(), Status> {
        if len < COUNTED_LEN && self.hold.is_none() { Ok(()) } else { self.set_counted(len) }
    }

    #[cold]
    fn set_counted(&mut self, len: usize) -> Result<(), Status> {
        let account = &self.account;
        let hold = self.hold.get_or_insert_with(|| account.hold());
        // In steps, so that a message of many chunks is not counted for each of them.
        hold.resize(len.next_multiple_of(COUNTED_LEN))
    }

    /// Leaves what is held to the call with this head, until it is over.
    pub(crate) fn leave_to(&mut self, head: &mut Head) {
        if let Some(hold) = self.hold.take() {
            head.extensions_mut().insert(hold);
        }
    }
}

/// The length from which on messages count.
const COUNTED_LEN: usize = 16 << 10;
