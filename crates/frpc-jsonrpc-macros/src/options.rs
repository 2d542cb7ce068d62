//! Options of the attribute `#[function]`.

use proc_macro2::TokenStream;
use syn::{LitStr, Result, parse::Parser};

/// The options of `#[function(…)]`.
#[derive(Default)]
pub(crate) struct FunctionOptions {
    /// The name used by callers, if it differs from the Rust name.
    pub(crate) name: Option<LitStr>,
    /// `true` for functions that block their thread.
    pub(crate) is_blocking: bool,
}

impl FunctionOptions {
    pub(crate) fn parse(tokens: TokenStream) -> Result<Self> {
        let mut options = Self::default();
        let parser = syn::meta::parser(|meta| {
            if meta.path.is_ident("name") {
                let name: LitStr = meta.value()?.parse()?;
                if name.value().is_empty() {
                    return Err(syn::Error::new(name.span(), "the name of a function must not be empty"));
                }
                if name.value().starts_with("rpc.") {
                    return Err(syn::Error::new(name.span(), "JSON-RPC reserves names starting with `rpc.`"));
                }
                options.name = Some(name);
                return Ok(());
            }
            if meta.path.is_ident("blocking") {
                options.is_blocking = true;
                return Ok(());
            }
            Err(meta.error("unknown option: expected `name = \"…\"` or `blocking`"))
        });
        parser.parse2(tokens)?;
        Ok(options)
    }
}
