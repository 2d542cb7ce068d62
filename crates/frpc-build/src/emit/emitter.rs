//! Settings of the code generator.

use frpc_schema::{Comment, MethodSchema, PackageSchema, ServiceSchema};
use proc_macro2::TokenStream;
use quote::quote;

use super::{rust::tokens, scope::ModuleImports};
use crate::{comments, error::Error, naming::TypePaths};

/// A message for pub/sub, and the pattern of its subjects.
#[derive(Clone, Debug)]
pub(crate) struct MessageTopic {
    pub(crate) message: String,
    pub(crate) pattern: String,
}

/// A user-defined codec for the messages of some methods.
#[derive(Clone, Debug)]
pub(crate) struct CodecPath {
    /// Path pattern of the methods, with the matching rules of prost.
    pub(crate) methods: String,
    /// Rust path of the codec.
    pub(crate) path: String,
}

impl CodecPath {
    /// Creates the codec setting for these methods. Fails if `path` is not a Rust path.
    pub(crate) fn new(methods: &str, path: &str) -> Result<Self, Error> {
        if syn::parse_str::<syn::Type>(path).is_err() {
            return Err(Error::other(format_args!("codec path '{path}' is not a path in Rust")));
        }
        Ok(Self { methods: methods.to_owned(), path: path.to_owned() })
    }
}

/// A user-defined attribute for a generated item of a service.
#[derive(Clone, Debug)]
pub(crate) struct ServiceAttribute {
    pub(crate) on: ServiceItem,
    /// Path pattern of the services, with the matching rules of prost.
    pub(crate) path: String,
    pub(crate) attribute: String,
}

/// Generated items of a service that can have user-defined attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceItem {
    Client,
    ClientModule,
    MockModule,
    Server,
    ServerModule,
    Trait,
}

/// Settings of the code generator.
#[derive(Clone, Debug)]
pub(crate) struct EmitSettings {
    pub(crate) names: TypePaths,
    pub(crate) has_server: bool,
    pub(crate) has_client: bool,
    pub(crate) has_mocks: bool,
    pub(crate) has_json: bool,
    pub(crate) has_required_fields: bool,
    pub(crate) has_field_masks: bool,
    pub(crate) has_pages: bool,
    pub(crate) topics: Vec<MessageTopic>,
    pub(crate) codecs: Vec<CodecPath>,
    pub(crate) attributes: Vec<ServiceAttribute>,
    /// Path patterns of declarations without comments, with the matching rules of prost.
    pub(crate) uncommented: Vec<String>,
}

impl EmitSettings {
    /// Returns `true` if the code of a declaration is generated here and not in an external crate.
    pub(super) fn is_here(&self, full_name: &str) -> bool {
        self.names.external(full_name).is_none()
    }

    /// Returns `true` if the code of a whole package is external: by its name, or because all its messages and enums
    /// are external.
    pub(crate) fn is_extern(&self, package: &PackageSchema) -> bool {
        let messages = package.messages.iter().map(|message| &message.full_name);
        let mut types = messages.chain(package.enums.iter().map(|declared| &declared.full_name)).peekable();
        let is_by_name = !package.name.is_empty() && !self.is_here(&package.name);
        is_by_name || (types.peek().is_some() && package.services.is_empty() && types.all(|name| !self.is_here(name)))
    }

    /// Returns the comment of a declaration as rustdoc. Returns `None` if it is empty or disabled.
    pub(super) fn docs(&self, comment: &Comment, full_name: &str) -> Option<TokenStream> {
        let full_name = format!(".{full_name}");
        let is_uncommented = self.uncommented.iter().any(|path| is_match(path, &full_name));
        let docs = comments::rustdoc(comment);
        if is_uncommented || docs.is_empty() {
            return None;
        }
        let lines = docs.iter().map(|line| if line.is_empty() { String::new() } else { format!(" {line}") });
        Some(quote! { #(#[doc = #lines])* })
    }

    /// Returns the user-defined attributes for an item of a service.
    pub(super) fn attributes(&self, on: ServiceItem, service: &ServiceSchema) -> TokenStream {
        let full_name = format!(".{}", service.full_name);
        let own = self.attributes.iter().filter(|own| own.on == on && is_match(&own.path, &full_name));
        own.map(|own| tokens(&own.attribute)).collect()
    }

    /// Returns the comment of a method as rustdoc.
    pub(super) fn method_docs(&self, service: &ServiceSchema, method: &MethodSchema) -> Option<TokenStream> {
        self.docs(&method.comment, &format!("{}.{}", service.full_name, method.name))
    }

    /// Returns the user-defined codec of a method, if there is one.
    pub(super) fn codec(&self, service: &ServiceSchema, method: &MethodSchema) -> Option<&str> {
        let full_name = format!(".{}.{}", service.full_name, method.name);
        self.codecs.iter().rfind(|codec| is_match(&codec.methods, &full_name)).map(|codec| codec.path.as_str())
    }

    /// Returns a method call to insert before the call of an RPC, to select the codec of the method.
    pub(super) fn with_codec(&self, service: &ServiceSchema, method: &MethodSchema) -> Option<TokenStream> {
        let codec = tokens(self.codec(service, method)?);
        Some(quote! { .with_codec::<#codec>() })
    }

    /// Returns the path of a message, for use in a module inside the package.
    pub(super) fn message(&self, full_name: &str, package: &str, imports: &ModuleImports) -> TokenStream {
        imports.type_at(&self.names.path(full_name, package, 1))
    }
}

/// Returns `true` if a prost path pattern matches a full name. A pattern is a full name, a prefix, a suffix, or `.` for
/// everything.
fn is_match(path: &str, full_name: &str) -> bool {
    let is_whole_part = |rest: &str| rest.is_empty() || rest.ends_with('.');
    path == "."
        || full_name.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        || (!path.starts_with('.') && full_name.strip_suffix(path).is_some_and(is_whole_part))
}
