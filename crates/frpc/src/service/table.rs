//! The table of served methods, by operation and by path.

use std::{
    collections::HashSet,
    fmt, ptr,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use frpc_schema::FIRST_OPERATION;
use tracing::warn;

use crate::call::{meter::first_number, method::Method, status::Status};

/// The methods of several services. Cheap to clone.
///
/// Methods from several proto files may share an operation number. Each of them then gets a free number. Extended peers
/// look methods up by path and use the new number. For a plain peer, the shared number would be ambiguous, so it calls
/// [no method](AMBIGUOUS).
#[derive(Clone, Debug, Default)]
pub(crate) struct MethodTable(Arc<MethodLookup>);

#[derive(Clone, Debug, Default)]
struct MethodLookup {
    /// Sorted by operation. Includes the ambiguous operations.
    by_operation: Vec<MethodEntry>,
    /// Sorted by service and method name. Excludes the ambiguous operations.
    by_path: Vec<MethodEntry>,
    /// The encoded message descriptions of each operation, created when a peer first asks.
    descriptions: Vec<OnceLock<Option<Bytes>>>,
    /// Set after the warning about shared operations was logged.
    is_told: OnceLock<()>,
}

/// A method and its position in the service set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MethodEntry {
    pub(crate) method: &'static Method,
    pub(crate) target: MethodPosition,
    /// The operation that calls the method. It may differ from the one in the proto file.
    pub(crate) operation: u16,
    /// The number of its counters for calls over frisbee; see [`first_number`].
    pub(crate) number: u16,
}

/// The entry for an operation shared by several methods. No packet can call a bidirectional method, so a plain unary
/// call gets the error for it.
static AMBIGUOUS: Method = Method::bidirectional("", "", 0);

/// The position of a method in a [`ServiceSet`](super::set::ServiceSet).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MethodPosition {
    /// The index of the addition to the set.
    pub(crate) slot: u16,
    /// The index in the addition, if it is a list of services.
    pub(crate) service: u16,
    /// The index among the methods of the service.
    pub(crate) method: u16,
}

impl MethodTable {
    /// Adds the methods of one service.
    pub(crate) fn with(mut self, methods: &'static [Method], slot: usize, service: usize) -> Self {
        let tables = Arc::make_mut(&mut self.0);
        for (index, method) in methods.iter().enumerate() {
            let target = MethodPosition { slot: number(slot), service: number(service), method: number(index) };
            tables.by_path.push(MethodEntry { method, target, operation: method.operation, number: 0 });
        }
        tables.number();
        self
    }

    /// Returns the method with this operation, or an [ambiguous](MethodEntry::is_ambiguous) entry.
    #[inline]
    pub(crate) fn find(&self, operation: u16) -> Option<MethodEntry> {
        let entries = &self.0.by_operation;
        // Operations are usually contiguous, so the offset from the first one is a good guess.
        let guess = usize::from(operation.checked_sub(entries.first()?.operation)?);
        if let Some(entry) = entries.get(guess).filter(|entry| entry.operation == operation) {
            return Some(*entry);
        }
        let found = entries.binary_search_by_key(&operation, |entry| entry.operation);
        found.ok().map(|index| entries[index])
    }

    /// Returns the method with this path. A leading slash is optional.
    pub(crate) fn find_path(&self, path_text: &str) -> Option<MethodEntry> {
        let (service, name) = path_text.strip_prefix('/').unwrap_or(path_text).split_once('/')?;
        self.find_name(service, name)
    }

    /// Returns the method of a service by name.
    pub(crate) fn find_name(&self, service: &str, name: &str) -> Option<MethodEntry> {
        let by_path = &self.0.by_path;
        by_path.binary_search_by_key(&(service, name), |entry| path(entry.method)).ok().map(|index| by_path[index])
    }

    #[inline]
    pub(crate) fn contains(&self, operation: u16) -> bool {
        self.find(operation).is_some()
    }

    /// Returns the description of the messages of a method for peers. It is created once.
    pub(crate) fn description(&self, operation: u16, make: impl FnOnce() -> Option<Bytes>) -> Option<Bytes> {
        let MethodLookup { by_operation, descriptions, .. } = &*self.0;
        let index = by_operation.binary_search_by_key(&operation, |entry| entry.operation).ok()?;
        descriptions[index].get_or_init(make).clone()
    }

    /// Returns all methods, sorted by service and method name.
    pub(crate) fn by_path(&self) -> impl Iterator<Item = &'static Method> {
        self.0.by_path.iter().map(|entry| entry.method)
    }

    /// Returns all methods, sorted by the operation that calls them.
    pub(crate) fn methods(&self) -> impl Iterator<Item = MethodEntry> {
        self.0.by_operation.iter().copied().filter(|entry| !entry.is_ambiguous())
    }

    /// Checks for a method that was added twice.
    pub(crate) fn check(&self) -> Result<(), Collision> {
        match self.0.by_path.windows(2).find(|pair| path(pair[0].method) == path(pair[1].method)) {
            Some(pair) => Err(Collision { method: *pair[0].method }),
            None => Ok(()),
        }
    }

    /// Returns the error for an operation shared by several methods. Called for plain peers only, so the warning is
    /// logged only if such peers exist.
    pub(crate) fn ambiguity(&self, operation: u16) -> Option<Status> {
        self.find(operation).filter(|entry| entry.is_ambiguous())?;
        self.tell_of_ambiguities();
        let services = self.0.services(|method| method.operation == operation);
        Some(Status::unimplemented(format!(
            "plain peers cannot call operation {operation}, because it is shared by methods of {services}: {ADVICE}"
        )))
    }

    /// Logs, once, which services plain peers cannot call.
    fn tell_of_ambiguities(&self) {
        let shared: Vec<_> = self.0.by_operation.iter().filter(|entry| entry.is_ambiguous()).collect();
        let Some(first) = shared.first() else { return };
        if self.0.is_told.set(()).is_ok() {
            let services = self.0.services(|method| shared.iter().any(|entry| entry.operation == method.operation));
            let (operation, operations) = (first.operation, shared.len());
            warn!(
                operation,
                operations, "plain peers cannot call methods of {services} that share operations: {ADVICE}"
            );
        }
    }
}

impl MethodLookup {
    /// Assigns each method the operation that calls it.
    fn number(&mut self) {
        let mut own: Vec<u16> = self.by_path.iter().map(|entry| entry.method.operation).collect();
        own.sort_unstable();
        let shared: HashSet<u16> = own.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        // Counts down from the highest number: proto files, including files that plain peers may know, assign numbers
        // from the start.
        let mut free = (FIRST_OPERATION..=u16::MAX).rev().filter(|number| own.binary_search(number).is_err());
        self.by_path.sort_by_key(|entry| path(entry.method));
        self.by_operation.clear();
        for (position, entry) in self.by_path.iter_mut().enumerate() {
            entry.number = first_number(position);
            let operation = entry.method.operation;
            // More than 55,000 numbers exist, so this fallback is theoretical.
            let Some(operation) = (if shared.contains(&operation) { free.next() } else { Some(operation) }) else {
                continue;
            };
            entry.operation = operation;
            self.by_operation.push(*entry);
        }
        let target = MethodPosition::default();
        self.by_operation.extend(shared.iter().map(|&operation| MethodEntry {
            method: &AMBIGUOUS,
            target,
            operation,
            number: first_number(usize::MAX),
        }));
        self.by_operation.sort_by_key(|entry| entry.operation);
        self.descriptions = vec![OnceLock::new(); self.by_operation.len()];
        self.is_told = OnceLock::new();
    }

    /// Returns the names of the services with matching methods.
    fn services(&self, is_meant: impl Fn(&Method) -> bool) -> String {
        let mut names: Vec<_> = self
            .by_path
            .iter()
            .map(|entry| entry.method)
            .filter(|method| is_meant(method))
            .map(|method| method.service)
            .collect();
        // Sorted by path, so equal services are adjacent.
        names.dedup();
        names.join(" and ")
    }
}

impl MethodEntry {
    /// Returns `true` if several methods share the operation, so it calls none of them.
    pub(crate) fn is_ambiguous(self) -> bool {
        ptr::eq(self.method, &AMBIGUOUS)
    }
}

/// The advice for shared operations in errors and logs.
const ADVICE: &str =
    "assign other operations to one of their proto files with `first_operation` of frpc_build, on both sides";

fn path(method: &'static Method) -> (&'static str, &'static str) {
    (method.service, method.name)
}

/// Converts an index. Fewer operations than `u16` values exist, so a saturated index never belongs to a callable
/// method.
fn number(index: usize) -> u16 {
    u16::try_from(index).unwrap_or(u16::MAX)
}

/// The error for a service added twice to one side.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Collision {
    /// A method registered twice under its path.
    pub method: Method,
}

impl fmt::Display for Collision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was added twice: add each service only once", self.method)
    }
}

/// Same as [`Display`](fmt::Display), because `main` prints returned errors with `Debug`.
impl fmt::Debug for Collision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collision({self})")
    }
}

impl std::error::Error for Collision {}

#[cfg(test)]
mod tests {
    use super::*;

    const ECHO: &[Method] = &[Method::unary("echo.Echo", "Say", 10), Method::unary("echo.Echo", "Chat", 11)];
    const SHOP: &[Method] = &[Method::unary("shop.Shop", "Buy", 1000)];

    fn table() -> MethodTable {
        MethodTable::default().with(SHOP, 0, 0).with(ECHO, 1, 0)
    }

    #[test]
    fn a_method_is_found_by_its_operation() {
        for method in SHOP.iter().chain(ECHO) {
            assert_eq!(table().find(method.operation).unwrap().method, method);
        }
        for operation in [0, 9, 12, 999, 1001, u16::MAX] {
            assert!(table().find(operation).is_none(), "{operation}");
        }
    }

    #[test]
    fn a_method_is_found_by_its_path() {
        for method in SHOP.iter().chain(ECHO) {
            assert_eq!(table().find_path(&method.path()).unwrap().method, method);
            assert_eq!(table().find_path(&format!("/{method}")).unwrap().method, method);
        }
        for path in ["", "/", "echo.Echo", "echo.Echo/", "echo.Echo/say", "//echo.Echo/Say", "Echo/Say"] {
            assert!(table().find_path(path).is_none(), "{path}");
        }
    }

    #[test]
    fn a_target_contains_slot_and_method_index() {
        let target = table().find(11).unwrap().target;
        assert_eq!(target, MethodPosition { slot: 1, service: 0, method: 1 });
    }

    #[test]
    fn colliding_operations_are_reassigned() {
        const OTHER: &[Method] =
            &[Method::unary("other.Other", "Do", 11), Method::unary("other.Other", "Undo", u16::MAX)];
        let table = table().with(OTHER, 2, 0);
        assert!(table.check().is_ok());
        let numbers: Vec<_> = table.methods().map(|entry| (entry.operation, entry.method.name)).collect();
        assert_eq!(numbers, [(10, "Say"), (1000, "Buy"), (65_533, "Do"), (65_534, "Chat"), (65_535, "Undo")]);
        for (operation, name) in numbers {
            let entry = table.find(operation).unwrap();
            assert_eq!((entry.method.name, table.ambiguity(operation).is_none()), (name, true));
            assert_eq!(table.find_path(&entry.method.path()).unwrap().operation, operation);
        }
        assert_eq!(
            table.find_path("other.Other/Do").unwrap().target,
            MethodPosition { slot: 2, service: 0, method: 0 }
        );
        assert!(table.contains(11) && table.find(11).unwrap().is_ambiguous());
        let status = table.ambiguity(11).unwrap();
        assert!(
            status.message().contains("operation 11, because it is shared by methods of echo.Echo and other.Other:"),
            "{status}"
        );
    }

    #[test]
    fn adding_a_service_twice_is_a_collision() {
        let collision = table().with(ECHO, 2, 0).check().unwrap_err();
        assert_eq!(collision.to_string(), "echo.Echo/Chat was added twice: add each service only once");
        assert!(table().check().is_ok());
    }
}
