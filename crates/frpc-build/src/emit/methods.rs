//! Generates the module with the methods of a service, for clients and servers.

use std::collections::{BTreeMap, HashSet};

use frpc_schema::{MethodKind, MethodSchema, ServiceSchema, fingerprint::Fingerprints};
use proc_macro2::{Literal, TokenStream};
use prost_types::method_options::IdempotencyLevel;
use quote::quote;

use super::{
    emitter::EmitSettings,
    rust::{doc, fingerprint, tokens},
    scope::{ModuleImports, ModuleScope},
};
use crate::naming;

pub(super) fn module(
    service: &ServiceSchema,
    package: &str,
    emitter: &EmitSettings,
    fingerprints: &Fingerprints<'_>,
) -> Option<TokenStream> {
    if !emitter.has_server && !emitter.has_client {
        return None;
    }
    let (module, service_name) = (tokens(&module_name(service)), &service.full_name);
    let about = doc(&format!("The methods of `{service_name}`."));
    let types = TypeConstants::of(service, package, emitter);
    let constants = service.methods.iter().map(|method| {
        let (constant, name, kind) = (constant(method), &method.name, call(method.kind));
        let operation = Literal::u16_unsuffixed(method.operation);
        let codec = emitter.codec(service, method);
        let [request, response] = [&method.input, &method.output].map(|message| types.constant(message, codec));
        let repetition = match method.idempotency {
            IdempotencyLevel::IdempotencyUnknown => None,
            IdempotencyLevel::Idempotent => Some(quote! { .idempotent() }),
            IdempotencyLevel::NoSideEffects => Some(quote! { .without_side_effects() }),
        };
        quote! {
            pub const #constant: Method = Method::#kind(#service_name, #name, #operation)
                .with_types(&types::#request, &types::#response)
                #repetition;
        }
    });
    let import = (!service.methods.is_empty()).then(|| quote! { use frpc::generated::Method; });
    let types = (!service.methods.is_empty()).then(|| types.module(package, emitter, fingerprints));
    Some(quote! {
        #about
        #[allow(missing_docs)]
        pub mod #module {
            #import

            #(#constants)*

            #types
        }
    })
}

/// Names of the constants for the messages of a service, by message and user-defined codec.
struct TypeConstants<'a>(BTreeMap<(&'a str, Option<&'a str>), String>);

impl<'a> TypeConstants<'a> {
    fn of(service: &'a ServiceSchema, package: &str, emitter: &'a EmitSettings) -> Self {
        let mut names = BTreeMap::new();
        let mut taken = HashSet::from([DESCRIPTORS.to_owned()]);
        let messages = service.methods.iter().flat_map(|method| {
            let codec = emitter.codec(service, method);
            [(&method.input, codec), (&method.output, codec)]
        });
        for (message, codec) in messages {
            names.entry((message.as_str(), codec)).or_insert_with(|| {
                let own = message.strip_prefix(package).and_then(|own| own.strip_prefix('.')).unwrap_or(message);
                let mut constant = naming::shouty(&own.replace('.', "_"));
                // Both `Order.Item` and `OrderItem` become `ORDER_ITEM`.
                while !taken.insert(constant.clone()) {
                    constant.push('_');
                }
                constant
            });
        }
        Self(names)
    }

    /// Returns the name of the constant for a message.
    fn constant(&self, message: &str, codec: Option<&str>) -> TokenStream {
        tokens(&self.0[&(message, codec)])
    }

    fn module(&self, package: &str, emitter: &EmitSettings, fingerprints: &Fingerprints<'_>) -> TokenStream {
        let scope = ModuleScope::default();
        let imports = ModuleImports::new(&scope);
        imports.add("frpc", "generated", "MessageType");
        if self.0.keys().any(|(_, codec)| codec.is_none()) {
            imports.add("super::super", "", DESCRIPTORS);
        }
        if self.0.keys().any(|(_, codec)| codec.is_some()) {
            imports.add("frpc", "codec", "Codec");
        }
        let (imports, descriptors) = (imports.statements(), tokens(DESCRIPTORS));
        let constants = self.0.keys().map(|&(message, codec)| {
            let constant = self.constant(message, codec);
            if let Some(codec) = codec {
                let external = emitter.names.external(message);
                let name = external.as_deref().unwrap_or(message);
                let (codec, message) = (tokens(codec), tokens(&emitter.names.path(message, package, 2)));
                return quote! {
                    pub(super) const #constant: MessageType =
                        MessageType::of_codec(#name, <#codec as Codec<#message>>::NAME);
                };
            }
            let print =
                fingerprint(fingerprints.of(message).expect("a checked schema contains all messages of its methods"));
            quote! {
                pub(super) const #constant: MessageType = MessageType::new(#message, #print, #descriptors);
            }
        });
        quote! {
            /// The message types, with fingerprints for peers to verify that they agree on them.
            mod types {
                #imports

                #(#constants)*
            }
        }
    }
}

pub(super) fn module_name(service: &ServiceSchema) -> String {
    naming::snake(&format!("{}_methods", service.name))
}

/// Returns the name of the constant for a method.
pub(super) fn constant(method: &MethodSchema) -> TokenStream {
    tokens(&naming::shouty(&method.name))
}

/// Returns the name of the function for this kind of call, both in clients and in servers.
pub(super) fn call(kind: MethodKind) -> TokenStream {
    match kind {
        MethodKind::Unary => quote! { unary },
        MethodKind::ServerStreaming => quote! { server_streaming },
        MethodKind::ClientStreaming => quote! { client_streaming },
        MethodKind::Bidirectional => quote! { bidirectional },
    }
}

pub(super) fn deprecated(is_deprecated: bool) -> Option<TokenStream> {
    is_deprecated.then(|| quote! { #[deprecated] })
}

/// Returns the lints to allow in the client and server modules.
pub(super) fn allow(service: &ServiceSchema) -> TokenStream {
    let mut methods = service.methods.iter();
    // A program may include code it does not use.
    let mut lints = vec![quote! { dead_code }];
    // The generated code must not warn about its own uses of deprecated items.
    if service.is_deprecated || methods.any(|method| method.is_deprecated) {
        lints.push(quote! { deprecated });
    }
    // The naming conventions of Rust, such as for `into_inner`, do not apply to methods of a service.
    let starts = ["as_", "from_", "into_", "is_", "to_"];
    let mut names = service.methods.iter().map(|method| naming::method(&method.name));
    if names.any(|name| starts.iter().any(|start| name.starts_with(start))) {
        lints.push(quote! { clippy::wrong_self_convention });
    }
    quote! { #[allow(#(#lints),*)] }
}

/// Name of the constant with the descriptors of a package.
const DESCRIPTORS: &str = "FILE_DESCRIPTOR_SET";
