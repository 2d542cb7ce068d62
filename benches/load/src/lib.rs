//! The parts that every load client and server shares, whatever it speaks on the wire.
//!
//! [`Args`] say what load to make. Each connection fills a [`Recorder`], which counts what completed inside the
//! [`Window`]; together they become one [`Report`], a line of JSON. Who has an ordinary client with a method to call
//! implements [`Caller`] and leaves the rest to [`run`].

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
