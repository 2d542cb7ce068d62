//! protoc's rules about declarations that could be encoded but are not allowed: reserved numbers and names, extensions,
//! and options without an effect. Proto compilers written in Rust do not check them.

use std::collections::{HashMap, HashSet};

use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
    field_options::JsType,
};

use crate::{
    diagnostic::{Diagnostic, shown},
    location::{
        EXTENSION_RANGES_OF_MESSAGE, EXTENSIONS_OF_FILE, EXTENSIONS_OF_MESSAGE, FIELDS_OF_MESSAGE, Locations,
        MESSAGES_OF_FILE, MESSAGES_OF_MESSAGE, RESERVED_NAMES_OF_ENUM, RESERVED_NAMES_OF_MESSAGE,
        RESERVED_RANGES_OF_ENUM, RESERVED_RANGES_OF_MESSAGE, VALUES_OF_ENUM, joined,
    },
};

/// Checks the declarations of one file.
pub(crate) struct DeclarationRules<'a, 'b> {
    locations: &'b Locations<'a>,
    is_proto3: bool,
    found: Vec<Diagnostic>,
}

impl<'a, 'b> DeclarationRules<'a, 'b> {
    pub(crate) fn new(file: &FileDescriptorProto, locations: &'b Locations<'a>) -> Self {
        Self { locations, is_proto3: file.syntax() == "proto3", found: Vec::new() }
    }

    /// Returns the mistakes in a message, without those of nested declarations.
    pub(crate) fn message(mut self, declared: &DescriptorProto, path: &[i32]) -> Vec<Diagnostic> {
        let reserved = (0..).zip(&declared.reserved_range).map(|(index, range)| {
            let path = joined(path, &[RESERVED_RANGES_OF_MESSAGE, index]);
            NumberRange { what: "reserved", start: range.start(), end: range.end().saturating_sub(1), path }
        });
        let extensions = (0..).zip(&declared.extension_range).map(|(index, range)| {
            let path = joined(path, &[EXTENSION_RANGES_OF_MESSAGE, index]);
            NumberRange { what: "extension", start: range.start(), end: range.end().saturating_sub(1), path }
        });
        let mut ranges: Vec<_> = reserved.chain(extensions).collect();
        if let Some(range) = ranges.iter().find(|range| range.start < 1) {
            self.refuse("field numbers start at 1".to_owned(), &range.path.clone());
        }
        self.ranges(&mut ranges);
        let names = self.names(&declared.reserved_name, &joined(path, &[RESERVED_NAMES_OF_MESSAGE]));
        for (index, field) in (0..).zip(&declared.field) {
            let path = joined(path, &[FIELDS_OF_MESSAGE, index]);
            if names.contains(field.name()) {
                self.refuse(format!("field name '{}' is reserved", shown(field.name())), &path);
            }
            let number = field.number();
            if let Some(range) = holder(&ranges, number) {
                self.refuse(format!("field number {number} is in the {range}"), &path);
            } else if RESERVED_FOR_PROTOBUF.contains(&number) {
                self.refuse(format!("field number {number} is reserved for implementations of protobuf"), &path);
            }
            self.field(field, &path);
        }
        let is_message_set = declared.options.as_ref().is_some_and(|options| options.message_set_wire_format());
        if is_message_set && self.is_proto3 {
            self.refuse("message_set_wire_format is not available in proto3".to_owned(), path);
        } else if is_message_set && !declared.field.is_empty() {
            self.refuse("a message with message_set_wire_format can have extensions only, not fields".to_owned(), path);
        }
        if self.is_proto3 && !declared.extension_range.is_empty() {
            let path = joined(path, &[EXTENSION_RANGES_OF_MESSAGE, 0]);
            self.refuse("messages of proto3 cannot have extensions".to_owned(), &path);
        }
        self.found
    }

    /// Returns the mistakes in an enum.
    pub(crate) fn enumeration(mut self, declared: &EnumDescriptorProto, path: &[i32]) -> Vec<Diagnostic> {
        let ranges = (0..).zip(&declared.reserved_range).map(|(index, range)| {
            let path = joined(path, &[RESERVED_RANGES_OF_ENUM, index]);
            NumberRange { what: "reserved", start: range.start(), end: range.end(), path }
        });
        let mut ranges: Vec<_> = ranges.collect();
        self.ranges(&mut ranges);
        let names = self.names(&declared.reserved_name, &joined(path, &[RESERVED_NAMES_OF_ENUM]));
        let mut numbers = HashSet::new();
        let mut has_aliases = false;
        for (index, value) in (0..).zip(&declared.value) {
            let path = joined(path, &[VALUES_OF_ENUM, index]);
            if names.contains(value.name()) {
                self.refuse(format!("value name '{}' is reserved", shown(value.name())), &path);
            }
            if let Some(range) = holder(&ranges, value.number()) {
                self.refuse(format!("value number {} is in the {range}", value.number()), &path);
            }
            has_aliases |= !numbers.insert(value.number());
        }
        let allows_aliases = declared.options.as_ref().and_then(|options| options.allow_alias);
        let has_effect = match allows_aliases {
            None => true,
            Some(true) => has_aliases,
            Some(false) => false,
        };
        if !has_effect {
            let message = format!("allow_alias has no effect on enum '{}'", shown(declared.name()));
            let help = "remove the option: it is for enums with several names for one number";
            self.found.push(Diagnostic::new(message).at(self.locations.place(path)).help(help));
        }
        self.found
    }

    fn field(&mut self, field: &FieldDescriptorProto, path: &[i32]) {
        let json = field.json_name();
        if json.starts_with('[') && json.ends_with(']') {
            self.refuse("a JSON name cannot be enclosed in brackets: they mark extensions".to_owned(), path);
        } else if json.contains('\0') {
            self.refuse("a JSON name cannot contain the character NUL".to_owned(), path);
        }
        let Some(options) = &field.options else { return };
        let of = field.r#type();
        if options.packed() && !(field.label() == Label::Repeated && is_packable(of)) {
            self.refuse("only repeated fields of numbers, bool or enums can be `packed`".to_owned(), path);
        }
        if options.lazy() && !matches!(of, Type::Message | Type::Group) {
            self.refuse("only fields of messages can be `lazy`".to_owned(), path);
        }
        let is_long = matches!(of, Type::Int64 | Type::Uint64 | Type::Sint64 | Type::Fixed64 | Type::Sfixed64);
        if options.jstype() != JsType::JsNormal && !is_long {
            self.refuse("only integers of 64 bits can have a `jstype`".to_owned(), path);
        }
    }

    /// Checks that ranges are not reversed and do not overlap. Sorts them by start.
    fn ranges(&mut self, ranges: &mut [NumberRange]) {
        for range in ranges.iter().filter(|range| range.end < range.start) {
            self.refuse(format!("the {range} ends before it begins"), &range.path);
        }
        ranges.sort_by_key(|range| range.start);
        let mut ranges = ranges.iter();
        let Some(mut last) = ranges.next() else { return };
        for range in ranges {
            if range.start <= last.end {
                self.refuse(format!("the {range} overlaps with the {last}"), &range.path);
            }
            // Keep the range that reaches furthest, because it may overlap with several later ones.
            if range.end > last.end {
                last = range;
            }
        }
    }

    /// Checks that no name is reserved twice and returns the names.
    fn names<'n>(&mut self, names: &'n [String], path: &[i32]) -> HashSet<&'n str> {
        let mut once = HashSet::new();
        for (index, name) in (0..).zip(names) {
            if !once.insert(name.as_str()) {
                self.refuse(format!("the name '{}' is reserved twice", shown(name)), &joined(path, &[index]));
            }
        }
        once
    }

    fn refuse(&mut self, message: String, path: &[i32]) {
        self.found.push(Diagnostic::new(message).at(self.locations.place(path)));
    }
}

/// Returns the mistakes in the extensions of all files.
pub(crate) fn extensions(set: &FileDescriptorSet) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let mut taken = HashMap::new();
    for file in &set.file {
        let locations = Locations::new(file);
        let mut extensions: Vec<(Vec<i32>, &FieldDescriptorProto)> =
            (0..).zip(&file.extension).map(|(index, field)| (vec![EXTENSIONS_OF_FILE, index], field)).collect();
        let mut left: Vec<(Vec<i32>, &DescriptorProto)> =
            (0..).zip(&file.message_type).map(|(index, message)| (vec![MESSAGES_OF_FILE, index], message)).collect();
        while let Some((path, message)) = left.pop() {
            let own = (0..).zip(&message.extension);
            extensions.extend(own.map(|(index, field)| (joined(&path, &[EXTENSIONS_OF_MESSAGE, index]), field)));
            // `check` reports deeper nesting.
            if path.len() < PATH_LEN_MAX {
                let nested = (0..).zip(&message.nested_type);
                left.extend(nested.map(|(index, nested)| (joined(&path, &[MESSAGES_OF_MESSAGE, index]), nested)));
            }
        }
        for (path, extension) in extensions {
            let (of, number) = (extension.extendee(), extension.number());
            let is_option = of.strip_prefix(".google.protobuf.").is_some_and(|of| of.ends_with("Options"));
            if file.syntax() == "proto3" && !is_option {
                let message = "extensions in proto3 can only extend options".to_owned();
                found.push(Diagnostic::new(message).at(locations.place(&path)));
            }
            let name = extension.name();
            if let Some(other) = taken.insert((of, number), name) {
                let message = format!("extension '{}' has the same number {number} as '{}'", shown(name), shown(other));
                found.push(Diagnostic::new(message).at(locations.place(&path)));
            }
        }
    }
    found
}

/// A range of numbers, including both ends.
struct NumberRange {
    what: &'static str,
    start: i32,
    end: i32,
    path: Vec<i32>,
}

impl std::fmt::Display for NumberRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, start, end, .. } = self;
        match *end {
            end if end == *start => write!(f, "{what} range {start}"),
            NUMBER_MAX.. => write!(f, "{what} range {start} to max"),
            end => write!(f, "{what} range {start} to {end}"),
        }
    }
}

/// Returns the range containing a number. Expects ranges sorted by start.
fn holder(ranges: &[NumberRange], number: i32) -> Option<&NumberRange> {
    let behind = ranges.partition_point(|range| range.start <= number);
    ranges[..behind].last().filter(|range| number <= range.end)
}

pub(crate) fn is_packable(of: Type) -> bool {
    !matches!(of, Type::String | Type::Bytes | Type::Message | Type::Group)
}

/// Highest field number protobuf's encoding can represent.
pub(crate) const NUMBER_MAX: i32 = 536_870_911;

const RESERVED_FOR_PROTOBUF: std::ops::RangeInclusive<i32> = 19_000..=19_999;

/// Length of a path to a message at the maximum nesting depth of `check`.
const PATH_LEN_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use prost_types::{
        FieldOptions,
        descriptor_proto::{ExtensionRange, ReservedRange},
    };

    use super::*;
    use crate::{
        Schema, SchemaOptions,
        testing::{compiled, compiled_files},
    };

    #[test]
    fn reserved_numbers_and_names_are_always_enforced() {
        let check = |ranges: &[(i32, i32)], extensions: &[(i32, i32)], name: &str, number: i32| {
            let mut set = compiled("message M { string a = 1; string b = 2; }");
            let message = &mut set.file[0].message_type[0];
            let reserved = |&(start, end)| ReservedRange { start: Some(start), end: Some(end) };
            message.reserved_range = ranges.iter().map(reserved).collect();
            let extension = |&(start, end)| ExtensionRange { start: Some(start), end: Some(end), options: None };
            message.extension_range = extensions.iter().map(extension).collect();
            message.reserved_name = vec![name.to_owned()];
            message.field[1].number = Some(number);
            set.file[0].syntax = None;
            mistakes(&set)
        };
        assert_eq!(check(&[(7, 9), (3, 7)], &[(9, 12), (12, 13)], "c", 2), "");
        assert_eq!(check(&[(7, 9)], &[], "c", 8), "field number 8 is in the reserved range 7 to 8");
        assert_eq!(check(&[(7, 9)], &[], "c", 9), "");
        assert_eq!(
            check(&[], &[(7, NUMBER_MAX + 1)], "c", NUMBER_MAX),
            "field number 536870911 is in the extension range 7 to max"
        );
        assert_eq!(check(&[], &[], "b", 2), "field name 'b' is reserved");
        assert_eq!(check(&[], &[], "c", 19_999), "field number 19999 is reserved for implementations of protobuf");
        assert_eq!(check(&[(0, 1)], &[], "c", 2), "field numbers start at 1");
        assert_eq!(check(&[(5, 5)], &[], "c", 2), "the reserved range 5 to 4 ends before it begins");
        assert_eq!(check(&[(5, 20), (30, 40)], &[(6, 8), (18, 19)], "c", 2).lines().count(), 2);
        let extremes = [(i32::MIN, i32::MIN), (i32::MAX, i32::MIN), (i32::MIN, i32::MAX)];
        assert!(!check(&extremes, &extremes, "c", 2).is_empty());
    }

    #[test]
    fn invalid_extensions_are_rejected() {
        let base = ("base.proto", "syntax = 'proto2'; package b; message M { extensions 5 to 9; }");
        let with = |body: &'static str| mistakes(&compiled_files(&[("a.proto", body), base]));
        assert_eq!(
            with("syntax = 'proto3'; import 'base.proto'; extend b.M { string x = 5; }"),
            "extensions in proto3 can only extend options"
        );
        let option = "syntax = 'proto3'; import 'base.proto'; import 'google/protobuf/descriptor.proto'; \
                      extend google.protobuf.MethodOptions { string x = 50000; }";
        assert_eq!(with(option), "");
        let twice = "syntax = 'proto2'; import 'base.proto'; extend b.M { optional string x = 5; } \
                     message N { message O { extend b.M { optional string y = 5; optional string z = 6; } } }";
        assert_eq!(with(twice), "extension 'y' has the same number 5 as 'x'");
    }

    #[test]
    fn options_valid_for_their_field_are_accepted() {
        let with = |body: &str, options: FieldOptions| {
            let mut set = compiled(body);
            set.file[0].message_type[0].field[0].options = Some(options);
            mistakes(&set)
        };
        let packed = |is_packed| FieldOptions { packed: Some(is_packed), ..FieldOptions::default() };
        assert_eq!(with("message M { repeated bool a = 1; }", packed(true)), "");
        assert_eq!(with("message M { repeated string a = 1; }", packed(false)), "");
        assert!(!with("message M { bool a = 1; }", packed(true)).is_empty());
        assert_eq!(with("message M { M a = 1; }", FieldOptions { lazy: Some(true), ..FieldOptions::default() }), "");
        let number = || FieldOptions { jstype: Some(JsType::JsNumber.into()), ..FieldOptions::default() };
        assert_eq!(with("message M { sfixed64 a = 1; }", number()), "");
        assert!(!with("message M { sfixed32 a = 1; }", number()).is_empty());
    }

    fn mistakes(set: &FileDescriptorSet) -> String {
        let error = Schema::read(set, &SchemaOptions::default()).err();
        let found = error.map(|error| error.diagnostics).unwrap_or_default();
        found.iter().map(|found| found.message.as_str()).collect::<Vec<_>>().join("\n")
    }
}
