//! Generates the client module of a service: one type with a function per method.

use frpc_schema::{MethodKind, MethodSchema, ServiceSchema};
use proc_macro2::TokenStream;
use quote::quote;

use super::{
    emitter::{EmitSettings, ServiceItem},
    methods,
    rust::{doc, tokens},
    scope::{ModuleImports, ModuleScope},
};
use crate::naming;

pub(super) fn module(service: &ServiceSchema, package: &str, emitter: &EmitSettings) -> Option<TokenStream> {
    if !emitter.has_client {
        return None;
    }
    let name = naming::upper_camel(&format!("{}_client", service.name));
    let mut scope = ModuleScope::default();
    scope.extend([name.clone()]);
    let imports = ModuleImports::new(&scope);
    let client = ClientEmitter { service, package, emitter, imports: &imports };
    let items = client.items(&tokens(&name));

    let module = tokens(&naming::snake(&format!("{}_client", service.name)));
    let about = doc(&format!("Calls `{}`.", service.full_name));
    let (allow, imports) = (methods::allow(service), imports.statements());
    let attributes = emitter.attributes(ServiceItem::ClientModule, service);
    Some(quote! {
        #about
        #allow
        #attributes
        pub mod #module {
            #imports

            #items
        }
    })
}

/// Inputs for the client code of a service.
struct ClientEmitter<'a> {
    service: &'a ServiceSchema,
    package: &'a str,
    emitter: &'a EmitSettings,
    imports: &'a ModuleImports<'a>,
}

impl ClientEmitter<'_> {
    fn items(&self, name: &TokenStream) -> TokenStream {
        let Self { service, .. } = self;
        let docs = self.emitter.docs(&service.comment, &service.full_name);
        let docs = docs.unwrap_or_else(|| doc(&format!("A client of `{}`.", service.full_name)));
        let deprecated = methods::deprecated(service.is_deprecated);
        let [channel, connect_error, raw, status, to_target] =
            ["Channel", "ConnectError", "Raw", "Status", "ToTarget"].map(|name| self.imports.name("frpc", "", name));
        let methods = service.methods.iter().map(|declared| self.method(declared));
        let module = tokens(&methods::module_name(service));
        let constants = service.methods.iter().map(methods::constant);
        let (declared, declaration) = (!service.methods.is_empty())
            .then(|| {
                let method = self.imports.name("frpc", "", "Method");
                let declared = quote! { const METHODS: &'static [#method] = &[#(#module::#constants),*]; };
                (declared, quote! { channel.declare(Self::METHODS); })
            })
            .unzip();
        let attributes = self.emitter.attributes(ServiceItem::Client, service);
        quote! {
            #docs
            #deprecated
            #attributes
            #[derive(Clone, Debug)]
            pub struct #name {
                channel: #channel,
            }

            impl #name {
                #declared

                /// Returns a client that makes its calls over this channel.
                pub fn new(channel: #channel) -> Self {
                    #declaration
                    Self { channel }
                }

                /// Connects to an address, such as `"tcp://localhost:7300"`, or to several servers, with the default
                /// settings of [`Channel::builder`].
                pub async fn connect(target: impl #to_target) -> Result<Self, #connect_error> {
                    #channel::connect(target).await.map(Self::new)
                }

                /// Returns the channel of this client. Other clients can share it.
                pub fn channel(&self) -> &#channel {
                    &self.channel
                }

                /// Ends RPC on the connection and returns it as a plain byte stream. Calls in flight fail.
                pub async fn into_raw(self) -> Result<#raw, #status> {
                    self.channel.into_raw().await
                }

                #(#methods)*
            }
        }
    }

    fn method(&self, method: &MethodSchema) -> TokenStream {
        let name = tokens(&naming::method(&method.name));
        let docs = self.emitter.method_docs(self.service, method);
        let deprecated = methods::deprecated(method.is_deprecated);
        let call = methods::call(method.kind);
        let with_codec = self.emitter.with_codec(self.service, method);
        let (module, constant) = (methods::module_name(self.service), methods::constant(method));
        self.imports.add("super", "", &module);
        let module = tokens(&module);
        let input = self.emitter.message(&method.input, self.package, self.imports);
        let output = self.emitter.message(&method.output, self.package, self.imports);
        let import = |name| self.imports.name("frpc", "", name);
        let (response, status) = (import("Response"), import("Status"));
        let request = match method.kind {
            MethodKind::Unary | MethodKind::ServerStreaming => {
                let one = import("IntoRequest");
                quote! { impl #one<#input> }
            }
            MethodKind::ClientStreaming | MethodKind::Bidirectional => {
                let many = import("IntoStreamingRequest");
                quote! { impl #many<Message = #input> }
            }
        };
        let answer = match method.kind {
            MethodKind::Unary | MethodKind::ClientStreaming => output,
            MethodKind::ServerStreaming | MethodKind::Bidirectional => {
                let streaming = import("Streaming");
                quote! { #streaming<#output> }
            }
        };
        quote! {
            #docs
            #deprecated
            pub async fn #name(&self, request: #request) -> Result<#response<#answer>, #status> {
                self.channel #with_codec.#call(&#module::#constant, request).await
            }
        }
    }
}
