//! Names declared by a module, and shorter paths for names free of conflicts.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashSet},
};

use proc_macro2::TokenStream;
use quote::quote;
use syn::Item;

use super::rust::tokens;

/// Types and modules declared by a module. They shadow crates and names of Rust's prelude.
#[derive(Debug, Default)]
pub(super) struct ModuleScope(HashSet<String>);

impl ModuleScope {
    /// Creates the scope of a module with these items.
    pub(super) fn of(items: &[Item]) -> Self {
        let name = |item: &Item| match item {
            Item::Struct(item) => Some(item.ident.to_string()),
            Item::Enum(item) => Some(item.ident.to_string()),
            Item::Mod(item) => Some(item.ident.to_string()),
            _ => None,
        };
        Self(items.iter().filter_map(name).collect())
    }

    /// Adds declared names.
    pub(super) fn extend(&mut self, names: impl IntoIterator<Item = String>) {
        self.0.extend(names);
    }

    /// Shortens a path with a leading `::`. Names of the prelude lose their whole path, and other paths lose the `::`.
    /// Shadowed names and other paths stay unchanged.
    pub(super) fn short(&self, path: &str) -> String {
        let (path, generics) = path.split_at(path.find('<').unwrap_or(path.len()));
        let prelude = PRELUDE.iter().find(|(full, _)| *full == path).map(|(_, name)| *name);
        let from_crate = || {
            let rest = path.strip_prefix("::")?;
            self.is_free(rest.split("::").next()?).then_some(rest)
        };
        let short = prelude.filter(|name| self.is_free(name)).or_else(from_crate).unwrap_or(path);
        format!("{short}{generics}")
    }

    /// Appends underscores to a name until it is free.
    pub(super) fn free(&self, name: &str) -> String {
        let mut name = name.to_owned();
        while !self.is_free(&name) {
            name.push('_');
        }
        name
    }

    fn is_free(&self, name: &str) -> bool {
        !self.0.contains(name)
    }
}

/// Names imported by `use` at the top of a module or block.
pub(super) struct ModuleImports<'a> {
    scope: &'a ModuleScope,
    /// Imported names, each with its root (a crate or a `super` path) and the module below it.
    names: RefCell<BTreeMap<String, (String, &'static str)>>,
}

impl<'a> ModuleImports<'a> {
    pub(super) fn new(scope: &'a ModuleScope) -> Self {
        Self { scope, names: RefCell::default() }
    }

    /// Imports an item of a crate and returns its name. Returns the full path if the name is taken.
    pub(super) fn name(&self, krate: &str, module: &'static str, name: &str) -> TokenStream {
        if self.scope.is_free(name) {
            self.add(krate, module, name);
            return tokens(name);
        }
        let modules = [krate, module, name].into_iter().filter(|module| !module.is_empty());
        tokens(&self.scope.short(&format!("::{}", modules.collect::<Vec<_>>().join("::"))))
    }

    /// Returns the name to use for a type with this path. Imports it if the path starts with `super::` and the name is
    /// free.
    pub(super) fn type_at(&self, path: &str) -> TokenStream {
        let local = path.rsplit_once("::").filter(|_| path.starts_with("super::"));
        let Some((module, name)) = local.filter(|(_, name)| self.scope.is_free(name) && !RESERVED.contains(name))
        else {
            return tokens(&self.scope.short(path));
        };
        let is_other = |(root, inner): &(String, &str)| root != module || !inner.is_empty();
        if self.names.borrow().get(name).is_some_and(is_other) {
            return tokens(path);
        }
        self.add(module, "", name);
        tokens(name)
    }

    /// Imports an item. The caller guarantees a free name. Accepts the form `Trait as _`.
    pub(super) fn add(&self, root: &str, module: &'static str, name: &str) {
        self.names.borrow_mut().insert(name.to_owned(), (root.to_owned(), module));
    }

    /// Returns the `use` items, one per root.
    pub(super) fn statements(&self) -> TokenStream {
        let names = self.names.borrow();
        // Sorted like rustfmt: `super` paths come before crates.
        let mut roots: BTreeMap<(bool, &str), BTreeMap<&str, Vec<TokenStream>>> = BTreeMap::new();
        for (name, (root, module)) in names.iter() {
            let modules = roots.entry((!root.starts_with("super"), root)).or_default();
            modules.entry(module).or_default().push(tokens(name));
        }
        let statements = roots.into_iter().map(|((is_crate, root), modules)| {
            let root = tokens(&if is_crate { self.scope.short(&format!("::{root}")) } else { root.to_owned() });
            let is_one = modules.len() == 1 && modules.values().all(|names| names.len() == 1);
            let trees = modules.into_iter().map(|(module, names)| match (module, &names[..]) {
                ("", names) => quote! { #(#names),* },
                (module, [name]) => {
                    let module = tokens(module);
                    quote! { #module::#name }
                }
                (module, names) => {
                    let module = tokens(module);
                    quote! { #module::{#(#names),*} }
                }
            });
            if is_one {
                quote! { use #root::#(#trees)*; }
            } else {
                quote! { use #root::{#(#trees),*}; }
            }
        });
        quote! { #(#statements)* }
    }
}

/// Names with a fixed meaning in the modules of services.
const RESERVED: &[&str] = &[
    "Answer",
    "Arc",
    "Call",
    "Channel",
    "Clone",
    "ConnectError",
    "Future",
    "IntoRequest",
    "IntoStreamingRequest",
    "Method",
    "Raw",
    "Request",
    "Response",
    "Result",
    "Send",
    "Service",
    "Status",
    "Streaming",
    "String",
    "Sync",
    "T",
    "ToTarget",
    "Vec",
];

/// Names of Rust's prelude, by absolute path.
const PRELUDE: &[(&str, &str)] = &[
    ("::core::clone::Clone", "Clone"),
    ("::core::marker::Send", "Send"),
    ("::core::marker::Sync", "Sync"),
    ("::core::option::Option", "Option"),
    ("::core::result::Result", "Result"),
    ("::frpc::prost::alloc::boxed::Box", "Box"),
    ("::frpc::prost::alloc::string::String", "String"),
    ("::frpc::prost::alloc::vec::Vec", "Vec"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prelude_names_are_unqualified_unless_shadowed() {
        let mut scope = ModuleScope::default();
        assert_eq!(scope.short("::frpc::prost::alloc::vec::Vec<u8>"), "Vec<u8>");
        assert_eq!(scope.short("::core::option::Option"), "Option");
        scope.extend(["Vec".to_owned()]);
        assert_eq!(scope.short("::frpc::prost::alloc::vec::Vec<u8>"), "frpc::prost::alloc::vec::Vec<u8>");
        scope.extend(["frpc".to_owned()]);
        assert_eq!(scope.short("::frpc::prost::alloc::vec::Vec<u8>"), "::frpc::prost::alloc::vec::Vec<u8>");
        assert_eq!(scope.short("::core::option::Option"), "Option");
    }

    #[test]
    fn relative_paths_are_unchanged() {
        let scope = ModuleScope::default();
        for path in ["Order", "super::item::Item", "self::S", "crate::items::Item", "()", "u32"] {
            assert_eq!(scope.short(path), path);
        }
    }

    #[test]
    fn only_requested_names_without_conflicts_are_imported() {
        let mut scope = ModuleScope::default();
        scope.extend(["Kind".to_owned(), "Echo".to_owned()]);
        let imports = ModuleImports::new(&scope);
        assert_eq!(imports.name("frpc", "codec", "Kind").to_string(), "frpc :: codec :: Kind");
        assert_eq!(imports.name("frpc", "codec", "Reader").to_string(), "Reader");
        imports.add("frpc", "codec", "At as _");
        imports.name("frpc", "", "Request");
        imports.name("std", "sync", "Arc");
        let types = ["super::Words", "super::Echo", "super::Request", "super::super::Units", "super::Units", "String"];
        let types = types.map(|path| imports.type_at(path).to_string());
        assert_eq!(types, ["Words", "super :: Echo", "super :: Request", "Units", "super :: Units", "String"]);
        let expected = "use super :: Words ; use super :: super :: Units ; \
                        use frpc :: { Request , codec :: { At as _ , Reader } } ; use std :: sync :: Arc ;";
        assert_eq!(imports.statements().to_string(), expected);
    }
}
