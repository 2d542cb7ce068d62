//! Recordings of calls: a layer writes them to a file, and a reader returns them for replays.
//!
//! Add a [`Recorder`] to a server or a channel. The command `frpc replay` sends the recorded calls to another server, over
//! any wire, and compares the answers. [`Recording`] reads the file in your programs.
//!
//! ```
//! use frpc::Server;
//! use frpc_record::{Recorder, Recording};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = std::env::temp_dir().join(format!("frpc-record-{}.frec", std::process::id()));
//! let recorder = Recorder::create(&path)?;
//! let server = Server::builder().layer(recorder.clone());
//! // Serve calls, then:
//! # drop(server);
//! let summary = recorder.close();
//! assert_eq!((summary.calls, summary.dropped_calls), (0, 0));
//!
//! let recording = Recording::open(&path)?;
//! assert!(recording.calls().is_empty() && recording.cut_at().is_none());
//! # std::fs::remove_file(path)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Contents
//!
//! A recording contains the method, the metadata, the messages of both directions, the time of each message, and the
//! status of each call. Values of metadata with a [name that looks secret](frpc::layers::looks_secret) are left out, as
//! in the access log. Messages are complete: [`RecordSettings::methods`] excludes methods with secrets in their messages.
//! On Unix, only the owner can read the file.
//!
//! The recording contains the descriptors of the recorded methods, so that its messages are readable without other files.
//!
//! # The file
//!
//! All integers are little-endian. The file starts with the twelve bytes `frpc-record\n` and a version in four bytes,
//! currently 1. Records follow to the end of the file:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | the length of the head, at most [`HEAD_LEN_MAX`] |
//! | 4 | the length of the content, at most [`CONTENT_LEN_MAX`] |
//! | 4 | CRC-32C of head and content |
//! | 4 | CRC-32C of the twelve bytes before |
//! | | the head: a `frpc.record.v1.Event` in protobuf, from `proto/frpc/record/v1/record.proto` |
//! | | the content: a message in the format of its call, or a descriptor set |
//!
//! The first record has the time of the start, and a closed recording ends with a closing record. A reader can thus tell
//! a cut file from a complete one at every length. A reader skips events of kinds that it does not know. A change that
//! old readers cannot skip gets another version.
#![forbid(unsafe_code)]

mod error;
mod frame;
mod metadata;
mod protos;
mod reader;
mod recorder;
mod settings;
mod writer;

pub use error::{RecordingError, RecordingFault};
pub use frame::{CONTENT_LEN_MAX, HEAD_LEN_MAX};
pub use metadata::RecordedMetadata;
pub use reader::{CallEvent, CallEventKind, CallOutcome, RecordedCall, Recording};
pub use recorder::{Recorder, RecordingSummary};
pub use settings::RecordSettings;
