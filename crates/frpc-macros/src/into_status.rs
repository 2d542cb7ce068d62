//! The derive `IntoStatus`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::Result;

use crate::{
    message,
    variants::{DetailCount, ErrorEnum, ErrorVariant, FieldRole, VariantKind},
};

pub(crate) fn expand(item: TokenStream) -> Result<TokenStream> {
    let declared = ErrorEnum::read(syn::parse2(item)?)?;
    let name = &declared.input.ident;
    let (impl_generics, type_generics, where_clause) = declared.input.generics.split_for_impl();
    let arms = declared.variants.iter().map(|variant| arm(variant, &declared.domain));
    // `Display` is needed before the fields are taken.
    let uses_display =
        declared.variants.iter().any(|variant| matches!(variant.kind, VariantKind::Coded { message: None, .. }));
    let displayed = uses_display.then(|| {
        let coded =
            declared.variants.iter().filter(|variant| matches!(variant.kind, VariantKind::Coded { message: None, .. }));
        let coded = coded.map(|variant| &variant.name);
        quote! {
            let __displayed = match &error {
                #(#name::#coded { .. } => ::std::string::ToString::to_string(&error),)*
                #[allow(unreachable_patterns)]
                _ => ::std::string::String::new(),
            };
        }
    });
    Ok(quote! {
        #[automatically_derived]
        #[allow(deprecated, non_shorthand_field_patterns, unused_variables)]
        impl #impl_generics ::core::convert::From<#name #type_generics> for ::frpc_types::generated::Status #where_clause {
            fn from(error: #name #type_generics) -> Self {
                #displayed
                match error {
                    #(#name::#arms)*
                }
            }
        }
    })
}

fn arm(variant: &ErrorVariant, domain: &str) -> TokenStream {
    let name = &variant.name;
    let members = variant.fields.iter().map(|field| {
        let (member, local) = (&field.member, &field.local);
        quote! { #member: #local }
    });
    let pattern = quote! { #name { #(#members),* } };
    let (code, message, reason) = match &variant.kind {
        VariantKind::Transparent => {
            let local = &variant.fields[0].local;
            return quote! { #pattern => ::core::convert::Into::into(#local), };
        }
        VariantKind::Coded { code, message, reason } => (code, message, reason),
    };
    let message = message.as_ref().map_or_else(|| quote! { __displayed }, message::format);
    let metadata = variant.fields.iter().filter(|field| field.role == FieldRole::Metadata).map(|field| {
        let (name, local) = (field.name(), &field.local);
        quote! { (#name, ::std::string::ToString::to_string(&#local)) }
    });
    let info = reason.as_ref().map(|reason| {
        quote! { __details.error_info(#reason, #domain, [#(#metadata),*]); }
    });
    let details = variant.fields.iter().filter_map(|field| {
        let local = &field.local;
        match field.role {
            FieldRole::Detail(DetailCount::One) => Some(quote! { __details.add(&#local); }),
            FieldRole::Detail(_) => Some(quote! { #local.iter().for_each(|detail| __details.add(detail)); }),
            _ => None,
        }
    });
    quote! {
        #pattern => {
            let __message = #message;
            #[allow(unused_mut)]
            let mut __details = ::frpc_types::generated::StatusDetails::default();
            #info
            #(#details)*
            __details.into_status(::frpc_types::generated::Code::#code, __message)
        }
    }
}
