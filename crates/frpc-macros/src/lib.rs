//! The derives of `frisbee-rpc-types`, re-exported by it: error enums as statuses with details, and back.
#![forbid(unsafe_code)]

mod from_status;
mod into_status;
mod message;
#[cfg(test)]
mod tests;
mod variants;

use proc_macro::TokenStream;

/// Converts an error enum into a `Status`, with a code, a message and details per variant.
///
/// ```ignore
/// #[derive(Debug, frpc_types::IntoStatus)]
/// #[status(domain = "shop.example.com")]
/// enum OrderError {
///     #[status(NotFound, reason = "NO_ORDER", message = "there is no order {id}")]
///     NoOrder { #[metadata] id: u64 },
///     #[status(InvalidArgument, message = "the request is not valid")]
///     Invalid(#[detail] BadRequest),
///     #[status(transparent)]
///     Other(Status),
/// }
/// ```
///
/// A handler returns it with `?`, or with `Err(error.into())`.
///
/// | on | attribute | meaning |
/// |---|---|---|
/// | a variant | `#[status(Code)]` | the code, a variant of `frpc::Code` other than `Ok` |
/// | | `message = "…"` | the message, with fields as `{name}` or `{0}`; by default the `Display` of the enum |
/// | | `reason = "…"` | adds an `ErrorInfo` with this reason |
/// | | `#[status(transparent)]` | the only field converts into the status |
/// | the enum | `#[status(domain = "…")]` | the domain of each `ErrorInfo` |
/// | a field | `#[detail]` | a message added to the details: of any type that implements `prost::Name`, or an `Option` or `Vec` of it |
/// | | `#[metadata]` | text added to the metadata of the `ErrorInfo`, by its `ToString` |
#[proc_macro_derive(IntoStatus, attributes(status, detail, metadata))]
pub fn into_status(item: TokenStream) -> TokenStream {
    into_status::expand(item.into()).unwrap_or_else(|error| error.into_compile_error()).into()
}

/// Restores an error enum from a `Status`, for clients: the way back of `IntoStatus`, with the same attributes.
///
/// It implements `TryFrom<Status>`. A status that fits no variant is returned as the error. A variant fits if the code
/// and the reason are the same, all details are there, and the metadata parse as the types of the fields. Two variants
/// with the same code therefore need a `reason`. A transparent variant takes every other status.
#[proc_macro_derive(FromStatus, attributes(status, detail, metadata))]
pub fn from_status(item: TokenStream) -> TokenStream {
    from_status::expand(item.into()).unwrap_or_else(|error| error.into_compile_error()).into()
}
