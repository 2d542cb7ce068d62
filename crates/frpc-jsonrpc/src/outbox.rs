//! The buffer of outgoing messages.

/// The framing that separates messages on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageFraming {
    /// Consecutive values. Each sent value ends with a line feed.
    Values,
    /// Each message follows its `Content-Length` header.
    Headers,
    /// The underlying connection keeps messages apart.
    #[cfg(feature = "http")]
    Messages,
}

/// Outgoing messages, encoded and waiting to be written.
#[derive(Debug)]
pub(crate) struct MessageOutbox {
    pub(crate) bytes: Vec<u8>,
    framing: MessageFraming,
    /// The end of each message, for connections with [`MessageFraming::Messages`].
    #[cfg(feature = "http")]
    ends: Vec<usize>,
}

impl MessageOutbox {
    pub(crate) fn new(framing: MessageFraming) -> Self {
        Self {
            bytes: Vec::new(),
            framing,
            #[cfg(feature = "http")]
            ends: Vec::new(),
        }
    }

    /// Changes the framing of the messages that follow.
    pub(crate) fn set_framing(&mut self, framing: MessageFraming) {
        self.framing = framing;
    }

    /// Returns the length of all messages: the start of the next one, which the caller appends to `bytes`.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Ends the message that begins at `start`, and adds its framing.
    #[inline]
    pub(crate) fn end(&mut self, start: usize) {
        match self.framing {
            MessageFraming::Values => self.bytes.push(b'\n'),
            MessageFraming::Headers => {
                let head = format!("Content-Length: {}\r\n\r\n", self.bytes.len() - start);
                self.bytes.splice(start..start, head.into_bytes());
            }
            #[cfg(feature = "http")]
            MessageFraming::Messages => self.ends.push(self.bytes.len()),
        }
    }

    /// Passes each message to `take`, for connections with [`MessageFraming::Messages`].
    #[cfg(feature = "http")]
    pub(crate) fn take_messages(&mut self, mut take: impl FnMut(&[u8])) {
        let mut start = 0;
        for end in self.ends.drain(..) {
            take(&self.bytes[start..end]);
            start = end;
        }
        self.bytes.clear();
    }
}
