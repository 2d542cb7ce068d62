//! Clients of the HTTP protocols, used by channels according to the scheme of their address.
//!
//! ```text
//!   transport  the caller of a channel; the scheme of the address selects the protocol
//!   grpc (with grpc_web, and grpc_unary for short messages), connect, twirp   one protocol each: headers, and the end of a response;  caller holds shared parts
//!   answers    framed messages, used by all protocols except Twirp and unary Connect
//!   exchange   a request and its response, retried while nothing was executed
//!   post       requests of protocols from other crates
//!   pool       connections and reconnects;  dial opens a connection;  connection is one
//!   incoming   responses, by hyper or by http2, our HTTP/2
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
#[cfg(feature = "http2")]
mod grpc_unary;
mod grpc_web;
#[cfg(feature = "http2")]
mod http2;
mod incoming;
mod outgoing;
mod pool;
mod post;
mod settings;
mod target;
#[cfg(feature = "tls")]
mod tls;
mod transport;
mod twirp;

pub use failures::HttpStatusError;
pub use post::Poster;
pub use settings::{Client, ClientSettings, HttpVersion};
pub use transport::{register, transport};
pub use twirp::TwirpError;
