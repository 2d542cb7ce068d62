//! Derivation of JSON Schemas from serde types.

mod attributes;
mod names;
#[cfg(test)]
mod tests;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{
    Data, DataEnum, DeriveInput, Field, Fields, GenericParam, Result, Type, Variant, ext::IdentExt, spanned::Spanned,
};

use self::{
    attributes::{ItemKind, SerdeAttributes},
    names::RenameRule,
};
use crate::docs::docs;

pub(crate) fn expand(item: TokenStream) -> Result<TokenStream> {
    let mut input: DeriveInput = syn::parse2(item)?;
    let attributes = SerdeAttributes::read(ItemKind::Type, &input.attrs)?;
    let described = match &input.data {
        Data::Struct(found) => of_struct(&input.ident.unraw().to_string(), &found.fields, &attributes)?,
        Data::Enum(found) => of_enum(found, &attributes)?,
        Data::Union(found) => {
            return Err(syn::Error::new(found.union_token.span, "a schema cannot be derived for a union"));
        }
    };
    for parameter in &mut input.generics.params {
        if let GenericParam::Type(parameter) = parameter {
            parameter.bounds.push(syn::parse_quote!(::frpc_jsonrpc::Schema));
        }
    }
    let DeriveInput { ident, generics, attrs, .. } = &input;
    let (name, docs) = (ident.unraw().to_string(), docs(attrs));
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    Ok(quote! {
        #[allow(clippy::all, clippy::pedantic)]
        impl #impl_generics ::frpc_jsonrpc::Schema for #ident #type_generics #where_clause {
            fn schema() -> ::frpc_jsonrpc::generated::Value {
                #[allow(unused_imports)]
                use ::frpc_jsonrpc::generated::{AnySchema as _, KnownSchema as _, derived};
                derived::once::<Self>(#name, || derived::with_docs(#described, #docs))
            }
        }
    })
}

fn of_struct(name: &str, fields: &Fields, attributes: &SerdeAttributes) -> Result<TokenStream> {
    let SerdeAttributes { case, is_closed, is_optional: has_default, .. } = *attributes;
    let members = MemberOptions { case, is_closed, has_default };
    if attributes.is_transparent {
        for field in fields {
            if !SerdeAttributes::read(ItemKind::Field, &field.attrs)?.is_skipped {
                return schema_of(field);
            }
        }
    }
    if let (Fields::Named(_), Some(tag)) = (fields, &attributes.tag) {
        let name = attributes.name.as_deref().unwrap_or(name);
        // The tag is serialized, but not required for deserialization.
        let tagged = quote!(derived::Object::new().property(#tag, derived::constant(#name), false));
        let object = object(tagged, fields, members)?;
        return Ok(quote!(#object.into_schema()));
    }
    content(fields, members)
}

/// Options with an effect on the members of an object.
#[derive(Clone, Copy)]
struct MemberOptions {
    case: Option<RenameRule>,
    is_closed: bool,
    has_default: bool,
}

/// Generates the schema of fields without surrounding tags.
fn content(fields: &Fields, members: MemberOptions) -> Result<TokenStream> {
    match fields {
        Fields::Named(_) => {
            let object = object(quote!(derived::Object::new()), fields, members)?;
            Ok(quote!(#object.into_schema()))
        }
        Fields::Unnamed(found) if found.unnamed.len() == 1 => schema_of(&found.unnamed[0]),
        Fields::Unnamed(found) => {
            let mut items = Vec::new();
            let mut required = 0_usize;
            for field in &found.unnamed {
                let attributes = SerdeAttributes::read(ItemKind::Field, &field.attrs)?;
                if attributes.is_skipped {
                    continue;
                }
                items.push(schema_of(field)?);
                if !attributes.is_optional && !members.has_default {
                    required = items.len();
                }
            }
            Ok(quote!(derived::tuple(::std::vec![#(#items),*], #required)))
        }
        Fields::Unit => Ok(quote!(derived::null())),
    }
}

/// Generates an object schema with named fields added to `start`.
fn object(start: TokenStream, fields: &Fields, members: MemberOptions) -> Result<TokenStream> {
    let MemberOptions { case, is_closed, has_default } = members;
    let mut object = start;
    for field in fields {
        let attributes = SerdeAttributes::read(ItemKind::Field, &field.attrs)?;
        let Some(ident) = field.ident.as_ref().filter(|_| !attributes.is_skipped) else { continue };
        let schema = schema_of(field)?;
        if attributes.is_flat {
            object = quote!(#object.flat(#schema));
            continue;
        }
        let plain = ident.unraw().to_string();
        let name = attributes.name.unwrap_or_else(|| case.map_or(plain.clone(), |case| case.of_field(&plain)));
        let is_required = !(attributes.is_optional || has_default || is_option(&field.ty));
        let docs = docs(&field.attrs);
        object = quote!(#object.property(#name, derived::with_docs(#schema, #docs), #is_required));
    }
    Ok(if is_closed { quote!(#object.closed()) } else { object })
}

fn of_enum(found: &DataEnum, attributes: &SerdeAttributes) -> Result<TokenStream> {
    let mut variants = Vec::new();
    for variant in &found.variants {
        let found = SerdeAttributes::read(ItemKind::Variant, &variant.attrs)?;
        if !found.is_skipped {
            let (schema, docs) = (of_variant(variant, &found, attributes)?, docs(&variant.attrs));
            variants.push(quote!(derived::with_docs(#schema, #docs)));
        }
    }
    Ok(quote!(derived::any_of(::std::vec![#(#variants),*])))
}

fn of_variant(variant: &Variant, found: &SerdeAttributes, attributes: &SerdeAttributes) -> Result<TokenStream> {
    let plain = variant.ident.unraw().to_string();
    let name = found.name.clone();
    let name = name.unwrap_or_else(|| attributes.case.map_or(plain.clone(), |case| case.of_variant(&plain)));
    let case = found.case.or(attributes.case_of_fields);
    let members = MemberOptions { case, is_closed: attributes.is_closed, has_default: false };
    let fields = &variant.fields;
    let is_unit = matches!(fields, Fields::Unit);
    let content = || content(fields, members);
    let tagged = |tag| quote!(derived::Object::new().property(#tag, derived::constant(#name), true));
    if attributes.is_untagged {
        return content();
    }
    let object = match (&attributes.tag, &attributes.content) {
        (None, _) if is_unit => return Ok(quote!(derived::constant(#name))),
        (None, _) => {
            let content = content()?;
            quote!(derived::Object::new().property(#name, #content, true))
        }
        (Some(tag), _) if is_unit => tagged(tag),
        (Some(tag), Some(name)) => {
            let (object, content) = (tagged(tag), content()?);
            let is_required = !matches!(fields, Fields::Unnamed(found) if found.unnamed.len() == 1 && is_option(&found.unnamed[0].ty));
            quote!(#object.property(#name, #content, #is_required))
        }
        (Some(tag), None) => match fields {
            Fields::Unnamed(found) if found.unnamed.len() == 1 => {
                let (object, inner) = (tagged(tag), schema_of(&found.unnamed[0])?);
                quote!(#object.flat(#inner))
            }
            Fields::Unnamed(_) => {
                return Err(syn::Error::new(fields.span(), "a tuple variant cannot have a tag: name its fields"));
            }
            _ => object(tagged(tag), fields, members)?,
        },
    };
    Ok(quote!(#object.into_schema()))
}

/// Generates the schema of a field. The compiler finds out whether its type has one.
fn schema_of(field: &Field) -> Result<TokenStream> {
    if SerdeAttributes::read(ItemKind::Field, &field.attrs)?.is_opaque {
        return Ok(quote!(derived::anything()));
    }
    let of = &field.ty;
    Ok(quote!((&::frpc_jsonrpc::generated::Probe::<#of>::new()).schema()))
}

/// Returns `true` for a type spelled `Option`. Serde accepts missing fields of such a type.
fn is_option(of: &Type) -> bool {
    matches!(of, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Option"))
}
