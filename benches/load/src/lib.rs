//! What every load client and server shares, whatever it speaks on the wire.
//!
//! [`Args`] say what load to make. Each connection fills a [`Recorder`], which counts what completed inside the
//! [`Window`]; together they become one [`Report`], a line of JSON.

mod args;
mod contents;
pub mod process;
mod recorder;
mod report;
mod window;

pub use args::{Args, parse_addr};
pub use contents::Contents;
pub use pico_args::{Arguments, Error as ArgsError};
pub use recorder::Recorder;
pub use report::Report;
pub use window::Window;
