//! Errors of the reader.

use std::{error::Error, fmt, io};

/// The error for a file without a valid recording, with the offset of the fault.
#[derive(Debug)]
#[non_exhaustive]
pub struct RecordingError {
    /// The position in the file of the invalid record or value.
    pub offset: u64,
    /// The reason.
    pub fault: RecordingFault,
}

/// The reason for a [`RecordingError`].
#[derive(Debug)]
#[non_exhaustive]
pub enum RecordingFault {
    /// The file cannot be read.
    Io(io::Error),
    /// The file is not a recording.
    Foreign,
    /// The file has another version of the format.
    Version(u32),
    /// A record does not match its checksum.
    Checksum,
    /// A record has another layout than a recorder writes.
    Record(String),
}

impl RecordingError {
    pub(crate) fn new(offset: usize, fault: RecordingFault) -> Self {
        Self { offset: offset as u64, fault }
    }

    pub(crate) fn record(offset: usize, what: impl fmt::Display) -> Self {
        Self::new(offset, RecordingFault::Record(what.to_string()))
    }
}

impl fmt::Display for RecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            RecordingFault::Io(error) => write!(f, "the recording cannot be read: {error}"),
            RecordingFault::Foreign => write!(f, "not a recording of frpc: it does not start with `frpc-record`"),
            RecordingFault::Version(version) => {
                write!(f, "the recording has version {version} of the format, but this reader knows version 1 only")
            }
            RecordingFault::Checksum => {
                write!(f, "the recording is damaged: the record at byte {} does not match its checksum", self.offset)
            }
            RecordingFault::Record(what) => {
                write!(f, "the recording is invalid: the record at byte {} {what}", self.offset)
            }
        }
    }
}

impl Error for RecordingError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.fault {
            RecordingFault::Io(error) => Some(error),
            _ => None,
        }
    }
}
