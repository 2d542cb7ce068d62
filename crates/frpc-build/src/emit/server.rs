//! Generates the server module of a service: the trait to implement and the server type.

use frpc_schema::{MethodKind, MethodSchema, ServiceSchema};
use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::{
    emitter::{EmitSettings, ServiceItem},
    methods,
    rust::{doc, tokens},
    scope::{ModuleImports, ModuleScope},
};
use crate::naming;

pub(super) fn module(service: &ServiceSchema, package: &str, emitter: &EmitSettings) -> Option<TokenStream> {
    if !emitter.has_server {
        return None;
    }
    let names = [naming::upper_camel(&service.name), naming::upper_camel(&format!("{}_server", service.name))];
    let mut scope = ModuleScope::default();
    scope.extend(names.clone());
    let imports = ModuleImports::new(&scope);
    let [trait_name, type_name] = names.map(|name| tokens(&name));
    let server = ServerEmitter { service, package, emitter, scope: &scope, imports: &imports, trait_name, type_name };
    let items = [server.the_trait(), server.the_type()];

    let module = tokens(&naming::snake(&format!("{}_server", service.name)));
    let about = doc(&format!("Serves `{}`.", service.full_name));
    let (allow, imports) = (methods::allow(service), imports.statements());
    let attributes = emitter.attributes(ServiceItem::ServerModule, service);
    Some(quote! {
        #about
        #allow
        #attributes
        pub mod #module {
            #imports

            #(#items)*
        }
    })
}

/// Inputs for the server code of a service.
struct ServerEmitter<'a> {
    service: &'a ServiceSchema,
    package: &'a str,
    emitter: &'a EmitSettings,
    scope: &'a ModuleScope,
    imports: &'a ModuleImports<'a>,
    trait_name: TokenStream,
    type_name: TokenStream,
}

impl ServerEmitter<'_> {
    fn the_trait(&self) -> TokenStream {
        let Self { service, trait_name, .. } = self;
        let docs = self.emitter.docs(&service.comment, &service.full_name);
        let docs = docs.unwrap_or_else(|| doc(&format!("The service `{}`.", service.full_name)));
        let deprecated = methods::deprecated(service.is_deprecated);
        let [send, sync] = ["Send", "Sync"].map(|name| self.prelude("::core::marker", name));
        let methods = service.methods.iter().map(|method| self.method(method));
        let attributes = self.emitter.attributes(ServiceItem::Trait, service);
        quote! {
            #docs
            #deprecated
            #attributes
            pub trait #trait_name: #send + #sync + 'static {
                #(#methods)*
            }
        }
    }

    fn method(&self, method: &MethodSchema) -> TokenStream {
        let name = tokens(&naming::method(&method.name));
        let docs = self.emitter.method_docs(self.service, method);
        let deprecated = methods::deprecated(method.is_deprecated);
        let input = self.emitter.message(&method.input, self.package, self.imports);
        let output = self.emitter.message(&method.output, self.package, self.imports);
        let import = |name| self.imports.name("frpc", "", name);
        let [request, response, status] = ["Request", "Response", "Status"].map(import);
        let many = |of| {
            let streaming = import("Streaming");
            quote! { #streaming<#of> }
        };
        let (asked, answer) = match method.kind {
            MethodKind::Unary => (input, output),
            MethodKind::ServerStreaming => (input, many(output)),
            MethodKind::ClientStreaming => (many(input), output),
            MethodKind::Bidirectional => (many(input), many(output)),
        };
        let future = self.imports.name("std", "future", "Future");
        let (result, send) = (self.prelude("::core::result", "Result"), self.prelude("::core::marker", "Send"));
        quote! {
            #docs
            #deprecated
            fn #name(
                &self,
                request: #request<#asked>,
            ) -> impl #future<Output = #result<#response<#answer>, #status>> + #send;
        }
    }

    fn the_type(&self) -> TokenStream {
        let Self { service, type_name, trait_name, .. } = self;
        let about = doc(&format!("Serves a type that implements [`{trait_name}`]."));
        let bound = tokens(&naming::unhidden(trait_name.to_string()));
        let full_name = &service.full_name;
        let module = methods::module_name(service);
        let constants: Vec<_> = service.methods.iter().map(methods::constant).collect();
        let (method, body) = if constants.is_empty() {
            (quote! { _ }, quote! { call.unknown() })
        } else {
            self.imports.add("super", "", &module);
            let calls = (0..).zip(&service.methods).map(|(index, method)| {
                let index = Literal::usize_unsuffixed(index);
                let (shape, name) = (methods::call(method.kind), tokens(&naming::method(&method.name)));
                let with_codec = self.emitter.with_codec(service, method);
                quote! { #index => call #with_codec.#shape(|request| T::#name(&self.inner, request)).await }
            });
            (quote! { method }, quote! { match method { #(#calls,)* _ => call.unknown() } })
        };
        let module = tokens(&module);
        let arc = self.imports.name("std", "sync", "Arc");
        let clone = self.prelude("::core::clone", "Clone");
        let status = self.imports.name("frpc", "", "Status");
        let result = self.prelude("::core::result", "Result");
        let [generated_service, methods_of, call, answer] =
            ["Service", "Method", "Call", "Answer"].map(|name| self.imports.name("frpc", "generated", name));
        let attributes = self.emitter.attributes(ServiceItem::Server, self.service);
        quote! {
            #about
            #attributes
            #[derive(Debug)]
            pub struct #type_name<T> {
                inner: #arc<T>,
            }

            impl<T> #type_name<T> {
                /// Serves this implementation.
                pub fn new(inner: T) -> Self {
                    Self::from_arc(#arc::new(inner))
                }

                /// Serves a shared implementation.
                pub fn from_arc(inner: #arc<T>) -> Self {
                    Self { inner }
                }
            }

            impl<T> #clone for #type_name<T> {
                fn clone(&self) -> Self {
                    Self::from_arc(#arc::clone(&self.inner))
                }
            }

            impl<T: #bound> #generated_service for #type_name<T> {
                const NAME: &'static str = #full_name;
                const METHODS: &'static [#methods_of] = &[#(#module::#constants),*];

                async fn call(&self, #method: usize, call: #call) -> #result<#answer, #status> {
                    #body
                }
            }
        }
    }

    /// Returns the path for a name of Rust's prelude, in case a declaration shadows it.
    fn prelude(&self, module: &str, name: &str) -> TokenStream {
        tokens(&self.scope.short(&format!("{module}::{name}")))
    }
}
