//! Postprocessing of the structs from prost: shorter paths, and workarounds for its derive macro.

use std::mem;

use heck::ToSnakeCase;
use syn::{
    Attribute, Fields, File, GenericArgument, ImplItem, Item, ItemEnum, ItemImpl, ItemStruct, Meta, Path,
    PathArguments, ReturnType, Token, Type, TypePath, parse_quote, punctuated::Punctuated,
};

use super::{rust::tokens, scope::ModuleScope};

/// Parses the code prost generated for a package.
pub(super) fn parse(code: &str) -> syn::Result<File> {
    syn::parse_file(&qualify_hidden_enums(code))
}

/// Rewrites the items of a package module in a hand-written style. `name` is the name of the module.
pub(super) fn mend(items: &mut [Item], name: &str, scope: &ModuleScope) {
    // A program may include code it does not use. The attribute on an item also covers everything inside it.
    mend_module(items, name, scope, &["dead_code"]);
}

/// Adds `self::` to enum names shadowed by prost's derive macro: its functions declare types with these names.
fn qualify_hidden_enums(code: &str) -> String {
    let types = ["Inner", "KeyWrapper", "MapWrapper", "ScalarWrapper", "ValueWrapper"];
    types.iter().fold(code.to_owned(), |code, name| {
        code.replace(&format!("enumeration = \"{name}\""), &format!("enumeration = \"self::{name}\""))
            .replace(&format!("enumeration({name})"), &format!("enumeration(self::{name})"))
    })
}

fn mend_module(items: &mut [Item], inside: &str, scope: &ModuleScope, allowed: &[&str]) {
    for item in items {
        let mut allowed = allowed.to_owned();
        let attributes = match item {
            Item::Struct(message) => {
                mend_struct(message, scope);
                &mut message.attrs
            }
            Item::Enum(declared) => {
                mend_enum(declared, scope);
                allowed.extend(lints(declared));
                &mut declared.attrs
            }
            Item::Impl(functions) => {
                mend_impl(functions, scope);
                &mut functions.attrs
            }
            Item::Mod(module) => {
                let name = module.ident.to_string();
                if name == inside {
                    allowed.push("clippy::module_inception");
                }
                let items = module.content.as_mut().map_or(&mut [][..], |(_, items)| items);
                mend_module(items, &name, &ModuleScope::of(items), &[]);
                &mut module.attrs
            }
            _ => continue,
        };
        if !allowed.is_empty() {
            let lints = allowed.iter().map(|lint| tokens(lint));
            attributes.push(parse_quote! { #[allow(#(#lints),*)] });
        }
    }
}

/// Shortens paths. For a message with a `BTreeMap`, derives the standard `Debug` instead of prost's. The latter refers
/// to the crate `prost` regardless of `prost_path`, and users may not depend on it.
fn mend_struct(message: &mut ItemStruct, scope: &ModuleScope) {
    let mut attributes = message.fields.iter().flat_map(|field| &field.attrs);
    if attributes.any(|attribute| prost_says(attribute, "btree_map")) {
        message.attrs.push(parse_quote! { #[derive(::core::fmt::Debug)] });
        message.attrs.push(parse_quote! { #[prost(skip_debug)] });
    }
    shorten_derives(&mut message.attrs, scope);
    message.fields.iter_mut().for_each(|field| shorten(&mut field.ty, scope));
}

fn mend_enum(declared: &mut ItemEnum, scope: &ModuleScope) {
    shorten_derives(&mut declared.attrs, scope);
    let fields = declared.variants.iter_mut().flat_map(|variant| &mut variant.fields);
    fields.for_each(|field| shorten(&mut field.ty, scope));
}

/// Returns the clippy lints to allow for an enum. The proto file determines the names and contents of the variants.
fn lints(declared: &ItemEnum) -> Vec<&'static str> {
    let mut lints = Vec::new();
    if has_similar_names(declared) {
        lints.push("clippy::enum_variant_names");
    }
    let has_message = declared.variants.iter().any(|variant| {
        variant.attrs.iter().any(|attribute| prost_says(attribute, "message")) && !is_boxed(&variant.fields)
    });
    if has_message && declared.variants.len() > 1 {
        lints.push("clippy::large_enum_variant");
    }
    lints
}

/// Shortens the docs and paths in the functions of an enum.
fn mend_impl(functions: &mut ItemImpl, scope: &ModuleScope) {
    for item in &mut functions.items {
        let ImplItem::Fn(function) = item else { continue };
        let about = match function.sig.ident.to_string().as_str() {
            "as_str_name" => " Returns the name of the value in the proto file.",
            "from_str_name" => " Returns the value of this name in the proto file.",
            _ => continue,
        };
        function.attrs.retain(|attribute| !attribute.path().is_ident("doc"));
        function.attrs.push(parse_quote! { #[doc = #about] });
        if let ReturnType::Type(_, of) = &mut function.sig.output {
            shorten(of, scope);
        }
    }
}

/// Shortens the paths in a type.
fn shorten(of: &mut Type, scope: &ModuleScope) {
    let Type::Path(TypePath { qself: None, path }) = of else { return };
    let generics = path.segments.last_mut().map(|last| mem::take(&mut last.arguments)).unwrap_or_default();
    if let Ok(short) = syn::parse_str(&scope.short(&written(path))) {
        *path = short;
    }
    let Some(last) = path.segments.last_mut() else { return };
    last.arguments = generics;
    if let PathArguments::AngleBracketed(generics) = &mut last.arguments {
        for argument in &mut generics.args {
            if let GenericArgument::Type(of) = argument {
                shorten(of, scope);
            }
        }
    }
}

/// Shortens the paths in the `derive` attribute of prost. A list too long for a line becomes two attributes, the second
/// with prost's own macros.
fn shorten_derives(attributes: &mut Vec<Attribute>, scope: &ModuleScope) {
    for index in 0..attributes.len() {
        let derives = attributes[index].path().is_ident("derive").then_some(&attributes[index]);
        let parse = Punctuated::<Path, Token![,]>::parse_terminated;
        let Some(Ok(derives)) = derives.map(|attribute| attribute.parse_args_with(parse)) else { continue };
        if !derives.last().is_some_and(|own| written(own).starts_with("::frpc::prost::")) {
            continue;
        }
        let short: Vec<_> = derives.iter().map(|path| scope.short(&written(path))).collect();
        let is_long = short.join(", ").len() > DERIVES_LEN_MAX;
        let (common, own) = short.split_at(if is_long { short.len() - 1 } else { short.len() });
        let [common, own] = [common, own].map(|paths| paths.iter().map(|path| tokens(path)).collect::<Vec<_>>());
        attributes[index] = parse_quote! { #[derive(#(#common),*)] };
        if is_long {
            attributes.insert(index + 1, parse_quote! { #[derive(#(#own),*)] });
        }
        return;
    }
}

/// Returns a path as text, without generics.
fn written(path: &Path) -> String {
    let segments: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    format!("{}{}", if path.leading_colon.is_some() { "::" } else { "" }, segments.join("::"))
}

/// Returns `true` if all variants start or end with the same word, or if one of them starts or ends with the enum name.
fn has_similar_names(choice: &ItemEnum) -> bool {
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

/// Returns `true` if an attribute for prost's macro starts with this word.
fn prost_says(attribute: &Attribute, word: &str) -> bool {
    match &attribute.meta {
        Meta::List(list) => list.path.is_ident("prost") && list.tokens.to_string().starts_with(word),
        _ => false,
    }
}

/// Maximum length of a `derive` list in a single line.
const DERIVES_LEN_MAX: usize = 75;
