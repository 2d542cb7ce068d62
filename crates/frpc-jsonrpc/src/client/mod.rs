//! Calls to servers that speak JSON-RPC, by the addresses of channels.
//!
//! ```text
//!   transport   what a channel holds: how to connect by the scheme of the address
//!   caller      calls on one connection, made again when it was lost
//!   link        the calls that wait on a connection, and its task;  bytes and websocket are connections
//!   post        calls by POST
//!   answer      what a server says
//! ```

mod answer;
mod bytes;
mod caller;
mod link;
#[cfg(feature = "http")]
mod post;
mod transport;
#[cfg(feature = "http")]
mod websocket;

pub use transport::{Client, register, transport};
