//! Generates the field masks of messages: their paths, and the code to select fields.

use std::collections::BTreeMap;

use frpc_schema::{Diagnostic, FieldSchema, FieldShape, MessageSchema, OneofSchema, PackageSchema, Schema, ValueType};
use proc_macro2::TokenStream;
use quote::quote;

use super::{
    EmitSettings,
    rust::{doc, tokens},
    scope::{ModuleImports, ModuleScope},
    types::TypeEmitter,
};
use crate::naming;

/// Checks that no package has a module with the name of the module for paths.
pub(crate) fn check(emitter: &EmitSettings, schema: &Schema) -> Result<(), Diagnostic> {
    for package in &schema.packages {
        if module_name(emitter, package).is_none() {
            continue;
        }
        let message = package.messages.iter().find(|message| {
            let own = own(&message.full_name, package);
            let has_module = !message.nested.is_empty() || !message.oneofs.is_empty();
            !own.contains('.') && naming::snake(own) == MODULE && has_module
        });
        let mut modules = naming::modules(&package.name);
        modules.push(MODULE.to_owned());
        let other = schema.packages.iter().find(|other| naming::modules(&other.name).starts_with(&modules));
        if let Some(place) = message.map(|message| &message.place).or(other.map(|other| &other.place)) {
            let message = format!(
                "this has a module `{MODULE}` in Rust, and so have the field masks of package '{}'",
                package.name
            );
            return Err(Diagnostic::new(message).at(place.clone()).help("rename it, or do without `field_masks`"));
        }
    }
    Ok(())
}

/// Returns the name of the module for paths if the package has one.
pub(super) fn module_name(emitter: &EmitSettings, package: &PackageSchema) -> Option<String> {
    (emitter.has_field_masks && messages(emitter, package).next().is_some()).then(|| MODULE.to_owned())
}

/// Returns the module with the paths of a package, and the impls for all messages.
pub(super) fn block(emitter: &EmitSettings, package: &PackageSchema, scope: &ModuleScope) -> Option<TokenStream> {
    module_name(emitter, package)?;
    let imports = ModuleImports::new(scope);
    let types = TypeEmitter {
        package: package.name.as_str(),
        names: &emitter.names,
        scope,
        imports: &imports,
        module: "field_mask",
    };
    let masks = MaskEmitter { types: &types };
    let impls: Vec<_> = messages(emitter, package).map(|message| masks.message(message)).collect();
    let imports = imports.statements();
    let paths = paths(emitter, package);
    Some(quote! {
        #paths

        /// The field masks of the messages.
        const _: () = {
            #imports

            #(#impls)*
        };
    })
}

fn messages<'a>(emitter: &'a EmitSettings, package: &'a PackageSchema) -> impl Iterator<Item = &'a MessageSchema> {
    package.messages.iter().filter(|message| emitter.is_here(&message.full_name))
}

/// A module with the paths of a message, and the modules of its nested messages.
#[derive(Default)]
struct PathModule {
    constants: Vec<TokenStream>,
    nested: BTreeMap<String, PathModule>,
}

impl PathModule {
    fn tokens(&self, scope_path: &str) -> TokenStream {
        let constants = &self.constants;
        let import = (!constants.is_empty()).then(|| quote! { use ::frpc::field_mask::FieldPath; });
        let nested = self.nested.iter().map(|(name, module)| {
            let scope_path = format!("{scope_path}.{name}");
            let about = doc(&format!("The paths of `{}`.", scope_path.trim_start_matches('.')));
            let (name, inner) = (tokens(name), module.tokens(&scope_path));
            quote! {
                #about
                pub mod #name {
                    #inner
                }
            }
        });
        quote! {
            #import

            #(#constants)*
            #(#nested)*
        }
    }
}

fn paths(emitter: &EmitSettings, package: &PackageSchema) -> TokenStream {
    let mut root = PathModule::default();
    for message in messages(emitter, package).filter(|message| !message.fields.is_empty()) {
        let modules: Vec<_> = own(&message.full_name, package).split('.').map(naming::snake).collect();
        let levels = modules.len() + 1;
        let module = modules.into_iter().fold(&mut root, |module, name| module.nested.entry(name).or_default());
        let path = |name: &str| tokens(&emitter.names.path(name, &package.name, levels));
        let of = path(&message.full_name);
        for field in &message.fields {
            let (constant, name) = (tokens(&naming::shouty(&field.name)), &field.name);
            let about = doc(&format!("The path of `{name}`."));
            let target = inner(field).map(|inner| {
                let inner = path(inner);
                quote! { , #inner }
            });
            module.constants.push(quote! {
                #about
                pub const #constant: FieldPath<#of #target> = FieldPath::new(#name);
            });
        }
    }
    let (about, module, inner) = (doc("The paths of fields, for field masks."), tokens(MODULE), root.tokens(""));
    quote! {
        #about
        #[allow(clippy::module_inception, dead_code)]
        pub mod #module {
            #inner
        }
    }
}

/// Returns the name of a field's message if paths can go on in it.
fn inner(field: &FieldSchema) -> Option<&str> {
    match &field.shape {
        FieldShape::Always(ValueType::Message(of))
        | FieldShape::Optional(ValueType::Message(of))
        | FieldShape::Member(_, ValueType::Message(of))
            if !of.starts_with(WELL_KNOWN) =>
        {
            Some(of)
        }
        _ => None,
    }
}

/// Returns `true` for a required `google.protobuf.Empty`, the type `()` in Rust.
fn is_unit(field: &FieldSchema) -> bool {
    let is_empty = |of: &str| of == "google.protobuf.Empty";
    field.is_required
        && matches!(&field.shape, FieldShape::Always(ValueType::Message(of)) | FieldShape::Optional(ValueType::Message(of)) if is_empty(of))
}

struct MaskEmitter<'a> {
    types: &'a TypeEmitter<'a>,
}

impl MaskEmitter<'_> {
    fn message(&self, message: &MessageSchema) -> TokenStream {
        let MessageSchema { full_name, fields, oneofs, .. } = message;
        let path = self.types.path(full_name);
        let allow_deprecated = fields.iter().any(|field| field.is_deprecated).then(|| quote! { #[allow(deprecated)] });
        let allow_unit = fields.iter().any(is_unit).then(|| quote! { #[allow(clippy::unit_arg)] });
        let [trait_name, field_type, node, options] =
            ["MaskedMessage", "MaskedField", "MaskNode", "MergeOptions"].map(|name| self.types.import(name));
        let names = fields.iter().map(|field| {
            let name = &field.name;
            match inner(field) {
                Some(of) => {
                    let of = self.types.path(of);
                    quote! { #field_type::message::<#of>(#name) }
                }
                None => quote! { #field_type::new(#name) },
            }
        });
        let single = fields.iter().filter(|field| !matches!(field.shape, FieldShape::Member(..)));
        let projects = single.clone().map(project);
        let merges = single.map(merge);
        let with_oneofs = |each: &dyn Fn(&OneofSchema, &[&FieldSchema]) -> TokenStream| {
            let oneofs = oneofs.iter().enumerate().map(|(index, oneof)| {
                let is_member = |field: &&FieldSchema| matches!(field.shape, FieldShape::Member(of, _) if of == index);
                each(oneof, &fields.iter().filter(is_member).collect::<Vec<_>>())
            });
            oneofs.collect::<Vec<_>>()
        };
        let project_oneofs = with_oneofs(&|oneof, members| self.project_oneof(message, oneof, members));
        let merge_oneofs = with_oneofs(&|oneof, members| self.merge_oneof(message, oneof, members));
        let has_options = |field: &FieldSchema| {
            inner(field).is_some() || matches!(field.shape, FieldShape::List(_) | FieldShape::Map(..))
        };
        let uses_options = fields.iter().any(has_options);
        let is_unused = |name: &str, is_used: bool| tokens(if is_used { name } else { "_" });
        let mask = is_unused("mask", !fields.is_empty());
        let (from, options_name) = (is_unused("from", !fields.is_empty()), is_unused("options", uses_options));
        quote! {
            #allow_deprecated
            #allow_unit
            impl #trait_name for #path {
                const NAME: &'static str = #full_name;
                const FIELDS: &'static [#field_type] = &[#(#names),*];

                fn project_fields(&mut self, #mask: &#node<'_>) {
                    #(#projects)*
                    #(#project_oneofs)*
                }

                fn merge_fields(&mut self, #from: Self, #mask: &#node<'_>, #options_name: #options) {
                    #(#merges)*
                    #(#merge_oneofs)*
                }
            }
        }
    }

    fn project_oneof(&self, message: &MessageSchema, oneof: &OneofSchema, members: &[&FieldSchema]) -> TokenStream {
        let value = tokens(&naming::snake(&oneof.name));
        let arms = members.iter().map(|member| {
            let (variant, name) = (self.types.variant(message, oneof, &member.name), &member.name);
            match inner(member) {
                Some(_) => quote! { Some(#variant(value)) => mask.project_member(#name, value), },
                None => quote! { Some(#variant(_)) => mask.has(#name), },
            }
        });
        quote! {
            let is_kept = match &mut self.#value {
                #(#arms)*
                None => true,
            };
            if !is_kept {
                self.#value = None;
            }
        }
    }

    fn merge_oneof(&self, message: &MessageSchema, oneof: &OneofSchema, members: &[&FieldSchema]) -> TokenStream {
        let value = tokens(&naming::snake(&oneof.name));
        let default = tokens(&self.types.scope.short("::core::default::Default"));
        let sets = members.iter().map(|member| {
            let (variant, name) = (self.types.variant(message, oneof, &member.name), &member.name);
            match inner(member) {
                Some(_) => quote! {
                    (into, Some(#variant(value))) if mask.has(#name) => {
                        if !matches!(into, Some(#variant(_))) {
                            *into = Some(#variant(#default::default()));
                        }
                        if let Some(#variant(into)) = into {
                            mask.merge_required(#name, into, value, options);
                        }
                    }
                },
                None => quote! { (into, Some(#variant(value))) if mask.has(#name) => *into = Some(#variant(value)), },
            }
        });
        let clears = members.iter().map(|member| {
            let (variant, name) = (self.types.variant(message, oneof, &member.name), &member.name);
            match inner(member) {
                Some(_) => quote! { Some(#variant(value)) => mask.clears_member(#name, value, options), },
                None => quote! { Some(#variant(_)) => mask.has(#name), },
            }
        });
        quote! {
            match (&mut self.#value, from.#value) {
                #(#sets)*
                // The other message has no value that is selected.
                (into, _) => {
                    let is_cleared = match into {
                        #(#clears)*
                        None => false,
                    };
                    if is_cleared {
                        *into = None;
                    }
                }
            }
        }
    }
}

fn project(field: &FieldSchema) -> TokenStream {
    let (name, value) = (&field.name, tokens(&naming::snake(&field.name)));
    let project = match (&field.shape, inner(field)) {
        (FieldShape::Optional(_), Some(_)) if !field.is_required => quote! { project_message },
        (FieldShape::Always(_) | FieldShape::Optional(_), Some(_)) => quote! { project_required },
        _ => quote! { project_value },
    };
    quote! { mask.#project(#name, &mut self.#value); }
}

fn merge(field: &FieldSchema) -> TokenStream {
    let (name, value) = (&field.name, tokens(&naming::snake(&field.name)));
    match (&field.shape, inner(field)) {
        (FieldShape::Optional(_), Some(_)) if !field.is_required => {
            quote! { mask.merge_message(#name, &mut self.#value, from.#value, options); }
        }
        (FieldShape::Always(_) | FieldShape::Optional(_), Some(_)) => {
            quote! { mask.merge_required(#name, &mut self.#value, from.#value, options); }
        }
        (FieldShape::List(_) | FieldShape::Map(..), _) => {
            quote! { mask.merge_repeated(#name, &mut self.#value, from.#value, options); }
        }
        _ => quote! { mask.merge_value(#name, &mut self.#value, from.#value); },
    }
}

fn own<'a>(full_name: &'a str, package: &PackageSchema) -> &'a str {
    full_name.strip_prefix(&package.name).unwrap_or(full_name).trim_start_matches('.')
}

const MODULE: &str = "paths";
const WELL_KNOWN: &str = "google.protobuf.";
