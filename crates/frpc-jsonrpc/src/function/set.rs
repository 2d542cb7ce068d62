//! Sets of functions.

use std::{collections::HashMap, fmt, sync::Arc};

use frpc::{Extensions, Head};

use super::{Context, Function};

/// A set of functions and their shared states. Cloning is cheap.
///
/// ```
/// use frpc_jsonrpc::{Functions, function};
///
/// #[function]
/// fn sum(a: i64, b: i64) -> i64 {
///     a + b
/// }
///
/// let functions = Functions::new().function(sum);
/// assert!(functions.find("sum").is_some());
/// ```
#[derive(Clone, Default)]
pub struct Functions(Arc<FunctionTable>);

#[derive(Clone, Default)]
struct FunctionTable {
    by_name: HashMap<String, Arc<dyn Function>>,
    states: Arc<Extensions>,
    /// The title and version of the set.
    about: Option<(String, String)>,
}

impl Functions {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a function.
    ///
    /// # Panics
    ///
    /// Panics if there is already a function with this name.
    #[must_use]
    pub fn function(mut self, function: impl Function) -> Self {
        let name = function.description().name().to_owned();
        let before = Arc::make_mut(&mut self.0).by_name.insert(name, Arc::new(function));
        if let Some(before) = before {
            panic!(
                "two functions have the name `{}`: rename one with `#[function(name = \"…\")]`",
                before.description().name()
            );
        }
        self
    }

    /// Adds a state for functions with a parameter of type `&T`. A previous state of the same type is replaced.
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(mut self, state: T) -> Self {
        Arc::make_mut(&mut Arc::make_mut(&mut self.0).states).insert(state);
        self
    }

    /// Sets the title and version shown in the OpenRPC [document](Self::openrpc).
    #[must_use]
    pub fn about(mut self, title: impl Into<String>, version: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.0).about = Some((title.into(), version.into()));
        self
    }

    pub(super) fn title_and_version(&self) -> (&str, &str) {
        self.0.about.as_ref().map_or(("functions", "0"), |(title, version)| (title, version))
    }

    /// Returns the function with this name.
    pub fn find(&self, name: &str) -> Option<&dyn Function> {
        self.0.by_name.get(name).map(|function| &**function)
    }

    /// Returns the functions, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Function> {
        self.sorted().map(|function| &**function)
    }

    /// Returns the functions, sorted by name, for shared ownership.
    pub(crate) fn sorted(&self) -> impl Iterator<Item = &Arc<dyn Function>> {
        let mut functions: Vec<_> = self.0.by_name.values().collect();
        functions.sort_unstable_by(|one, other| one.description().name().cmp(other.description().name()));
        functions.into_iter()
    }

    /// Creates the context of calls with `head`, for functions of this set.
    pub fn context(&self, head: Head) -> Context {
        Context::new(head, self.0.states.clone())
    }
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|function| function.description().name())).finish()
    }
}
