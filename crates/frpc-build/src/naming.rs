//! Rust names for proto declarations: the same identifiers and paths as prost-build generates.
//!
//! Full proto names have no leading dot (`shop.Order.Item`), except names that users write in options. A package
//! becomes a module. A message with nested types or oneofs becomes a type and a module. Every generated path starts at
//! the module of its package.

use std::{collections::HashMap, iter};

use heck::{ToShoutySnakeCase, ToSnakeCase, ToUpperCamelCase};

/// Returns the identifier of a field or module.
pub(crate) fn snake(name: &str) -> String {
    usable(name.to_snake_case())
}

/// Returns the identifier of a type or enum variant.
pub(crate) fn upper_camel(name: &str) -> String {
    usable(name.to_upper_camel_case())
}

/// Returns the identifier of an enum variant, without the enum name as prost removes it.
pub(crate) fn variant(of: &str, value: &str) -> String {
    let (of, value) = (upper_camel(of), upper_camel(value));
    let rest = value.strip_prefix(&of).filter(|rest| rest.starts_with(char::is_uppercase));
    usable(rest.unwrap_or(&value).to_owned())
}

/// Returns the identifier of a constant.
pub(crate) fn shouty(name: &str) -> String {
    usable(name.to_shouty_snake_case())
}

/// Returns the identifier of a method, on both sides. Avoids the names of the fixed client functions.
pub(crate) fn method(name: &str) -> String {
    let own = snake(name);
    if TAKEN_FUNCTIONS.contains(&own.as_str()) { own + "_" } else { own }
}

/// Returns the identifier of a oneof type. `siblings` are the types declared in the same message.
pub(crate) fn oneof_type<'a>(name: &str, mut siblings: impl Iterator<Item = &'a str>) -> String {
    let own = upper_camel(name);
    if siblings.any(|sibling| upper_camel(sibling) == own) { own + "OneOf" } else { own }
}

/// Returns the nested modules of a package.
pub(crate) fn modules(package: &str) -> Vec<String> {
    package.split('.').filter(|part| !part.is_empty()).map(snake).collect()
}

/// Returns the name of a package's code file, as included by `frpc::include_proto!`.
pub(crate) fn file(package: &str) -> String {
    if package.is_empty() { "_.rs".to_owned() } else { format!("{package}.rs") }
}

/// Returns the name of a package's descriptor file.
pub(crate) fn descriptors_file(package: &str) -> String {
    if package.is_empty() { "_.binpb".to_owned() } else { format!("{package}.binpb") }
}

/// Paths of external types, and of all other types.
#[derive(Clone, Debug)]
pub(crate) struct TypePaths {
    externs: HashMap<String, String>,
}

impl TypePaths {
    /// Returns names without external types, not even the well-known types.
    pub(crate) fn new() -> Self {
        Self { externs: HashMap::new() }
    }

    /// Adds the well-known types, except those already external. Returns the added names, with a leading dot, and their
    /// paths.
    pub(crate) fn add_well_known(&mut self) -> Vec<(String, String)> {
        let values = WELL_KNOWN_VALUES.iter().map(|&(name, path)| (name, path.to_owned()));
        let messages = WELL_KNOWN_MESSAGES.iter();
        let messages = messages.map(|name| (*name, format!("::frpc::prost_types::{}", name.replace('.', "::"))));
        let all = values.chain(messages).map(|(name, path)| (format!(".google.protobuf.{name}"), path));
        let added: Vec<_> = all.filter(|(name, _)| self.external(&name[1..]).is_none()).collect();
        added.iter().for_each(|(name, path)| self.add(name, path));
        added
    }

    /// Adds the Rust path of a type or package. Its name has a leading dot.
    pub(crate) fn add(&mut self, name: &str, path: &str) {
        self.externs.insert(name.trim_start_matches('.').to_owned(), path.to_owned());
    }

    /// Returns the path of an external type. The longest matching name decides.
    pub(crate) fn external(&self, name: &str) -> Option<String> {
        if let Some(path) = self.externs.get(name) {
            return Some(path.clone());
        }
        let parents = name.rmatch_indices('.').map(|(dot, _)| name.split_at(dot));
        let (path, rest) = parents.filter_map(|(parent, rest)| Some((self.externs.get(parent)?, rest))).next()?;
        let (modules, own) = rest.rsplit_once('.').expect("the rest starts with a dot");
        let segments = path.split("::").chain(modules.split('.').filter(|module| !module.is_empty()));
        let modules = segments.enumerate().map(|(index, segment)| match (index, segment) {
            (0, "crate") => segment.to_owned(),
            _ => snake(segment),
        });
        Some(modules.chain([upper_camel(own)]).collect::<Vec<_>>().join("::"))
    }

    /// Returns `true` if a type is a prost type without an frpc encoding.
    pub(crate) fn lacks_codec(&self, name: &str) -> bool {
        let path = self.external(name).unwrap_or_default();
        path.strip_prefix("::frpc::prost_types::").is_some_and(|own| !ENCODED.contains(&own))
    }

    /// Returns the path to a type from a module `levels_below` a package.
    pub(crate) fn path(&self, name: &str, package: &str, levels_below: usize) -> String {
        if let Some(path) = self.external(name) {
            return path;
        }
        let (parents, own) = name.rsplit_once('.').unwrap_or(("", name));
        let mut here = package.split('.').filter(|part| !part.is_empty()).peekable();
        let mut there = parents.split('.').filter(|part| !part.is_empty()).peekable();
        while here.peek().is_some() && here.peek() == there.peek() {
            here.next();
            there.next();
        }
        let up = iter::repeat_n("super".to_owned(), levels_below + here.count());
        let path = up.chain(there.map(snake)).chain([upper_camel(own)]).collect::<Vec<_>>().join("::");
        unhidden(path)
    }
}

/// Returns a path that no generic parameter of generated code hides.
pub(crate) fn unhidden(path: String) -> String {
    if GENERICS.contains(&path.as_str()) { format!("self::{path}") } else { path }
}

/// Returns an identifier that is not a keyword.
fn usable(name: String) -> String {
    match name.as_str() {
        "_" | "super" | "self" | "Self" | "extern" | "crate" => name + "_",
        keyword if KEYWORDS.contains(&keyword) => format!("r#{name}"),
        digits if digits.starts_with(char::is_numeric) => format!("_{name}"),
        _ => name,
    }
}

/// Functions of each client, and of traits of the prelude. `client.into(request)` calls the trait, since it takes the
/// client by value, and a method `clone` hides that of the trait.
const TAKEN_FUNCTIONS: &[&str] = &["new", "connect", "channel", "into_raw", "clone", "into", "try_into"];

/// The names of generic parameters in generated code.
const GENERICS: &[&str] = &["S", "T"];

const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do", "dyn", "else", "enum",
    "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod", "move", "mut",
    "override", "priv", "pub", "ref", "return", "static", "struct", "trait", "true", "try", "type", "typeof", "unsafe",
    "unsized", "use", "virtual", "where", "while", "yield",
];

/// The prost types encoded by frpc, in its `codec/polyglot/well_known.rs`.
const ENCODED: &[&str] = &["Any", "Duration", "FieldMask", "ListValue", "NullValue", "Struct", "Timestamp", "Value"];

/// Well-known types with a special Rust type, without the prefix `google.protobuf`.
const WELL_KNOWN_VALUES: &[(&str, &str)] = &[
    ("BoolValue", "bool"),
    ("BytesValue", "::frpc::prost::alloc::vec::Vec<u8>"),
    ("DoubleValue", "f64"),
    ("Empty", "()"),
    ("FloatValue", "f32"),
    ("Int32Value", "i32"),
    ("Int64Value", "i64"),
    ("StringValue", "::frpc::prost::alloc::string::String"),
    ("UInt32Value", "u32"),
    ("UInt64Value", "u64"),
];

/// Well-known types declared by prost-types under the same name.
const WELL_KNOWN_MESSAGES: &[&str] = &[
    "Any",
    "Api",
    "DescriptorProto",
    "Duration",
    "Edition",
    "Enum",
    "EnumDescriptorProto",
    "EnumOptions",
    "EnumValue",
    "EnumValueDescriptorProto",
    "EnumValueOptions",
    "ExtensionRangeOptions",
    "FeatureSet",
    "FeatureSetDefaults",
    "Field",
    "FieldDescriptorProto",
    "FieldMask",
    "FieldOptions",
    "FileDescriptorProto",
    "FileDescriptorSet",
    "FileOptions",
    "GeneratedCodeInfo",
    "ListValue",
    "MessageOptions",
    "Method",
    "MethodDescriptorProto",
    "MethodOptions",
    "Mixin",
    "NullValue",
    "OneofDescriptorProto",
    "OneofOptions",
    "Option",
    "ServiceDescriptorProto",
    "ServiceOptions",
    "SourceCodeInfo",
    "SourceContext",
    "Struct",
    "SymbolVisibility",
    "Syntax",
    "Timestamp",
    "Type",
    "UninterpretedOption",
    "Value",
    "compiler.CodeGeneratorRequest",
    "compiler.CodeGeneratorResponse",
    "compiler.Version",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_match_prost() {
        let table = [
            // proto, field or module, type, constant
            ("name", "name", "Name", "NAME"),
            ("camelCase", "camel_case", "CamelCase", "CAMEL_CASE"),
            ("PascalCase", "pascal_case", "PascalCase", "PASCAL_CASE"),
            ("snake_case", "snake_case", "SnakeCase", "SNAKE_CASE"),
            ("SCREAMING_CASE", "screaming_case", "ScreamingCase", "SCREAMING_CASE"),
            ("HTTPServer", "http_server", "HttpServer", "HTTP_SERVER"),
            ("with__double", "with_double", "WithDouble", "WITH_DOUBLE"),
            ("trailing_", "trailing", "Trailing", "TRAILING"),
            ("_leading", "leading", "Leading", "LEADING"),
            ("x1", "x1", "X1", "X1"),
            ("v1_2", "v1_2", "V12", "V1_2"),
            ("_2nd", "_2nd", "_2nd", "_2ND"),
            ("aB3cD", "a_b3c_d", "AB3cD", "A_B3C_D"),
            ("type", "r#type", "Type", "TYPE"),
            ("match", "r#match", "Match", "MATCH"),
            ("async", "r#async", "Async", "ASYNC"),
            ("gen", "r#gen", "Gen", "GEN"),
            ("self", "self_", "Self_", "SELF"),
            ("Self", "self_", "Self_", "SELF"),
            ("crate", "crate_", "Crate", "CRATE"),
            ("super", "super_", "Super", "SUPER"),
            ("extern", "extern_", "Extern", "EXTERN"),
            ("union", "union", "Union", "UNION"),
            ("Option", "option", "Option", "OPTION"),
        ];
        for (proto, a_snake, a_type, a_constant) in table {
            assert_eq!((snake(proto).as_str(), upper_camel(proto).as_str()), (a_snake, a_type), "{proto}");
            assert_eq!(shouty(proto), a_constant, "{proto}");
        }
    }

    #[test]
    fn paths_between_packages_are_relative() {
        let names = TypePaths::new();
        let table = [
            // package, type, path
            ("shop", "shop.Order", "Order"),
            ("shop", "shop.Order.Item", "order::Item"),
            ("shop", "shop.HTTPOrder.itemKind", "http_order::ItemKind"),
            ("shop.order", "shop.item.Item", "super::item::Item"),
            ("shop.order.v1", "shop.order.v2.Order", "super::v2::Order"),
            ("shop.order", "shop.Order", "super::Order"),
            ("shop", "shop.order.Order", "order::Order"),
            ("shop.order", "Root", "super::super::Root"),
            ("", "Root", "Root"),
            ("", "shop.Order", "shop::Order"),
            ("a.type", "b.self.match.Box", "super::super::b::self_::r#match::Box"),
            ("a", "a.S", "self::S"),
        ];
        for (package, name, path) in table {
            assert_eq!(names.path(name, package, 0), path, "{name} from {package}");
        }
        assert_eq!(names.path("shop.item.Item", "shop.order", 1), "super::super::item::Item");
        assert_eq!(names.path("shop.Order", "shop", 1), "super::Order");
    }

    #[test]
    fn the_longest_extern_path_decides() {
        let mut names = TypePaths::new();
        names.add_well_known();
        names.add(".shop", "::shop_protos");
        names.add(".shop.item", "crate::items");
        names.add(".shop.item.Special", "crate::Other");
        let table = [
            ("google.protobuf.Timestamp", "::frpc::prost_types::Timestamp"),
            ("google.protobuf.FieldDescriptorProto.Type", "::frpc::prost_types::field_descriptor_proto::Type"),
            ("google.protobuf.Empty", "()"),
            ("google.protobuf.compiler.Version", "::frpc::prost_types::compiler::Version"),
            ("google.protobuf.BytesValue", "::frpc::prost::alloc::vec::Vec<u8>"),
            ("shop.Order", "::shop_protos::Order"),
            ("shop.order.v1.Order.Item", "::shop_protos::order::v1::order::Item"),
            ("shop.item.Item", "crate::items::Item"),
            ("shop.item.Special", "crate::Other"),
        ];
        for (name, path) in table {
            assert_eq!(names.external(name).as_deref(), Some(path));
            assert_eq!(names.path(name, "elsewhere", 1), path);
        }
        let own = [
            "shopping.Order",
            "google.protobuf.Own",
            "google.protobuf.compiler.Own",
            "google.protobuf.compiler2.Version",
        ];
        assert!(own.iter().all(|name| names.external(name).is_none()));
    }

    #[test]
    fn well_known_types_can_be_replaced() {
        let mut names = TypePaths::new();
        names.add(".google.protobuf", "::others");
        assert!(names.add_well_known().is_empty());
        let mut names = TypePaths::new();
        names.add(".google.protobuf.Timestamp", "::others::Time");
        assert_eq!(names.add_well_known().len(), WELL_KNOWN_VALUES.len() + WELL_KNOWN_MESSAGES.len() - 1);
        assert_eq!(names.external("google.protobuf.Timestamp").as_deref(), Some("::others::Time"));
    }

    #[test]
    fn a_oneof_is_renamed_if_a_type_has_its_name() {
        assert_eq!(oneof_type("some_value", ["Other"].into_iter()), "SomeValue");
        assert_eq!(oneof_type("some_value", ["Other", "SomeValue"].into_iter()), "SomeValueOneOf");
    }
}
