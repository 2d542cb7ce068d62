//! Generates Rust code from the schema, one package per file.

mod client;
mod codec;
mod emitter;
mod json;
mod layout;
mod masks;
mod methods;
mod mock;
mod pages;
mod required;
mod rust;
mod scope;
mod server;
mod structs;
mod topics;
mod types;

use frpc_schema::{PackageSchema, Schema};
use proc_macro2::TokenStream;
use syn::File;

use self::scope::ModuleScope;
pub(crate) use self::{
    emitter::{CodecPath, EmitSettings, MessageTopic, ServiceAttribute, ServiceItem},
    masks::check as check_masks,
    topics::check as check_topics,
};
use crate::naming;

/// Returns the code of a package: the structs of prost, the services, and the encoding.
///
/// Fails if the structs do not parse, for example because of a malformed user-defined attribute.
pub(crate) fn package(
    emitter: &EmitSettings,
    package: &PackageSchema,
    schema: &Schema,
    structs: &str,
) -> syn::Result<String> {
    let mut file = structs::parse(structs)?;
    let mut scope = ModuleScope::of(&file.items);
    scope.extend(modules(emitter, package, schema));
    let module = naming::modules(&package.name).pop().unwrap_or_default();
    structs::mend(&mut file.items, &module, &scope);

    let mut items = TokenStream::new();
    let fingerprints = schema.fingerprints();
    for service in package.services.iter().filter(|service| emitter.is_here(&service.full_name)) {
        items.extend(methods::module(service, &package.name, emitter, &fingerprints));
        items.extend(server::module(service, &package.name, emitter));
        items.extend(client::module(service, &package.name, emitter));
        items.extend(mock::module(service, &package.name, emitter));
    }
    items.extend(topics::module(package, emitter));
    items.extend(codec::block(emitter, package, schema, &scope));
    items.extend(json::block(emitter, package, schema, &scope));
    items.extend(masks::block(emitter, package, &scope));
    items.extend(pages::block(emitter, package, schema, &scope));
    file.items.extend(syn::parse2::<File>(items).expect("generated code is valid Rust").items);
    Ok(rust::formatted(&file))
}

/// Returns the names of modules that prost does not generate: those of services and of nested packages.
fn modules(emitter: &EmitSettings, package: &PackageSchema, schema: &Schema) -> Vec<String> {
    let services = package.services.iter().filter(|service| emitter.is_here(&service.full_name));
    let services = services.flat_map(|service| {
        ["methods", "server", "client", "mock"].map(|side| naming::snake(&format!("{}_{side}", service.name)))
    });
    let own = naming::modules(&package.name);
    let others = schema.packages.iter().filter_map(|other| {
        let modules = naming::modules(&other.name);
        modules.starts_with(&own).then(|| modules.get(own.len()).cloned())?
    });
    services.chain(others).chain(masks::module_name(emitter, package)).collect()
}
