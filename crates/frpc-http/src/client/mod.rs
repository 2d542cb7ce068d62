//! Calls to servers of other protocols, by the addresses of channels.
//!
//! ```text
//!   transport  what a channel holds: the protocol by the scheme of the address
//!   grpc (with grpc_web), connect, twirp   one protocol each: headers, and what ends an answer;  caller is what they share
//!   answers    messages in frames, which all but Twirp and unary Connect have
//!   exchange   a request and its response, repeated while nothing was executed
//!   post       requests of other protocols
//!   pool       connections, and the way to others;  dial makes one;  connection is one
//!   outgoing, failures, target, tls, settings
//! ```

mod answers;
mod caller;
mod connect;
mod connection;
mod dial;
mod exchange;
mod failures;
mod grpc;
mod grpc_web;
mod outgoing;
mod pool;
mod post;
mod settings;
mod target;
#[cfg(feature = "tls")]
mod tls;
mod transport;
mod twirp;

pub use post::Poster;
pub use settings::{Client, HttpVersion};
pub use transport::{register, transport};
pub use twirp::TwirpError;
