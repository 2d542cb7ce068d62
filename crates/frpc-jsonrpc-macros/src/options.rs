//! The words in the brackets of the attribute.

use proc_macro2::TokenStream;
use syn::{LitStr, Result, parse::Parser};

/// The words in the brackets of the attribute.
#[derive(Default)]
pub(crate) struct Options {
    /// The name for callers, if it is not that in Rust.
    pub(crate) name: Option<LitStr>,
    /// Set if the function may block.
    pub(crate) is_blocking: bool,
}

impl Options {
    pub(crate) fn parse(tokens: TokenStream) -> Result<Self> {
        let mut options = Self::default();
        let parser = syn::meta::parser(|meta| {
            if meta.path.is_ident("name") {
                let name: LitStr = meta.value()?.parse()?;
                if name.value().is_empty() {
                    return Err(syn::Error::new(name.span(), "the name of a function is not empty"));
                }
                if name.value().starts_with("rpc.") {
                    return Err(syn::Error::new(name.span(), "JSON-RPC keeps names that begin with `rpc.` for itself"));
                }
                options.name = Some(name);
                return Ok(());
            }
            if meta.path.is_ident("blocking") {
                options.is_blocking = true;
                return Ok(());
            }
            Err(meta.error("no such option: there are `name = \"…\"` and `blocking`"))
        });
        parser.parse2(tokens)?;
        Ok(options)
    }
}
