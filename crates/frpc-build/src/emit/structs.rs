//! The structs that prost generated, changed where its own macro would not find its way.

use syn::{File, Item, ItemStruct, parse_quote};

pub(super) fn parse(code: &str) -> File {
    let mut file = syn::parse_file(code).expect("what prost emits is Rust");
    mend_all(&mut file.items);
    file
}

fn mend_all(items: &mut [Item]) {
    for item in items {
        match item {
            Item::Struct(message) => mend(message),
            Item::Mod(module) => mend_all(module.content.as_mut().map_or(&mut [], |(_, items)| items)),
            _ => {}
        }
    }
}

/// For a `BTreeMap`, prost's `Debug` names the crate `prost` whatever `prost_path` says, but only frpc has that one.
fn mend(message: &mut ItemStruct) {
    let mut attributes = message.fields.iter().flat_map(|field| &field.attrs);
    let is_btree_map = |attribute: &syn::Attribute| match &attribute.meta {
        syn::Meta::List(list) => list.path.is_ident("prost") && list.tokens.to_string().starts_with("btree_map"),
        _ => false,
    };
    if attributes.any(is_btree_map) {
        message.attrs.push(parse_quote! { #[derive(::core::fmt::Debug)] });
        message.attrs.push(parse_quote! { #[prost(skip_debug)] });
    }
}
