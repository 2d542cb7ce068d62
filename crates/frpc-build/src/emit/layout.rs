//! Layouts of messages: the fields that need more memory than their encoded length.

use frpc_schema::{FieldSchema, FieldShape, MessageSchema, ValueType};
use proc_macro2::TokenStream;
use quote::quote;

use super::rust::number;

/// Functions to generate the names in layouts.
pub(super) struct LayoutNames<'a> {
    /// An item of `frpc::codec`.
    pub(super) import: &'a dyn Fn(&'static str) -> TokenStream,
    /// Variant of `Kind` for a type.
    pub(super) kind: &'a dyn Fn(&ValueType) -> TokenStream,
    /// Path of a message with this full name.
    pub(super) message: &'a dyn Fn(&str) -> TokenStream,
}

/// Returns the body of the function `layout` of a message.
pub(super) fn layout_of(message: &MessageSchema, words: &LayoutNames<'_>) -> TokenStream {
    let layout = (words.import)("Layout");
    let mut fields: Vec<&FieldSchema> = message.fields.iter().collect();
    fields.sort_by_key(|field| field.number);
    let fields: Vec<TokenStream> = fields.into_iter().filter_map(|field| layout_of_field(field, words)).collect();
    if fields.is_empty() {
        return quote! { Some(#layout::flat()) };
    }
    quote! {
        static LAYOUT: #layout = #layout::new(&[#(#fields),*]);
        Some(&LAYOUT)
    }
}

/// Returns the layout of a field, or `None` if it never takes more memory than its encoding.
fn layout_of_field(field: &FieldSchema, words: &LayoutNames<'_>) -> Option<TokenStream> {
    let (number, kind) = (number(field.number.into()), words.kind);
    let made = match &field.shape {
        FieldShape::Always(ValueType::Message(of))
        | FieldShape::Optional(ValueType::Message(of))
        | FieldShape::Member(_, ValueType::Message(of)) => {
            let of = (words.message)(of);
            quote! { message::<#of>(#number) }
        }
        FieldShape::Always(_) | FieldShape::Optional(_) | FieldShape::Member(..) => return None,
        FieldShape::List(ValueType::Message(of)) => {
            let of = (words.message)(of);
            quote! { message_list::<#of>(#number) }
        }
        FieldShape::List(of) => {
            let of = kind(of);
            if field.is_fixed {
                quote! { fixed_list(#number, #of) }
            } else {
                quote! { list(#number, #of) }
            }
        }
        FieldShape::Map(key, ValueType::Message(of)) => {
            let (key, of) = (kind(key), (words.message)(of));
            quote! { message_map::<#of>(#number, #key) }
        }
        FieldShape::Map(key, value) => {
            let (key, value) = (kind(key), kind(value));
            quote! { map(#number, #key, #value) }
        }
    };
    let field_layout = (words.import)("FieldLayout");
    Some(quote! { #field_layout::#made })
}
