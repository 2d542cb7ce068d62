//! Callable methods by name: functions, methods of services, and aliases for both.

use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasherDefault, Hasher},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use frpc::{Endpoint, Method, MethodHandle, RpcSystem, Status, prost_types::FileDescriptorSet};
use frpc_json::{DEPTH_MAX, Scanner, text::put_string};
use tracing::warn;

use crate::function::{DiscoverFunction, Function, Functions};

/// The methods of a server by name, immutable after construction.
pub(crate) struct MethodNames {
    by_name: HashMap<Box<str>, CallTarget, BuildHasherDefault<NameHasher>>,
}

/// The callee for a method name.
#[derive(Clone)]
pub(crate) enum CallTarget {
    /// A function on a server without layers.
    Function(Arc<dyn Function>),
    /// A function on a server with layers. Its calls go through them.
    Layered {
        function: Arc<dyn Function>,
        /// The method presented to the layers, with the name of the function and an empty service name.
        method: &'static Method,
    },
    Service(Arc<ServiceMethod>),
    /// The built-in method for ending a subscription.
    Unsubscribe,
}

/// A method of a service.
pub(crate) struct ServiceMethod {
    pub(crate) found: MethodHandle,
    /// The names of the request's fields in order, found at the first call with positional params. `None` if they are
    /// unknown.
    fields: OnceLock<Option<Vec<String>>>,
}

impl MethodNames {
    /// Collects all names. The first entry for a name wins, in this order: functions, paths, paths with a dot, and
    /// names without the package if they are unambiguous. Aliases come last and replace existing entries.
    pub(crate) fn new(functions: &Functions, endpoint: &Endpoint, aliases: &[(String, String)]) -> Self {
        let mut by_name = HashMap::<Box<str>, CallTarget, _>::default();
        for function in functions.sorted() {
            by_name.insert(function.description().name().into(), CallTarget::of_function(function.clone(), endpoint));
        }
        let discover = CallTarget::of_function(Arc::new(DiscoverFunction::of(functions)), endpoint);
        by_name.insert(DiscoverFunction::NAME.into(), discover);
        // `None` for names shared by several services.
        let mut short = HashMap::<String, Option<CallTarget>>::new();
        for method in endpoint.methods() {
            let Some(found) = endpoint.find(&method.path()) else { continue };
            let found = found.over(RpcSystem::JsonRpc);
            let target = CallTarget::Service(Arc::new(ServiceMethod { found, fields: OnceLock::new() }));
            for separator in ['/', '.'] {
                let name = format!("{}{separator}{}", method.service, method.name);
                by_name.entry(name.into()).or_insert_with(|| target.clone());
            }
            if let Some((_, service)) = method.service.rsplit_once('.') {
                let name = format!("{service}.{}", method.name);
                short.entry(name).and_modify(|target| *target = None).or_insert(Some(target));
            }
        }
        for (name, target) in short {
            if let Some(target) = target {
                by_name.entry(name.into()).or_insert(target);
            }
        }
        for name in ["unsubscribe", "rpc.unsubscribe"] {
            by_name.entry(name.into()).or_insert(CallTarget::Unsubscribe);
        }
        for (alias, name) in aliases {
            match by_name.get(&**name).cloned() {
                Some(target) => drop(by_name.insert(alias.as_str().into(), target)),
                None => warn!(alias, method = name, "ignored an alias for an unknown method"),
            }
        }
        Self { by_name }
    }

    #[inline]
    pub(crate) fn find(&self, name: &str) -> Option<&CallTarget> {
        self.by_name.get(name).or_else(|| name.ends_with(UNSUBSCRIBE).then_some(&CallTarget::Unsubscribe))
    }
}

impl CallTarget {
    fn of_function(function: Arc<dyn Function>, endpoint: &Endpoint) -> Self {
        if !endpoint.has_layers() {
            return Self::Function(function);
        }
        let method = method_of_function(function.description().name());
        Self::Layered { function, method }
    }
}

/// Returns the method that represents functions of this name. It is leaked, once per name and process, because layers
/// expect a static method.
fn method_of_function(name: &str) -> &'static Method {
    static KNOWN: Mutex<Vec<&'static Method>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(method) = known.iter().find(|method| method.name == name) {
        return method;
    }
    let method: &'static Method = Box::leak(Box::new(Method::unary("", name.to_owned().leak(), 0)));
    known.push(method);
    method
}

/// The suffix of unsubscribe methods in go-ethereum's naming scheme.
const UNSUBSCRIBE: &str = "_unsubscribe";

impl ServiceMethod {
    /// Returns the request for `params`: an object is the message itself, an array contains its fields in order.
    pub(crate) fn request(&self, params: Option<&str>) -> Result<Vec<u8>, Status> {
        let Some(params) = params else {
            return Ok(if self.takes_any_value() { b"[]".to_vec() } else { b"{}".to_vec() });
        };
        if params.starts_with('{') || self.takes_any_value() {
            return Ok(params.into());
        }
        self.request_of_list(params)
    }

    /// Returns `true` if the request type is any JSON value, so that an array is the request itself.
    fn takes_any_value(&self) -> bool {
        let types = self.found.method().types;
        types.is_some_and(|types| matches!(types.request.name, "google.protobuf.Value" | "google.protobuf.ListValue"))
    }

    fn request_of_list(&self, params: &str) -> Result<Vec<u8>, Status> {
        let method = self.found.method();
        let fields = self.fields.get_or_init(|| fields_of(method)).as_deref();
        let fields = fields.ok_or_else(|| {
            Status::invalid_argument(format!("the order of the fields of {method} is unknown: pass the params by name"))
        })?;
        let mut request = vec![b'{'];
        let mut scanner = Scanner::new(params, DEPTH_MAX);
        let broken = |fault| Status::invalid_argument(format!("params: {fault}"));
        scanner.peek();
        let mut is_more = scanner.enter(b']').map_err(broken)?;
        let mut names = fields.iter();
        while is_more {
            let Some(name) = names.next() else {
                let (len, names) = (fields.len(), fields.join(", "));
                return Err(Status::invalid_argument(format!("{method} takes at most {len} params: {names}")));
            };
            if request.len() > 1 {
                request.push(b',');
            }
            put_string(&mut request, name);
            request.push(b':');
            request.extend_from_slice(scanner.value().map_err(broken)?.as_bytes());
            is_more = scanner.is_more(b']').map_err(broken)?;
        }
        request.push(b'}');
        Ok(request)
    }
}

/// Returns the names of the request's fields in the order of the proto file.
fn fields_of(method: &Method) -> Option<Vec<String>> {
    use frpc::prost::Message;

    let request = method.types?.request;
    let files = FileDescriptorSet::decode(request.descriptors).ok()?;
    let message = files.file.iter().find_map(|file| {
        let name = match file.package() {
            "" => request.name,
            package => request.name.strip_prefix(package)?.strip_prefix('.')?,
        };
        let mut names = name.split('.');
        let first = names.next()?;
        let outer = file.message_type.iter().find(|message| message.name() == first)?;
        names.try_fold(outer, |outer, name| outer.nested_type.iter().find(|message| message.name() == name))
    })?;
    Some(message.field.iter().map(|field| field.name().to_owned()).collect())
}

impl fmt::Debug for MethodNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.by_name.keys()).finish()
    }
}

/// A fast hasher for method names. Peers choose the lookups but not the entries, so they gain nothing from collisions.
#[derive(Clone, Copy, Debug)]
struct NameHasher(u64);

impl Default for NameHasher {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for NameHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut add = |word: u64| self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
        words.iter().for_each(|word| add(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| add(u64::from(*byte)));
    }

    #[inline]
    fn finish(&self) -> u64 {
        // The table selects buckets by the lowest bits. The multiplication mixes the highest bits best, so fold them in.
        self.0 ^ (self.0 >> 32)
    }
}
