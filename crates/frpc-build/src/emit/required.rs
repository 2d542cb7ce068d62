//! Generates the tables of required fields, for the check of decoded protobuf messages.

use std::collections::{HashMap, HashSet};

use frpc_schema::{FieldSchema, FieldShape, MessageSchema, Schema, ValueType};
use proc_macro2::TokenStream;
use quote::quote;

use super::{
    rust::{number, tokens},
    types::TypeEmitter,
};

/// Returns all messages that have required fields, or contain such messages at any depth.
pub(super) fn requiring(schema: &Schema) -> HashSet<&str> {
    let mut holders: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut next = Vec::new();
    for message in schema.packages.iter().flat_map(|package| &package.messages) {
        message.messages().for_each(|held| holders.entry(held).or_default().push(&message.full_name));
        if message.fields.iter().any(|field| field.is_required) {
            next.push(message.full_name.as_str());
        }
    }
    let mut requiring = HashSet::new();
    while let Some(message) = next.pop() {
        if requiring.insert(message) {
            next.extend(holders.get(message).into_iter().flatten());
        }
    }
    requiring
}

/// Returns the function `required` of a message that can lack a required field.
pub(super) fn table_of(
    message: &MessageSchema,
    requiring: &HashSet<&str>,
    types: &TypeEmitter<'_>,
) -> Option<TokenStream> {
    let mut fields: Vec<&FieldSchema> = message.fields.iter().collect();
    fields.sort_by_key(|field| field.number);
    let fields = fields.into_iter().filter_map(|field| checked_field(field, requiring, types));
    let fields: Vec<_> = requiring.contains(message.full_name.as_str()).then(|| fields.collect())?;
    let (option, table) = (tokens(&types.scope.short("::core::option::Option")), types.import("RequiredFields"));
    Some(quote! {
        #[inline]
        fn required() -> #option<&'static #table> {
            static REQUIRED: #table = #table::new(&[#(#fields),*]);
            Some(&REQUIRED)
        }
    })
}

/// Returns the entry of a field that is required or holds messages that can lack a required field.
fn checked_field(field: &FieldSchema, requiring: &HashSet<&str>, types: &TypeEmitter<'_>) -> Option<TokenStream> {
    let content = match &field.shape {
        FieldShape::Always(_) | FieldShape::Optional(_) => quote! { message },
        FieldShape::Member(..) => quote! { member },
        FieldShape::List(_) => quote! { list },
        FieldShape::Map(..) => quote! { map },
    };
    let made = match field.shape.element() {
        ValueType::Message(held) if requiring.contains(held.as_str()) => {
            let held = types.path(held);
            quote! { #content::<#held> }
        }
        _ if field.is_required => quote! { value },
        _ => return None,
    };
    let (of, name, number) = (types.import("CheckedField"), &field.name, number(field.number.into()));
    let required = field.is_required.then(|| quote! { .required() });
    Some(quote! { #of::#made(#number, #name) #required })
}
