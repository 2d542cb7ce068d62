//! Shared parts of all load clients and servers, for any protocol.
//!
//! [`Args`] describe the load. Each connection fills a [`Recorder`] with the calls completed inside the [`Window`]. All
//! recorders together become one [`Report`], a line of JSON. An ordinary client with one method to call implements
//! [`Caller`] and uses [`run`] for the rest.

mod args;
mod caller;
mod contents;
mod field;
pub mod process;
mod recorder;
mod report;
#[cfg_attr(not(unix), path = "system_elsewhere.rs")]
mod system;
mod window;

pub use args::{Args, ServerArgs, parse_addr};
pub use caller::{Caller, run};
pub use contents::Contents;
pub use field::Field;
pub use pico_args::{Arguments, Error as ArgsError};
pub use recorder::Recorder;
pub use report::Report;
pub use window::Window;
