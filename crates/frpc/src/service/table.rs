//! The table of the methods of some services, by operation and by path.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;

use crate::call::method::Method;

/// The methods of some services. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct MethodTable(Arc<Tables>);

#[derive(Clone, Debug, Default)]
struct Tables {
    /// In the order of operations.
    by_operation: Vec<Entry>,
    /// Indexes of those, in the order of services and their methods' names.
    by_path: Vec<usize>,
    /// What peers are told of the messages of each, once one has asked.
    descriptions: Vec<OnceLock<Option<Bytes>>>,
}

/// A method, and where its service is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) method: &'static Method,
    pub(crate) target: Target,
}

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
            tables.by_operation.push(Entry { method, target });
        }
        tables.by_operation.sort_by_key(|entry| entry.method.operation);
        tables.descriptions = vec![OnceLock::new(); tables.by_operation.len()];
        let entries = &tables.by_operation;
        tables.by_path = (0..entries.len()).collect();
        tables.by_path.sort_by_key(|&index| path(entries[index].method));
        self
    }

    /// Returns the method with this operation.
    #[inline]
    pub(crate) fn find(&self, operation: u16) -> Option<Entry> {
        let entries = &self.0.by_operation;
        // Operations usually follow each other without a gap.
        let guess = usize::from(operation.checked_sub(entries.first()?.method.operation)?);
        if let Some(entry) = entries.get(guess).filter(|entry| entry.method.operation == operation) {
            return Some(*entry);
        }
        let found = entries.binary_search_by_key(&operation, |entry| entry.method.operation);
        found.ok().map(|index| entries[index])
    }

    /// Returns the method with this path, with or without a slash in front.
    pub(crate) fn find_path(&self, path_text: &str) -> Option<Entry> {
        let (service, name) = path_text.strip_prefix('/').unwrap_or(path_text).split_once('/')?;
        let Tables { by_operation, by_path, .. } = &*self.0;
        let found = by_path.binary_search_by_key(&(service, name), |&index| path(by_operation[index].method));
        found.ok().map(|place| by_operation[by_path[place]])
    }

    #[inline]
    pub(crate) fn contains(&self, operation: u16) -> bool {
        self.find(operation).is_some()
    }

    /// Returns what peers are told of the messages of the method with this operation, which is made once.
    pub(crate) fn description(&self, operation: u16, make: impl FnOnce() -> Option<Bytes>) -> Option<Bytes> {
        let Tables { by_operation, descriptions, .. } = &*self.0;
        let index = by_operation.binary_search_by_key(&operation, |entry| entry.method.operation).ok()?;
        descriptions[index].get_or_init(make).clone()
    }

    /// Returns all methods, in the order of their operations.
    pub(crate) fn methods(&self) -> impl Iterator<Item = &'static Method> {
        self.0.by_operation.iter().map(|entry| entry.method)
    }

    /// Finds two methods that the wire of frisbee cannot tell apart.
    pub(crate) fn check(&self) -> Result<(), Collision> {
        let operation = |entry: &Entry| entry.method.operation;
        match self.0.by_operation.windows(2).find(|pair| operation(&pair[0]) == operation(&pair[1])) {
            Some(pair) => Err(Collision { first: *pair[0].method, second: *pair[1].method }),
            None => Ok(()),
        }
    }
}

fn path(method: &'static Method) -> (&'static str, &'static str) {
    (method.service, method.name)
}

/// Returns an index as a number. There are fewer operations than it can count, so no more methods are ever found.
fn number(index: usize) -> u16 {
    u16::try_from(index).unwrap_or(u16::MAX)
}

/// Two methods of one side have the same operation, so nothing on the wire tells them apart.
///
/// Methods are numbered through each proto file, from 10 on. Give the file of one of them a range of its own, in the build
/// scripts of both sides: `frpc_build::configure().first_operation("orders.proto", 1000)`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Collision {
    /// One of them.
    pub first: Method,
    /// The other.
    pub second: Method,
}

impl fmt::Display for Collision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, second } = self;
        write!(
            f,
            "{}/{} and {}/{} are both operation {}: move the methods of one proto file with \
             frpc_build's `first_operation` on both sides",
            first.service, first.name, second.service, second.name, first.operation
        )
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
    fn methods_with_the_same_operation_collide() {
        let other = const { &[Method::unary("other.Other", "Do", 11)] };
        let collision = table().with(other, 2, 0).check().unwrap_err();
        assert_eq!((collision.first.name, collision.second.name), ("Chat", "Do"));
        assert!(table().check().is_ok());
    }
}
