//! The floor under frisbee, and what it takes to compare the two.
//!
//! The floor is packets over tokio with nothing between the socket and the reader: a [`Frame`] is found in an [`Inbox`],
//! which is filled by one read. A [`Contender`] is a server and its client, run as processes of their own.

mod contender;
mod frame;
mod inbox;

pub use contender::{Contender, Server};
pub use frame::{CONTENT_LEN_MAX, Frame};
pub use inbox::Inbox;
