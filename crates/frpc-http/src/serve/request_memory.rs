//! Memory accounting for the messages of a request.

use frpc::{Head, MemoryAccount, MemoryHold, Status};

/// The memory charged for the messages of a request. Small messages are not counted.
#[derive(Debug)]
pub(crate) struct RequestMemory {
    account: MemoryAccount,
    hold: Option<MemoryHold>,
}

impl RequestMemory {
    pub(crate) fn new(account: &MemoryAccount) -> Self {
        Self { account: account.clone(), hold: None }
    }

    /// Charges this many bytes in total, more or fewer than before.
    ///
    /// # Errors
    ///
    /// If the memory limit of the connection or of the server is exceeded.
    #[inline]
    pub(crate) fn set(&mut self, len: usize) -> Result<(), Status> {
        if len < COUNTED_LEN && self.hold.is_none() { Ok(()) } else { self.set_counted(len) }
    }

    #[cold]
    fn set_counted(&mut self, len: usize) -> Result<(), Status> {
        let account = &self.account;
        let hold = self.hold.get_or_insert_with(|| account.hold());
        // Rounded up, so that a message received in many chunks does not update the account for each of them.
        hold.resize(len.next_multiple_of(COUNTED_LEN))
    }

    /// Moves the charged memory to the call of this head. The end of the call releases it.
    pub(crate) fn attach_to(&mut self, head: &mut Head) {
        if let Some(hold) = self.hold.take() {
            head.extensions_mut().insert(hold);
        }
    }
}

/// The minimum length of counted messages.
pub(super) const COUNTED_LEN: usize = 16 << 10;
