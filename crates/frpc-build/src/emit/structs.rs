//! The structs that prost generated, changed where its own macro would not find its way.

use heck::ToSnakeCase;
use syn::{Attribute, Fields, File, Item, ItemEnum, ItemImpl, ItemMod, ItemStruct, Meta, Type, parse_quote};

/// Reads what prost generated for a package whose own module is called `module`.
pub(super) fn parse(code: &str, module: &str) -> syn::Result<File> {
    let mut file = syn::parse_file(&beside_the_macro(code))?;
    mend_all(&mut file.items, module);
    file.items.iter_mut().for_each(allow_dead_code);
    Ok(file)
}

/// In functions of its own, prost's macro declares types with these names, which would hide an enum.
fn beside_the_macro(code: &str) -> String {
    let types = ["Inner", "KeyWrapper", "MapWrapper", "ScalarWrapper", "ValueWrapper"];
    types.iter().fold(code.to_owned(), |code, name| {
        code.replace(&format!("enumeration = \"{name}\""), &format!("enumeration = \"self::{name}\""))
            .replace(&format!("enumeration({name})"), &format!("enumeration(self::{name})"))
    })
}

fn mend_all(items: &mut [Item], inside: &str) {
    for item in items {
        match item {
            Item::Struct(message) => mend(message),
            Item::Enum(choice) => mend_enum(choice),
            Item::Mod(module) => {
                let name = module.ident.to_string();
                if name == inside {
                    module.attrs.push(parse_quote! { #[allow(clippy::module_inception)] });
                }
                mend_all(module.content.as_mut().map_or(&mut [], |(_, items)| items), &name);
            }
            _ => {}
        }
    }
}

/// A program may include more than it uses.
fn allow_dead_code(item: &mut Item) {
    let (Item::Struct(ItemStruct { attrs, .. })
    | Item::Enum(ItemEnum { attrs, .. })
    | Item::Impl(ItemImpl { attrs, .. })
    | Item::Mod(ItemMod { attrs, .. })) = item
    else {
        return;
    };
    attrs.push(parse_quote! { #[allow(dead_code)] });
}

/// For a `BTreeMap`, prost's `Debug` names the crate `prost` whatever `prost_path` says, but only frpc has that one.
fn mend(message: &mut ItemStruct) {
    let mut attributes = message.fields.iter().flat_map(|field| &field.attrs);
    if attributes.any(|attribute| prost_says(attribute, "btree_map")) {
        message.attrs.push(parse_quote! { #[derive(::core::fmt::Debug)] });
        message.attrs.push(parse_quote! { #[prost(skip_debug)] });
    }
}

/// Whoever wrote the proto file decided how variants are called and what they hold; clippy would advise otherwise.
fn mend_enum(choice: &mut ItemEnum) {
    if has_names_alike(choice) {
        choice.attrs.push(parse_quote! { #[allow(clippy::enum_variant_names)] });
    }
    let has_message = choice.variants.iter().any(|variant| {
        variant.attrs.iter().any(|attribute| prost_says(attribute, "message")) && !is_boxed(&variant.fields)
    });
    if has_message && choice.variants.len() > 1 {
        choice.attrs.push(parse_quote! { #[allow(clippy::large_enum_variant)] });
    }
}

/// Whether all names start or end with the same word, or one of them with the name of the enum.
fn has_names_alike(choice: &ItemEnum) -> bool {
    let own = choice.ident.to_string();
    let names: Vec<_> = choice.variants.iter().map(|variant| variant.ident.to_string()).collect();
    let words: Vec<_> = names.iter().map(|name| name.to_snake_case()).collect();
    let firsts = words.iter().map(|words| words.split('_').next());
    let lasts = words.iter().map(|words| words.rsplit('_').next());
    let (first, last) = (firsts.clone().next(), lasts.clone().next());
    names.len() > 2
        && (names.iter().any(|name| name.starts_with(&own) || name.ends_with(&own))
            || firsts.map(Some).all(|word| word == first)
            || lasts.map(Some).all(|word| word == last))
}

fn is_boxed(fields: &Fields) -> bool {
    let mut types = fields.iter().map(|field| &field.ty);
    types.any(|of| matches!(of, Type::Path(path) if path.path.segments.iter().any(|part| part.ident == "Box")))
}

/// Whether an attribute for prost's macro starts with this word.
fn prost_says(attribute: &Attribute, word: &str) -> bool {
    match &attribute.meta {
        Meta::List(list) => list.path.is_ident("prost") && list.tokens.to_string().starts_with(word),
        _ => false,
    }
}
