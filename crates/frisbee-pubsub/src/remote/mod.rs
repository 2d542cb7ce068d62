//! Clients of a broker on frisbee.

mod backend;
mod dial;
mod feed;
mod inbox;
mod session;

pub use self::{
    dial::{ClientBuilder, ConnectError},
    inbox::ClientRouter,
};
