//! The procedural macros of `frisbee-rpc-jsonrpc`, re-exported by it: the attribute `#[function]` and the derive
//! `Schema`.
#![forbid(unsafe_code)]

mod docs;
mod expand;
mod options;
mod parameter;
mod schema;

use proc_macro::TokenStream;

/// Makes a function callable by name, with JSON arguments and result.
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
/// `sum` becomes a type that implements `Function`. Rust code can still call `sum(1, 2)`, unless the function is async
/// and takes references. `sum::call(1, 2)` always works. The doc comment of the function becomes its description.
///
/// # Parameters
///
/// | type | value |
/// |---|---|
/// | any serde type | the argument at this position, or with this name |
/// | `&str`, `&[T]` | the same, borrowed |
/// | `Option<T>` | the same, or `None` if the argument is missing |
/// | `&Context`, `Context` | the context of the call |
/// | any other `&T` | the state of type `T` |
///
/// On a parameter, `#[default]` or `#[default(expression)]` sets the value of a missing argument, and
/// `#[name("other")]` sets the name used by callers.
///
/// # Results
///
/// Any serde type, or a `Result` with an error convertible into a `Status`. The return type must be spelled `Result`,
/// with any path.
///
/// # Options
///
/// - `#[function(name = "math.sum")]`: sets the name used by callers.
/// - `#[function(blocking)]`: runs a function that is not async on a thread pool for blocking calls.
#[proc_macro_attribute]
pub fn function(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(options.into(), item.into()).unwrap_or_else(|error| error.into_compile_error()).into()
}

/// Implements `Schema` for a struct or an enum, following its serde implementation. Doc comments become descriptions.
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
/// It supports these serde attributes:
///
/// | on | attributes |
/// |---|---|
/// | types | `rename`, `rename_all`, `rename_all_fields`, `tag`, `content`, `untagged`, `transparent`, `default`, `deny_unknown_fields` |
/// | variants | `rename`, `rename_all`, `skip` |
/// | fields | `rename`, `skip`, `default`, `skip_serializing_if`, `skip_serializing`, `skip_deserializing`, `flatten`, `with` and the like |
///
/// A field is optional if it may be missing in either direction, or if its type is spelled `Option<…>`. A field with a
/// custom implementation (`with`), or with a type without schema, is described as any value. Recursive types are
/// described once. Type parameters must implement `Schema`. Other attributes that change the JSON are errors.
#[proc_macro_derive(Schema, attributes(serde))]
pub fn schema(item: TokenStream) -> TokenStream {
    schema::expand(item.into()).unwrap_or_else(|error| error.into_compile_error()).into()
}
