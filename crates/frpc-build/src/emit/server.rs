//! The module of a service's serving side: the trait to implement, and the type that serves it.

use frpc_schema::{Method, MethodKind, Service};
use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::{Emitter, allow_conventions, allow_deprecated, call, constant, deprecated, doc, methods_module, tokens};
use crate::naming;

pub(super) fn module(service: &Service, package: &str, emitter: &Emitter) -> TokenStream {
    let module = tokens(&naming::snake(&format!("{}_server", service.name)));
    let full_name = &service.full_name;
    let about = doc(&format!("Serves `{full_name}`."));
    let (allow, conventions) = (allow_deprecated(service), allow_conventions(service));
    let declared = Declared { service, package, emitter };
    let (the_trait, server) = (declared.the_trait(), declared.server());
    quote! {
        #about
        #allow
        #conventions
        #[allow(dead_code)]
        pub mod #module {
            #the_trait
            #server
        }
    }
}

/// The code for one service.
struct Declared<'a> {
    service: &'a Service,
    package: &'a str,
    emitter: &'a Emitter,
}

impl Declared<'_> {
    fn the_trait(&self) -> TokenStream {
        let (service, name) = (self.service, self.trait_name());
        let instead = format!("The methods of `{}`.", &service.full_name);
        let docs = self.emitter.docs(&service.comment, &service.full_name, &instead);
        let deprecated = deprecated(service.is_deprecated);
        let methods = service.methods.iter().map(|method| self.method(method));
        quote! {
            #docs
            #deprecated
            pub trait #name: ::core::marker::Send + ::core::marker::Sync + 'static {
                #(#methods)*
            }
        }
    }

    fn method(&self, method: &Method) -> TokenStream {
        let name = tokens(&naming::method(&method.name));
        let docs = self.emitter.method_docs(self.service, method);
        let deprecated = deprecated(method.is_deprecated);
        let (input, output) = self.emitter.messages(method, self.package);
        let (request, response) = match method.kind {
            MethodKind::Unary => (input, output),
            MethodKind::ServerStreaming => (input, quote! { ::frpc::Streaming<#output> }),
            MethodKind::ClientStreaming => (quote! { ::frpc::Streaming<#input> }, output),
            MethodKind::Bidirectional => (quote! { ::frpc::Streaming<#input> }, quote! { ::frpc::Streaming<#output> }),
        };
        quote! {
            #docs
            #deprecated
            fn #name(
                &self,
                request: ::frpc::Request<#request>,
            ) -> impl ::core::future::Future<
                Output = ::core::result::Result<::frpc::Response<#response>, ::frpc::Status>,
            > + ::core::marker::Send;
        }
    }

    fn server(&self) -> TokenStream {
        let name = tokens(&naming::upper_camel(&format!("{}_server", self.service.name)));
        let trait_name = self.trait_name();
        let about = doc(&format!("Serves a type that implements [`{trait_name}`]."));
        let bound = tokens(&naming::unhidden(trait_name.to_string()));
        let full_name = &self.service.full_name;
        let methods = tokens(&methods_module(self.service));
        let constants: Vec<_> = self.service.methods.iter().map(constant).collect();
        let calls = self.service.methods.iter().map(|method| {
            let (shape, name) = (call(method.kind), tokens(&naming::method(&method.name)));
            quote! { call.#shape(|request| <T as #bound>::#name(&self.inner, request)).await }
        });
        let indexes = (0..constants.len()).map(Literal::usize_unsuffixed);
        let (method, body) = if constants.is_empty() {
            (quote! { _ }, quote! { call.unknown() })
        } else {
            let body = quote! {
                match method {
                    #(#indexes => #calls,)*
                    _ => call.unknown(),
                }
            };
            (quote! { method }, body)
        };
        quote! {
            #about
            #[derive(Debug)]
            pub struct #name<T> {
                inner: ::std::sync::Arc<T>,
            }

            impl<T> #name<T> {
                /// Serves this implementation.
                pub fn new(inner: T) -> Self {
                    Self::from_arc(::std::sync::Arc::new(inner))
                }

                /// Serves an implementation that others share.
                pub fn from_arc(inner: ::std::sync::Arc<T>) -> Self {
                    Self { inner }
                }
            }

            impl<T> ::core::clone::Clone for #name<T> {
                fn clone(&self) -> Self {
                    Self::from_arc(::std::sync::Arc::clone(&self.inner))
                }
            }

            impl<T: #bound> ::frpc::generated::Service for #name<T> {
                const NAME: &'static str = #full_name;
                const METHODS: &'static [::frpc::generated::Method] = &[#(super::#methods::#constants),*];

                async fn call(
                    &self,
                    #method: usize,
                    call: ::frpc::generated::Call,
                ) -> ::core::result::Result<::frpc::generated::Answer, ::frpc::Status> {
                    #body
                }
            }
        }
    }

    fn trait_name(&self) -> TokenStream {
        tokens(&naming::upper_camel(&self.service.name))
    }
}
