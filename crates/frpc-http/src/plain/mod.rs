//! Plain requests of HTTP/1.1: GET or POST, a body of known length that is not long, and nothing in the head that changes how the
//! connection goes on. Most are.
//!
//! They are read and answered here, in the task of their connection, for some 8,000 instructions less than by hyper. At the first request that is
//! anything else, mistakes in a head among them, the connection is hyper's, with all that has been read of it. So each rule of
//! HTTP that takes thought stands in one place, which is hyper.

mod body;
mod connection;
mod head;
mod patience;
mod response;

pub(crate) use self::connection::serve;
