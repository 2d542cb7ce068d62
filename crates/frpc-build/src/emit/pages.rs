//! Generates the traits of lists in pages, for methods with page tokens as in AIP-158.

use std::collections::BTreeMap;

use frpc_schema::{FieldSchema, FieldShape, MessageSchema, MethodKind, PackageSchema, Schema, ValueType};
use proc_macro2::TokenStream;
use quote::quote;

use super::{
    EmitSettings,
    rust::tokens,
    scope::{ModuleImports, ModuleScope},
    types::TypeEmitter,
};
use crate::naming;

/// Returns the impls for the messages of a package in the requests and responses of paged methods.
pub(super) fn block(
    emitter: &EmitSettings,
    package: &PackageSchema,
    schema: &Schema,
    scope: &ModuleScope,
) -> Option<TokenStream> {
    if !emitter.has_pages {
        return None;
    }
    let messages: BTreeMap<_, _> = schema
        .packages
        .iter()
        .flat_map(|package| &package.messages)
        .map(|message| (message.full_name.as_str(), message))
        .collect();
    let services = schema.packages.iter().flat_map(|package| &package.services);
    let methods = services.flat_map(|service| &service.methods).filter(|method| method.kind == MethodKind::Unary);
    let mut paged = BTreeMap::new();
    for method in methods {
        let (Some(request), Some(response)) = (messages.get(&*method.input), messages.get(&*method.output)) else {
            continue;
        };
        if let (Some(token), Some(list)) = (page_token(request), PagedList::of(response)) {
            paged.insert(request.full_name.as_str(), PagedMessage::Request(token));
            paged.insert(response.full_name.as_str(), PagedMessage::Response(list));
        }
    }
    let imports = ModuleImports::new(scope);
    let types = TypeEmitter {
        package: package.name.as_str(),
        names: &emitter.names,
        scope,
        imports: &imports,
        module: "pages",
    };
    let is_here = |name: &str| package.messages.iter().any(|own| own.full_name == name) && emitter.is_here(name);
    let impls: Vec<_> =
        paged.iter().filter(|(name, _)| is_here(name)).map(|(name, message)| message.of(name, &types)).collect();
    let imports = imports.statements();
    (!impls.is_empty()).then(|| {
        quote! {
            /// The pages of lists.
            const _: () = {
                #imports

                #(#impls)*
            };
        }
    })
}

/// A message of a paged method.
enum PagedMessage<'a> {
    /// The request, with its token.
    Request(&'a FieldSchema),
    Response(PagedList<'a>),
}

/// A response with a list.
struct PagedList<'a> {
    items: &'a FieldSchema,
    token: &'a FieldSchema,
}

impl<'a> PagedList<'a> {
    /// Returns the list of a response: the field with number 1, or the only list. Its items are messages or text.
    fn of(response: &'a MessageSchema) -> Option<Self> {
        let token = text(response, "next_page_token")?;
        let lists = || response.fields.iter().filter(|field| matches!(field.shape, FieldShape::List(_)));
        let only = || lists().next().filter(|_| lists().count() == 1);
        let items = lists().find(|field| field.number == 1).or_else(only)?;
        let of = items.shape.element();
        matches!(of, ValueType::Message(_) | ValueType::String).then_some(Self { items, token })
    }
}

impl PagedMessage<'_> {
    fn of(&self, full_name: &str, types: &TypeEmitter<'_>) -> TokenStream {
        let path = types.path(full_name);
        let [string, vec] = ["string::String", "vec::Vec"]
            .map(|name| tokens(&types.scope.short(&format!("::frpc::prost::alloc::{name}"))));
        match self {
            Self::Request(token) => {
                let (trait_name, field) = (types.import("PagedRequest"), tokens(&naming::snake(&token.name)));
                let token = if is_optional(token) {
                    quote! { Some(token) }
                } else {
                    quote! { token }
                };
                quote! {
                    impl #trait_name for #path {
                        fn set_page_token(&mut self, token: #string) {
                            self.#field = #token;
                        }
                    }
                }
            }
            Self::Response(PagedList { items, token }) => {
                let (trait_name, field) = (types.import("PagedResponse"), tokens(&naming::snake(&token.name)));
                let token = if is_optional(token) {
                    quote! { self.#field.as_deref().unwrap_or_default() }
                } else {
                    quote! { &self.#field }
                };
                let (list, deprecated) = (tokens(&naming::snake(&items.name)), items.is_deprecated);
                let allow_deprecated = deprecated.then(|| quote! { #[allow(deprecated)] });
                let item = match items.shape.element() {
                    ValueType::Message(of) => types.path(of),
                    _ => string,
                };
                quote! {
                    #allow_deprecated
                    impl #trait_name for #path {
                        type Item = #item;

                        fn next_page_token(&self) -> &str {
                            #token
                        }

                        fn items(&self) -> &[Self::Item] {
                            &self.#list
                        }

                        fn into_items(self) -> #vec<Self::Item> {
                            self.#list
                        }
                    }
                }
            }
        }
    }
}

/// Returns the token of a request for a page.
fn page_token(request: &MessageSchema) -> Option<&FieldSchema> {
    let is_size = |field: &FieldSchema| {
        field.name == "page_size" && matches!(field.shape.element(), ValueType::I32 | ValueType::I64 | ValueType::U32)
    };
    text(request, "page_token").filter(|_| request.fields.iter().any(is_size))
}

/// Returns the single field of text with this name.
fn text<'a>(message: &'a MessageSchema, name: &str) -> Option<&'a FieldSchema> {
    let is_text = |shape: &FieldShape| {
        matches!(shape, FieldShape::Always(ValueType::String) | FieldShape::Optional(ValueType::String))
    };
    message.fields.iter().find(|field| field.name == name && is_text(&field.shape))
}

fn is_optional(field: &FieldSchema) -> bool {
    matches!(field.shape, FieldShape::Optional(_)) && !field.is_required
}
