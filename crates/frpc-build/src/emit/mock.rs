//! Generates the mock module of a service: a type that implements its trait by expectations.

use frpc_schema::{MethodKind, MethodSchema, ServiceSchema};
use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::{
    emitter::{EmitSettings, ServiceItem},
    methods,
    rust::{doc, tokens},
    scope::{ModuleImports, ModuleScope},
};
use crate::naming;

pub(super) fn module(service: &ServiceSchema, package: &str, emitter: &EmitSettings) -> Option<TokenStream> {
    if !emitter.has_mocks {
        return None;
    }
    let trait_name = naming::upper_camel(&service.name);
    let name = naming::upper_camel(&format!("mock_{}", service.name));
    let mut scope = ModuleScope::default();
    scope.extend([name.clone()]);
    let imports = ModuleImports::new(&scope);
    let mock = MockEmitter { service, package, emitter, scope: &scope, imports: &imports };
    let items = mock.items(&tokens(&name), &trait_name);

    let module = tokens(&naming::snake(&format!("{}_mock", service.name)));
    let about = doc(&format!("Mocks `{}` in tests.", service.full_name));
    let (allow, imports) = (methods::allow(service), imports.statements());
    let attributes = emitter.attributes(ServiceItem::MockModule, service);
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

/// Inputs for the mock code of a service.
struct MockEmitter<'a> {
    service: &'a ServiceSchema,
    package: &'a str,
    emitter: &'a EmitSettings,
    scope: &'a ModuleScope,
    imports: &'a ModuleImports<'a>,
}

impl MockEmitter<'_> {
    fn items(&self, name: &TokenStream, trait_name: &str) -> TokenStream {
        let server = naming::snake(&format!("{}_server", self.service.name));
        let server_type = naming::upper_camel(&format!("{}_server", self.service.name));
        self.imports.add("super", "", &server);
        let (server, server_type) = (tokens(&server), tokens(&server_type));
        let about = doc(&format!("Implements [`{trait_name}`]({server}::{trait_name}) by the expectations of a test."));
        let trait_path = tokens(trait_name);
        let channel = self.imports.name("frpc", "", "Channel");
        let mock = self.imports.name("frpc", "testing", "MockService");
        let expectations = self.service.methods.iter().map(|method| self.expectation(method));
        let methods = self.service.methods.iter().map(|method| self.method(method));
        quote! {
            #about
            ///
            /// Clones share their expectations. Dropping the last clone verifies them.
            #[derive(Clone, Debug, Default)]
            pub struct #name {
                mock: #mock,
            }

            impl #name {
                /// Returns a mock without expectations.
                pub fn new() -> Self {
                    Self::default()
                }

                /// Returns a channel to this mock, without a socket.
                pub fn channel(&self) -> #channel {
                    #channel::in_process(#server::#server_type::new(self.clone()))
                }

                /// Checks that every expectation got its calls, and panics otherwise.
                #[track_caller]
                pub fn verify(&self) {
                    self.mock.verify();
                }

                #(#expectations)*
            }

            impl #server::#trait_path for #name {
                #(#methods)*
            }
        }
    }

    /// Returns the types of the request and the answer.
    fn types(&self, method: &MethodSchema) -> [TokenStream; 2] {
        let input = self.emitter.message(&method.input, self.package, self.imports);
        let output = self.emitter.message(&method.output, self.package, self.imports);
        let many = |of| {
            let streaming = self.imports.name("frpc", "", "Streaming");
            quote! { #streaming<#of> }
        };
        match method.kind {
            MethodKind::Unary => [input, output],
            MethodKind::ServerStreaming => [input, many(output)],
            MethodKind::ClientStreaming => [many(input), output],
            MethodKind::Bidirectional => [many(input), many(output)],
        }
    }

    /// Returns the path of the constant of a method.
    fn constant(&self, method: &MethodSchema) -> TokenStream {
        let (module, constant) = (methods::module_name(self.service), methods::constant(method));
        self.imports.add("super", "", &module);
        let module = tokens(&module);
        quote! { #module::#constant }
    }

    fn expectation(&self, method: &MethodSchema) -> TokenStream {
        let plain = naming::method(&method.name);
        let plain = plain.trim_start_matches("r#").trim_start_matches('_');
        let name = format_ident!("expect_{plain}");
        let about = doc(&format!("Expects calls of `{plain}`."));
        let deprecated = methods::deprecated(method.is_deprecated);
        let expectation = self.imports.name("frpc", "testing", "Expectation");
        let ([request, answer], constant) = (self.types(method), self.constant(method));
        quote! {
            #about
            #deprecated
            #[track_caller]
            pub fn #name(&self) -> #expectation<#request, #answer> {
                self.mock.expect(&#constant)
            }
        }
    }

    fn method(&self, method: &MethodSchema) -> TokenStream {
        let name = tokens(&naming::method(&method.name));
        let [request, response, status] =
            ["Request", "Response", "Status"].map(|name| self.imports.name("frpc", "", name));
        let ([asked, answer], constant) = (self.types(method), self.constant(method));
        let result = tokens(&self.scope.short("::core::result::Result"));
        quote! {
            async fn #name(&self, request: #request<#asked>) -> #result<#response<#answer>, #status> {
                self.mock.answer(&#constant, request).await
            }
        }
    }
}
