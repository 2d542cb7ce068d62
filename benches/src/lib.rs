//! The floor under frisbee, and what it takes to compare contenders.
//!
//! The floor is packets over tokio with nothing between the socket and the reader: a [`Frame`] is found in an [`Inbox`],
//! which is filled by one read. A [`Contender`] is a server and its client, run as processes of their own.

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
