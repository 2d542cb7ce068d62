//! HTTP/2 without I/O, for clients and servers.
//!
//! [`Connection`] is one side of a connection. A driver passes the received bytes and the time to it, handles its
//! events, and writes its output:
//!
//! ```
//! use std::time::Instant;
//!
//! use frpc_http2::{Connection, Event, Field, Header, Settings};
//!
//! let now = Instant::now();
//! let mut client = Connection::client(Settings::default(), now);
//! let mut server = Connection::server(Settings::default(), now);
//! let request = [
//!     Field::new(":method", "GET"),
//!     Field::new(":scheme", "http"),
//!     Field::new(":path", "/"),
//! ];
//! let stream = client.open(Header::fields(&request), true)?;
//!
//! let mut wire = Vec::new();
//! client.take_output(&mut wire);
//! let mut input = &wire[..];
//! let head = loop {
//!     let received = server.receive(input, now)?;
//!     input = &input[received.consumed..];
//!     match received.event.expect("the request arrives") {
//!         Event::Head { head, .. } => break head,
//!         _ => continue,
//!     }
//! };
//! assert_eq!(head.path(), Some("/"));
//! server.send_head(stream, Header::fields(&[Field::new(":status", "204")]), true)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod connection;
mod error;
mod frame;
mod head;
mod hpack;
mod settings;

pub use connection::{Connection, Event, Header, PreparedBlock, Received, ReceivedMessage, Role, StreamId};
pub use error::{ConnectionError, ErrorCode, Fault, OpenError, SendError, StreamError};
pub use frame::{ConnectionFlow, FrameCount, FrameCounters};
pub use head::Head;
pub use hpack::{BlockDecoder, BlockEncoder, Field, HpackError};
pub use settings::Settings;
