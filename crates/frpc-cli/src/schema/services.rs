//! Services and methods by name.

use bytes::Bytes;
use frpc::MethodKind;
use frpc_dynamic::{DynamicSchema, SchemaLayouts, SchemaOptions};
use prost_reflect::{DescriptorPool, MethodDescriptor, ServiceDescriptor};

use super::files;
use crate::{
    failure::{CommandError, Result},
    suggest,
};

/// Services and their messages.
#[derive(Clone, Debug)]
pub(crate) struct ServerSchema {
    types: DynamicSchema,
    /// The callable services, sorted by name.
    services: Vec<ServiceDescriptor>,
    /// The names of services without descriptors.
    unknown: Vec<String>,
}

impl ServerSchema {
    pub(super) fn new(types: DynamicSchema) -> Self {
        let mut services: Vec<_> = types.pool().services().collect();
        services.sort_by(|one, other| one.full_name().cmp(other.full_name()));
        Self { types, services, unknown: Vec::new() }
    }

    /// Reads encoded descriptor sets. `from` names them in errors.
    pub(crate) fn of_descriptors(sets: &[Bytes], from: &str) -> Result<Self> {
        let mut types = DynamicSchema::new();
        for set in sets {
            files::add_descriptors(&mut types, set, from)?;
        }
        Ok(Self::new(types))
    }

    pub(super) fn with_unknown(self, unknown: Vec<String>) -> Self {
        Self { unknown, ..self }
    }

    /// Returns all types.
    pub(crate) fn pool(&self) -> &DescriptorPool {
        self.types.pool()
    }

    /// Returns all files as an encoded descriptor set.
    pub(crate) fn encode(&self) -> Vec<u8> {
        self.types.encode()
    }

    pub(crate) fn services(&self) -> &[ServiceDescriptor] {
        &self.services
    }

    pub(crate) fn unknown_services(&self) -> &[String] {
        &self.unknown
    }

    /// Finds a service by its full name, or by its last part if unambiguous.
    pub(crate) fn service(&self, name: &str) -> Option<&ServiceDescriptor> {
        let exact = self.services.iter().find(|service| service.full_name() == name);
        exact.or_else(|| one_of(self.services.iter().filter(|service| service.name() == name)))
    }

    /// Finds a method by `package.Service/Method`. A dot may replace the slash, and the package or service may be
    /// omitted if the method is unambiguous.
    pub(crate) fn method(&self, wanted: &str) -> Result<MethodDescriptor> {
        let (service, name) = split(wanted);
        let in_service = |service: &ServiceDescriptor| service.methods().find(|method| method.name() == name);
        let found = match service {
            Some(service) => self.service(service).and_then(in_service),
            None => {
                let all: Vec<_> = self.services.iter().filter_map(in_service).collect();
                if all.len() > 1 {
                    let paths: Vec<_> = all.iter().map(path).collect();
                    return Err(CommandError::new(format!("several services have a method {name}"))
                        .with_try(paths.join(" or ")));
                }
                all.into_iter().next()
            }
        };
        found.ok_or_else(|| self.missing(wanted, service))
    }

    /// Returns the plain fRPC layouts for the file of a method. Without `first_operation`, methods are numbered as in
    /// Go.
    pub(crate) fn layouts(&self, method: &MethodDescriptor, first_operation: Option<u16>) -> Result<SchemaLayouts> {
        let (file, mut options) = (method.parent_file(), SchemaOptions::default());
        if let Some(number) = first_operation {
            options.first_operations.insert(file.name().to_owned(), number);
        }
        self.types
            .layouts(file.package_name(), &options)
            .map_err(|error| CommandError::new(format!("plain fRPC cannot represent this schema: {error}")))
    }

    fn missing(&self, wanted: &str, service: Option<&str>) -> CommandError {
        let failure = CommandError::new(format!("there is no method {wanted}"));
        if let Some(service) = service.and_then(|name| self.service(name)) {
            let names: Vec<_> = service.methods().map(|method| method.name().to_owned()).collect();
            let (_, name) = split(wanted);
            let like = suggest::closest(name, names.iter().map(String::as_str));
            return match like.first() {
                Some(name) => failure.with_try(format!("{}/{name}", service.full_name())),
                None => failure.with_try(format!("{} has {}", service.full_name(), names.join(", "))),
            };
        }
        let paths: Vec<_> =
            self.services.iter().flat_map(ServiceDescriptor::methods).map(|method| path(&method)).collect();
        match suggest::probably(wanted, paths.iter().map(String::as_str)) {
            Some(advice) => failure.with_try(advice),
            None if paths.is_empty() => failure.with_try("`frpc list` with the same address or files"),
            None => failure.with_try(format!("one of {}", shortened(&paths))),
        }
    }
}

fn one_of<T>(mut found: impl Iterator<Item = T>) -> Option<T> {
    let first = found.next();
    first.filter(|_| found.next().is_none())
}

/// Returns the first few names, for advice.
fn shortened(names: &[String]) -> String {
    const MOST: usize = 8;
    let shown = names[..names.len().min(MOST)].join(", ");
    if names.len() > MOST { format!("{shown} and {} more", names.len() - MOST) } else { shown }
}

/// Splits `package.Service/Method` or `package.Service.Method`.
pub(crate) fn split(method: &str) -> (Option<&str>, &str) {
    let method = method.strip_prefix('/').unwrap_or(method);
    match method.rsplit_once('/').or_else(|| method.rsplit_once('.')) {
        Some((service, name)) => (Some(service), name),
        None => (None, method),
    }
}

/// Returns the path of a method as `package.Service/Method`.
pub(crate) fn path(method: &MethodDescriptor) -> String {
    format!("{}/{}", method.parent_service().full_name(), method.name())
}

pub(crate) fn kind(method: &MethodDescriptor) -> MethodKind {
    match (method.is_client_streaming(), method.is_server_streaming()) {
        (false, false) => MethodKind::Unary,
        (false, true) => MethodKind::ServerStreaming,
        (true, false) => MethodKind::ClientStreaming,
        (true, true) => MethodKind::Bidirectional,
    }
}
