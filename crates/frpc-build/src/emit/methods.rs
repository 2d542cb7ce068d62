//! The module of a service's methods, which both sides use.

use frpc_schema::{Method, MethodKind, Service};
use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::{
    emitter::Emitter,
    rust::{doc, tokens},
};
use crate::naming;

pub(super) fn module(service: &Service, emitter: &Emitter) -> Option<TokenStream> {
    if !emitter.has_server && !emitter.has_client {
        return None;
    }
    let (module, service_name) = (tokens(&module_name(service)), &service.full_name);
    let about = doc(&format!("The methods of `{service_name}`."));
    let constants = service.methods.iter().map(|method| {
        let (constant, name, kind) = (constant(method), &method.name, call(method.kind));
        let operation = Literal::u16_unsuffixed(method.operation);
        quote! { pub const #constant: Method = Method::#kind(#service_name, #name, #operation); }
    });
    let import = (!service.methods.is_empty()).then(|| quote! { use frpc::generated::Method; });
    Some(quote! {
        #about
        #[allow(missing_docs)]
        pub mod #module {
            #import

            #(#constants)*
        }
    })
}

pub(super) fn module_name(service: &Service) -> String {
    naming::snake(&format!("{}_methods", service.name))
}

/// Returns the name of a method's constant.
pub(super) fn constant(method: &Method) -> TokenStream {
    tokens(&naming::shouty(&method.name))
}

/// Returns what the library calls a call of this kind, on either side.
pub(super) fn call(kind: MethodKind) -> TokenStream {
    match kind {
        MethodKind::Unary => quote! { unary },
        MethodKind::ServerStreaming => quote! { server_streaming },
        MethodKind::ClientStreaming => quote! { client_streaming },
        MethodKind::Bidirectional => quote! { bidirectional },
    }
}

pub(super) fn deprecated(is_deprecated: bool) -> Option<TokenStream> {
    is_deprecated.then(|| quote! { #[deprecated] })
}

/// Returns the lints that must not fire in the module of one side.
pub(super) fn allow(service: &Service) -> TokenStream {
    let mut methods = service.methods.iter();
    // A program may include more than it uses.
    let mut lints = vec![quote! { dead_code }];
    // Our own uses of deprecated items are no news to anybody.
    if service.is_deprecated || methods.any(|method| method.is_deprecated) {
        lints.push(quote! { deprecated });
    }
    // Rust's conventions for names such as `into_inner` do not hold for the methods of a service.
    let starts = ["as_", "from_", "into_", "is_", "to_"];
    let mut names = service.methods.iter().map(|method| naming::method(&method.name));
    if names.any(|name| starts.iter().any(|start| name.starts_with(start))) {
        lints.push(quote! { clippy::wrong_self_convention });
    }
    quote! { #[allow(#(#lints),*)] }
}
