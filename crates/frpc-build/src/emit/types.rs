//! Names of types and accessors in the encodings of messages.

use frpc_schema::{MessageSchema, OneofSchema, ValueType};
use proc_macro2::TokenStream;
use quote::quote;

use super::{
    rust::tokens,
    scope::{ModuleImports, ModuleScope},
};
use crate::naming::{self, TypePaths};

/// Generates the names in one encoding of the messages of a package.
pub(super) struct TypeEmitter<'a> {
    pub(super) package: &'a str,
    pub(super) names: &'a TypePaths,
    pub(super) scope: &'a ModuleScope,
    pub(super) imports: &'a ModuleImports<'a>,
    /// Module of `frpc` with the encoding.
    pub(super) module: &'static str,
}

impl TypeEmitter<'_> {
    /// Imports an item of the module and returns the path to use for it.
    pub(super) fn import(&self, name: &'static str) -> TokenStream {
        self.imports.name("frpc", self.module, name)
    }

    /// Returns the path of a message or enum.
    pub(super) fn path(&self, full_name: &str) -> TokenStream {
        tokens(&self.scope.short(&self.names.path(full_name, self.package, 0)))
    }

    /// Returns the path of a package or of the module of a message, with a trailing `::`.
    pub(super) fn prefix(&self, module: &str) -> TokenStream {
        let member = if module.is_empty() { "X".to_owned() } else { format!("{module}.X") };
        let path = self.names.path(&member, self.package, 0);
        tokens(path.strip_suffix('X').expect("the path ends with the requested name"))
    }

    /// Returns the path of a oneof variant.
    pub(super) fn variant(&self, message: &MessageSchema, oneof: &OneofSchema, member: &str) -> TokenStream {
        let module = self.prefix(&message.full_name);
        let of = tokens(&naming::oneof_type(&oneof.name, message.nested.iter().map(String::as_str)));
        let member = tokens(&naming::upper_camel(member));
        quote! { #module #of::#member }
    }

    /// Returns the method of a writer or reader for a type. They differ in the methods for bytes and messages only.
    pub(super) fn accessor(&self, of: &ValueType, bytes: TokenStream, message: TokenStream) -> TokenStream {
        match of {
            ValueType::Bool => quote! { bool },
            ValueType::I32 => quote! { i32 },
            ValueType::I64 => quote! { i64 },
            ValueType::U32 => quote! { u32 },
            ValueType::U64 => quote! { u64 },
            ValueType::F32 => quote! { f32 },
            ValueType::F64 => quote! { f64 },
            ValueType::String => quote! { string },
            ValueType::Bytes => bytes,
            ValueType::Enum(of) => {
                let of = self.path(of);
                quote! { enumeration::<#of> }
            }
            ValueType::Message(_) => message,
        }
    }

    /// Returns the method of writers and readers for lists of a type.
    pub(super) fn list_accessor(&self, of: &ValueType) -> TokenStream {
        match of {
            ValueType::Enum(of) => {
                let of = self.path(of);
                quote! { enumeration_list::<#of> }
            }
            ValueType::Message(_) => quote! { message_list },
            _ => quote! { scalar_list },
        }
    }

    /// Returns the method of writers and readers for an optional value. For messages only the JSON reader has one.
    pub(super) fn optional_accessor(&self, of: &ValueType) -> TokenStream {
        match of {
            ValueType::Enum(of) => {
                let of = self.path(of);
                quote! { optional_enumeration::<#of> }
            }
            ValueType::Message(_) => quote! { optional_message },
            _ => quote! { optional_scalar },
        }
    }
}
