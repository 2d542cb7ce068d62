//! Plain functions that can be called by name, with JSON in and out.

mod arguments;
mod context;
mod description;
mod discover;
pub(crate) mod memory;
mod outcome;
mod service;
mod set;

use std::{future::Future, pin::Pin};

use frpc::Status;

pub use self::{
    context::Context,
    description::{Description, Parameter},
    set::Functions,
};
pub(crate) use self::{discover::Discover, service::handle};

/// For the code that `#[function]` makes.
pub(crate) mod macros {
    pub(crate) use super::arguments::is_optional;
    pub use super::{
        arguments::Arguments,
        outcome::{block, finish, result, start},
    };
}

/// A function that is called by name, with JSON in and out. `#[function]` makes one of a function of Rust.
///
/// ```
/// use frpc_jsonrpc::{Called, Context, Description, Function};
///
/// /// Gives back what it is called with.
/// struct Echo(Description);
///
/// impl Function for Echo {
///     fn description(&self) -> &Description {
///         &self.0
///     }
///
///     fn call(&self, params: Option<&str>, _: &Context, out: &mut Vec<u8>) -> Called {
///         out.extend_from_slice(params.unwrap_or("null").as_bytes());
///         Called::Written
///     }
/// }
///
/// let echo = Echo(Description::new("echo"));
/// let mut out = Vec::new();
/// assert!(matches!(echo.call(Some("[1, 2]"), &Context::default(), &mut out), Called::Written));
/// assert_eq!(out, b"[1, 2]");
/// ```
pub trait Function: Send + Sync + 'static {
    /// Returns the name of the function, and what is known of its parameters and its result.
    fn description(&self) -> &Description;

    /// Calls it. `params` is an array or an object in JSON, which the caller has checked to be well formed, or nothing.
    ///
    /// The result is written at the end of `out` in JSON. If the call fails, `out` is as it was. A panic is for the caller to catch.
    fn call(&self, params: Option<&str>, context: &Context, out: &mut Vec<u8>) -> Called;
}

/// The outcome of the call of a [`Function`].
#[must_use]
pub enum Called {
    /// The result has been written.
    Written,
    /// The call failed. [`Code::InvalidArgument`](frpc::Code::InvalidArgument) says that the arguments are wrong.
    Failed(Status),
    /// The result comes later, in JSON. Dropping the future ends the call.
    Later(Pin<Box<dyn Future<Output = Result<Vec<u8>, Status>> + Send>>),
}
