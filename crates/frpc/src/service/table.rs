//! The table of the methods of some services, by operation and by path.

use std::{
    collections::HashSet,
    fmt, ptr,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use frpc_schema::FIRST_OPERATION;
use tracing::warn;

use crate::call::{method::Method, status::Status};

/// The methods of some services. Cheap to clone.
///
/// Methods of several proto files may have the same operation. Then each gets a free one, by which extended peers call it: they
/// look methods up by their paths. A plain peer means one of them by the operation that they share, and nobody knows which, so
/// that one calls [none](AMBIGUOUS).
#[derive(Clone, Debug, Default)]
pub(crate) struct MethodTable(Arc<Tables>);

#[derive(Clone, Debug, Default)]
struct Tables {
    /// In the order of their operations, with those that several methods share.
    by_operation: Vec<Entry>,
    /// Without those, in the order of services and their methods' names.
    by_path: Vec<Entry>,
    /// The words about the messages of each operation, once a peer has asked.
    descriptions: Vec<OnceLock<Option<Bytes>>>,
    /// Set once the log was told of operations that several methods share.
    is_told: OnceLock<()>,
}

/// A method, and where its service is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) method: &'static Method,
    pub(crate) target: Target,
    /// The operation that calls it, which may be another than that of its proto file.
    pub(crate) operation: u16,
}

/// Stands in the place of a method for an operation that several methods share. Its kind is none that a packet calls, which is
/// how a plain unary call comes to look.
static AMBIGUOUS: Method = Method::bidirectional("", "", 0);

/// The place of a method within a [`ServiceSet`](super::set::ServiceSet).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The addition to the set that has it.
    pub(crate) slot: u16,
    /// The service of that addition, if it is a list.
    pub(crate) service: u16,
    /// The index among the methods of the service.
    pub(crate) method: u16,
}

impl MethodTable {
    /// Returns the table with the methods of one service more.
    pub(crate) fn with(mut self, methods: &'static [Method], slot: usize, service: usize) -> Self {
        let tables = Arc::make_mut(&mut self.0);
        for (index, method) in methods.iter().enumerate() {
            let target = Target { slot: number(slot), service: number(service), method: number(index) };
            tables.by_path.push(Entry { method, target, operation: method.operation });
        }
        tables.number();
        self
    }

    /// Returns the method with this operation, or an entry that [calls none](Entry::is_ambiguous).
    #[inline]
    pub(crate) fn find(&self, operation: u16) -> Option<Entry> {
        let entries = &self.0.by_operation;
        // Operations usually follow each other without a gap.
        let guess = usize::from(operation.checked_sub(entries.first()?.operation)?);
        if let Some(entry) = entries.get(guess).filter(|entry| entry.operation == operation) {
            return Some(*entry);
        }
        let found = entries.binary_search_by_key(&operation, |entry| entry.operation);
        found.ok().map(|index| entries[index])
    }

    /// Returns the method with this path, with or without a slash in front.
    pub(crate) fn find_path(&self, path_text: &str) -> Option<Entry> {
        let (service, name) = path_text.strip_prefix('/').unwrap_or(path_text).split_once('/')?;
        self.find_name(service, name)
    }

    /// Returns the method with this name of a service.
    pub(crate) fn find_name(&self, service: &str, name: &str) -> Option<Entry> {
        let by_path = &self.0.by_path;
        by_path.binary_search_by_key(&(service, name), |entry| path(entry.method)).ok().map(|index| by_path[index])
    }

    #[inline]
    pub(crate) fn contains(&self, operation: u16) -> bool {
        self.find(operation).is_some()
    }

    /// Returns what peers are told of the messages of the method with this operation, which is made once.
    pub(crate) fn description(&self, operation: u16, make: impl FnOnce() -> Option<Bytes>) -> Option<Bytes> {
        let Tables { by_operation, descriptions, .. } = &*self.0;
        let index = by_operation.binary_search_by_key(&operation, |entry| entry.operation).ok()?;
        descriptions[index].get_or_init(make).clone()
    }

    /// Returns all methods, in the order of the operations that call them.
    pub(crate) fn methods(&self) -> impl Iterator<Item = Entry> {
        self.0.by_operation.iter().copied().filter(|entry| !entry.is_ambiguous())
    }

    /// Finds a method that is there twice.
    pub(crate) fn check(&self) -> Result<(), Collision> {
        match self.0.by_path.windows(2).find(|pair| path(pair[0].method) == path(pair[1].method)) {
            Some(pair) => Err(Collision { method: *pair[0].method }),
            None => Ok(()),
        }
    }

    /// Returns why an operation calls no method, if several share it. A plain peer has called it then, and the log is told once: who has
    /// no such peers has nothing to mend.
    pub(crate) fn ambiguity(&self, operation: u16) -> Option<Status> {
        self.find(operation).filter(|entry| entry.is_ambiguous())?;
        self.tell_of_ambiguities();
        let services = self.0.services(|method| method.operation == operation);
        Some(Status::unimplemented(format!(
            "plain peers cannot call operation {operation}, which is that of methods of {services}: {ADVICE}"
        )))
    }

    /// Tells the log, once, of services that plain peers cannot call.
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

impl Tables {
    /// Gives each method the operation that calls it.
    fn number(&mut self) {
        let mut own: Vec<u16> = self.by_path.iter().map(|entry| entry.method.operation).collect();
        own.sort_unstable();
        let shared: HashSet<u16> = own.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        // From the end: files that grow, and other files that plain peers may know, number their methods from the start.
        let mut free = (FIRST_OPERATION..=u16::MAX).rev().filter(|number| own.binary_search(number).is_err());
        self.by_path.sort_by_key(|entry| path(entry.method));
        self.by_operation.clear();
        for entry in &mut self.by_path {
            let operation = entry.method.operation;
            // There are 55,000 and more.
            let Some(operation) = (if shared.contains(&operation) { free.next() } else { Some(operation) }) else {
                continue;
            };
            entry.operation = operation;
            self.by_operation.push(*entry);
        }
        let target = Target::default();
        self.by_operation.extend(shared.iter().map(|&operation| Entry { method: &AMBIGUOUS, target, operation }));
        self.by_operation.sort_by_key(|entry| entry.operation);
        self.descriptions = vec![OnceLock::new(); self.by_operation.len()];
        self.is_told = OnceLock::new();
    }

    /// Returns the names of the services that have such methods.
    fn services(&self, is_meant: impl Fn(&Method) -> bool) -> String {
        let mut names: Vec<_> = self
            .by_path
            .iter()
            .map(|entry| entry.method)
            .filter(|method| is_meant(method))
            .map(|method| method.service)
            .collect();
        // In the order of paths, so in that of services.
        names.dedup();
        names.join(" and ")
    }
}

impl Entry {
    /// Tells whether several methods share the operation, which therefore calls none of them.
    pub(crate) fn is_ambiguous(self) -> bool {
        ptr::eq(self.method, &AMBIGUOUS)
    }
}

/// Says how to mend operations that methods share.
const ADVICE: &str =
    "give one of their proto files a range of its own with frpc_build's `first_operation`, on both sides";

fn path(method: &'static Method) -> (&'static str, &'static str) {
    (method.service, method.name)
}

/// Returns an index as a number. There are fewer operations than it can count, so no more methods are ever found.
fn number(index: usize) -> u16 {
    u16::try_from(index).unwrap_or(u16::MAX)
}

/// A method is there twice on one side: the same service was added twice.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Collision {
    /// The method, which no path tells apart.
    pub method: Method,
}

impl fmt::Display for Collision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is there twice: add each service once", self.method)
    }
}

/// As [`Display`](fmt::Display), because this is what a `main` that returns the error prints.
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
    fn a_target_tells_the_addition_and_the_index_of_the_method() {
        let target = table().find(11).unwrap().target;
        assert_eq!(target, Target { slot: 1, service: 0, method: 1 });
    }

    #[test]
    fn methods_with_the_same_operation_get_others_and_theirs_calls_none() {
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
        assert_eq!(table.find_path("other.Other/Do").unwrap().target, Target { slot: 2, service: 0, method: 0 });
        assert!(table.contains(11) && table.find(11).unwrap().is_ambiguous());
        let status = table.ambiguity(11).unwrap();
        assert!(
            status.message().contains("operation 11, which is that of methods of echo.Echo and other.Other:"),
            "{status}"
        );
    }

    #[test]
    fn a_service_that_is_added_twice_collides() {
        let collision = table().with(ECHO, 2, 0).check().unwrap_err();
        assert_eq!(collision.to_string(), "echo.Echo/Chat is there twice: add each service once");
        assert!(table().check().is_ok());
    }
}
