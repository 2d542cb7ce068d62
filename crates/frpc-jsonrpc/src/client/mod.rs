//! The client side of JSON-RPC: channels to servers.
//!
//! ```text
//!   transport   selects the connection type by the scheme of the address
//!   caller      calls on one connection, reconnecting when it is lost
//!   link        calls in flight on a connection and the task that drives it; bytes and websocket are connection types
//!   post        calls by POST request
//!   answer      messages of the server
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
