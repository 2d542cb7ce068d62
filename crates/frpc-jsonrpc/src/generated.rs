//! The names that `#[function]` and `#[derive(Schema)]` use. Not for use by hand.

use std::{any::type_name, marker::PhantomData};

pub use frpc::Status;
use serde::de::DeserializeOwned;
pub use serde_json::Value;

pub use crate::function::macros::{Arguments, block, finish, result, start};
pub use crate::schema::derived;
use crate::{
    function::{Context, Parameter, macros::is_optional},
    schema::Schema,
};

/// Describes a parameter of this type.
pub fn parameter<T: DeserializeOwned>(name: &str, schema: Value, has_default: bool) -> Parameter {
    if has_default || is_optional::<T>() {
        Parameter::optional(name, schema)
    } else {
        Parameter::required(name, schema)
    }
}

/// Returns the state of this type that was given to the functions.
pub fn state<'a, T: Send + Sync + 'static>(context: &'a Context, function: &str) -> Result<&'a T, Status> {
    context.state().ok_or_else(|| {
        let wanted = type_name::<T>();
        tracing::error!(function, state = wanted, "a function was called without the state that it takes");
        Status::internal(format!("`{function}` takes a state that the server does not have: give it with `.state(…)`"))
    })
}

/// Finds the schema of a type if there is one: `(&Probe::<T>::new()).schema()` with both traits below in scope. The first is
/// found before the second, which needs a reference more.
#[derive(Debug)]
pub struct Probe<T: ?Sized>(PhantomData<T>);

impl<T: ?Sized> Probe<T> {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

/// A type with a schema.
pub trait KnownSchema {
    fn schema(&self) -> Value;
}

/// Any type.
pub trait AnySchema {
    fn schema(&self) -> Value;
}

impl<T: Schema + ?Sized> KnownSchema for Probe<T> {
    fn schema(&self) -> Value {
        T::schema()
    }
}

impl<T: ?Sized> AnySchema for &Probe<T> {
    fn schema(&self) -> Value {
        Value::Bool(true)
    }
}

/// The type of a value about which nothing is known.
#[derive(Debug)]
pub struct Anything;
