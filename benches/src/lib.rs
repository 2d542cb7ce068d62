//! The floor below frisbee, and the programs to compare contenders.
//!
//! The floor sends packets over tokio with nothing between the socket and the reader: one read fills an [`Inbox`],
//! which contains [`Frame`]s. A [`Contender`] is a server and its client, each run as a process.

mod contender;
#[cfg_attr(not(target_os = "linux"), path = "cores_elsewhere.rs")]
pub mod cores;
mod frame;
mod inbox;
mod program;

pub use contender::{Contender, Contest, Server, SumWire};
pub use frame::{CONTENT_LEN_MAX, Frame};
pub use inbox::Inbox;
pub use program::profile;
