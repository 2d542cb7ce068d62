//! The JSON text of frpc: tokens, strings, numbers and base64, for untrusted input.
//!
//! [`Scanner`] is the tokenizer. `frisbee-rpc` builds the JSON mapping of proto3 on it, and `frisbee-rpc-jsonrpc` its
//! messages.
//!
//! ```
//! use frpc_json::{DEPTH_MAX, Scanner, SyntaxError};
//!
//! let mut scanner = Scanner::new(r#"{"a": [1, 2]} rest"#, DEPTH_MAX);
//! assert_eq!(scanner.value(), Ok(r#"{"a": [1, 2]}"#));
//!
//! let mut scanner = Scanner::new(r#"{"a": [1, "#, DEPTH_MAX);
//! assert_eq!(scanner.value(), Err(SyntaxError::Truncated));
//! ```
#![forbid(unsafe_code)]

pub mod base64;
mod end_finder;
mod error;
pub mod numbers;
mod scanner;
mod search;
mod splitter;
pub mod text;

pub use end_finder::EndFinder;
pub use error::{Result, SyntaxError};
pub use scanner::{DEPTH_MAX, Scanner};
pub use splitter::Splitter;
