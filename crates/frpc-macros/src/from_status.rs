//! The derive `FromStatus`.

use std::collections::HashMap;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, Result, spanned::Spanned};

use crate::variants::{DetailCount, ErrorEnum, ErrorField, ErrorVariant, FieldRole, VariantKind, wrapper};

pub(crate) fn expand(item: TokenStream) -> Result<TokenStream> {
    let declared = ErrorEnum::read(syn::parse2(item)?)?;
    check(&declared)?;
    let name = &declared.input.ident;
    let (impl_generics, type_generics, where_clause) = declared.input.generics.split_for_impl();
    let domain = &declared.domain;
    let coded = declared.variants.iter().filter(|variant| matches!(variant.kind, VariantKind::Coded { .. }));
    let coded = coded.map(|variant| restore(variant, domain));
    let rest = declared.variants.iter().find(|variant| matches!(variant.kind, VariantKind::Transparent));
    let rest = match rest {
        Some(ErrorVariant { name, fields, .. }) => {
            let member = &fields[0].member;
            quote! { ::core::result::Result::Ok(Self::#name { #member: ::core::convert::From::from(status) }) }
        }
        None => quote! { ::core::result::Result::Err(status) },
    };
    Ok(quote! {
        #[automatically_derived]
        #[allow(deprecated)]
        impl #impl_generics ::core::convert::TryFrom<::frpc_types::generated::Status> for #name #type_generics
        #where_clause
        {
            type Error = ::frpc_types::generated::Status;

            fn try_from(
                status: ::frpc_types::generated::Status,
            ) -> ::core::result::Result<Self, ::frpc_types::generated::Status> {
                let details = ::frpc_types::generated::StatusDetails::of(&status);
                #(
                    if let ::core::option::Option::Some(error) = (|| #coded)() {
                        return ::core::result::Result::Ok(error);
                    }
                )*
                #rest
            }
        }
    })
}

/// Checks that each variant can be restored, and differs from every other one.
fn check(declared: &ErrorEnum) -> Result<()> {
    let mut seen = HashMap::new();
    let mut has_rest = false;
    for variant in &declared.variants {
        let key = match &variant.kind {
            VariantKind::Transparent if has_rest => {
                let message = "a second transparent variant would never be restored";
                return Err(Error::new(variant.name.span(), message));
            }
            VariantKind::Transparent => {
                has_rest = true;
                continue;
            }
            VariantKind::Coded { code, reason, .. } => (code.to_string(), reason.as_ref().map(|reason| reason.value())),
        };
        if let Some(field) = variant.fields.iter().find(|field| field.role == FieldRole::Plain) {
            let message = "a client cannot restore this field: mark it with `#[detail]` or `#[metadata]`";
            return Err(Error::new(field.ty.span(), message));
        }
        if let Some(other) = seen.insert(key, &variant.name) {
            let message =
                format!("a client cannot tell this variant from `{other}`: give each its own `reason = \"…\"`");
            return Err(Error::new(variant.name.span(), message));
        }
    }
    Ok(())
}

/// Returns an expression that is the variant, or `None` if the status does not fit.
fn restore(variant: &ErrorVariant, domain: &str) -> TokenStream {
    let VariantKind::Coded { code, reason, .. } = &variant.kind else {
        unreachable!("only coded variants are restored")
    };
    let name = &variant.name;
    let reason = match reason {
        Some(reason) => quote! { ::core::option::Option::Some((#reason, #domain)) },
        None => quote! { ::core::option::Option::None },
    };
    let fields = variant.fields.iter().map(|field| {
        let (member, value) = (&field.member, field_of(field));
        quote! { #member: #value }
    });
    quote! {
        {
            if !details.fits(&status, ::frpc_types::generated::Code::#code, #reason) {
                return ::core::option::Option::None;
            }
            ::core::option::Option::Some(Self::#name { #(#fields),* })
        }
    }
}

fn field_of(field: &ErrorField) -> TokenStream {
    let ty = &field.ty;
    match field.role {
        FieldRole::Detail(DetailCount::One) => quote! { details.all::<#ty>().next()? },
        FieldRole::Detail(count) => {
            let inner = wrapper(ty).map_or(ty, |(_, inner)| inner);
            match count {
                DetailCount::Optional => quote! { details.all::<#inner>().next() },
                _ => quote! { details.all::<#inner>().collect() },
            }
        }
        FieldRole::Metadata | FieldRole::Plain => {
            let name = field.name();
            quote! { details.metadata(#name)?.parse::<#ty>().ok()? }
        }
    }
}
