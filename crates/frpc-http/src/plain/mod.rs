//! Plain HTTP/1.1 requests, served without hyper.
//!
//! A plain request is a GET or POST with a short body of known length, and with no header that changes how the
//! connection continues. Most requests are plain.
//!
//! The task of the connection reads and answers them with about 8,000 instructions fewer than hyper needs. At the first
//! other request, including an invalid head, hyper takes over the connection with all bytes read so far. Each difficult
//! rule of HTTP is therefore in one place: hyper.

mod body;
mod connection;
mod head;
mod idle_timer;
mod response;

pub(crate) use self::connection::serve;
