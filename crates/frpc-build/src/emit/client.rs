//! The module of a service's calling side: one type with a function for each method.

use frpc_schema::{Method, MethodKind, Service};
use proc_macro2::TokenStream;
use quote::quote;

use super::{Emitter, allow_conventions, allow_deprecated, call, constant, deprecated, doc, methods_module, tokens};
use crate::naming;

pub(super) fn module(service: &Service, package: &str, emitter: &Emitter) -> TokenStream {
    let module = tokens(&naming::snake(&format!("{}_client", service.name)));
    let name = tokens(&naming::upper_camel(&format!("{}_client", service.name)));
    let about = doc(&format!("Calls `{}`.", &service.full_name));
    let docs = emitter.docs(&service.comment, &service.full_name, &format!("Calls `{}`.", &service.full_name));
    let (allow, conventions) = (allow_deprecated(service), allow_conventions(service));
    let deprecated = deprecated(service.is_deprecated);
    let methods = service.methods.iter().map(|declared| method(declared, service, package, emitter));
    quote! {
        #about
        #allow
        #conventions
        #[allow(dead_code)]
        pub mod #module {
            #docs
            #deprecated
            #[derive(Clone, Debug)]
            pub struct #name {
                channel: ::frpc::Channel,
            }

            impl #name {
                /// Makes its calls over this channel.
                pub fn new(channel: ::frpc::Channel) -> Self {
                    Self { channel }
                }

                /// Connects to an address, such as `"tcp://localhost:7000"`, with default settings; see
                /// [`::frpc::Channel::builder`] for others.
                pub async fn connect(
                    address: impl ::frpc::ToAddress,
                ) -> ::core::result::Result<Self, ::frpc::ConnectError> {
                    ::frpc::Channel::connect(address).await.map(Self::new)
                }

                /// The channel that calls go over, which other clients can share.
                pub fn channel(&self) -> &::frpc::Channel {
                    &self.channel
                }

                /// Ends RPC on the connection and gives it back as a plain byte stream. Calls under way fail.
                pub async fn into_raw(self) -> ::core::result::Result<::frpc::Raw, ::frpc::Status> {
                    self.channel.into_raw().await
                }

                #(#methods)*
            }
        }
    }
}

fn method(method: &Method, service: &Service, package: &str, emitter: &Emitter) -> TokenStream {
    let name = tokens(&naming::method(&method.name));
    let docs = emitter.method_docs(service, method);
    let deprecated = deprecated(method.is_deprecated);
    let (constant, methods, call) = (constant(method), tokens(&methods_module(service)), call(method.kind));
    let (input, output) = emitter.messages(method, package);
    let one = quote! { impl ::frpc::IntoRequest<#input> };
    let many = quote! { impl ::frpc::IntoStreamingRequest<Message = #input> };
    let (request, response) = match method.kind {
        MethodKind::Unary => (one, output),
        MethodKind::ServerStreaming => (one, quote! { ::frpc::Streaming<#output> }),
        MethodKind::ClientStreaming => (many, output),
        MethodKind::Bidirectional => (many, quote! { ::frpc::Streaming<#output> }),
    };
    quote! {
        #docs
        #deprecated
        pub async fn #name(
            &self,
            request: #request,
        ) -> ::core::result::Result<::frpc::Response<#response>, ::frpc::Status> {
            self.channel.#call(&super::#methods::#constant, request).await
        }
    }
}
