//! The attribute `#[function]` and the derive `Schema` of `frpc-jsonrpc`, which hands them on.
#![forbid(unsafe_code)]

mod docs;
mod expand;
mod options;
mod parameter;
mod schema;

use proc_macro::TokenStream;

/// Makes a function callable by name, with JSON in and out.
///
/// ```ignore
/// #[frpc_jsonrpc::function]
/// async fn sum(a: i64, b: i64) -> i64 {
///     a + b
/// }
///
/// Server::builder().wire(JsonRpc::new().function(sum)).bind("tcp://0.0.0.0:8545").await?
/// ```
///
/// `sum` becomes a type that is a `Function`; in Rust it is called as ever if it takes no references or is not async, and in any
/// case as `sum::call(1, 2)`. The comment on it becomes its description.
///
/// # Parameters
///
/// | type | value |
/// |---|---|
/// | any type of serde | the argument at this place, or of this name |
/// | `&str`, `&[T]` | the same, lent |
/// | `Option<T>` | the same; `None` if it is left out |
/// | `&Context`, `Context` | the circumstances of the call |
/// | any other `&T` | the state of this type |
///
/// `#[default]` or `#[default(expression)]` on a parameter says which value it has if it is left out, and `#[name("other")]` which
/// name it has for callers.
///
/// # Results
///
/// Any type of serde, or a `Result` of one, whose error becomes a `Status`. It has to be written as a `Result` with that name.
///
/// # Options
///
/// - `#[function(name = "math.sum")]`: the name for callers.
/// - `#[function(blocking)]`: a function that is not async runs on a thread where it may block.
#[proc_macro_attribute]
pub fn function(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(options.into(), item.into()).unwrap_or_else(|error| error.into_compile_error()).into()
}

/// Implements `Schema` for a struct or an enum: the JSON that serde makes of it, and the comments on it as descriptions.
///
/// ```ignore
/// /// A place.
/// #[derive(serde::Deserialize, serde::Serialize, frpc_jsonrpc::Schema)]
/// #[serde(rename_all = "camelCase")]
/// struct Place {
///     /// In degrees, north of the equator.
///     latitude: f64,
///     longitude: f64,
///     display_name: Option<String>,
/// }
/// ```
///
/// It reads the attributes of serde:
///
/// | on | attributes |
/// |---|---|
/// | types | `rename`, `rename_all`, `rename_all_fields`, `tag`, `content`, `untagged`, `transparent`, `default`, `deny_unknown_fields` |
/// | variants | `rename`, `rename_all`, `skip` |
/// | fields | `rename`, `skip`, `default`, `skip_serializing_if`, `skip_serializing`, `skip_deserializing`, `flatten`, `with` and the like |
///
/// Fields that may be missing one way or the other are not required, and neither is what is written as `Option<…>`. A field with
/// code of its own (`with`), or of a type without a schema, is any value. A type within itself is described once. Type parameters
/// have to have schemas. Attributes that change the JSON in other ways are errors.
#[proc_macro_derive(Schema, attributes(serde))]
pub fn schema(item: TokenStream) -> TokenStream {
    schema::expand(item.into()).unwrap_or_else(|error| error.into_compile_error()).into()
}
