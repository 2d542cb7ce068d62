//! WebSocket clients.

mod answer;
mod dial;
mod settings;
mod target;
#[cfg(feature = "tls")]
mod tls;
mod transport;

pub use self::{
    settings::Client,
    transport::{register, transport},
};
