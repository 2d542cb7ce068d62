//! Descriptors rewritten for prost, so that its code compiles.
//!
//! Marks replace comments, because prost would keep text that rustdoc misinterprets; [`RemovedComments::fill_in`] puts the
//! converted comments back. Default values get the only form accepted by prost's macro. Enum fields whose accessors
//! would collide with other functions become numbers, which have no accessors. Fields marked as required get the label.

use std::collections::{HashMap, HashSet};

use frpc_schema::{
    FieldShape, MessageSchema, Schema, ValueType, is_resolved_edition,
    location::{
        ENUMS_OF_FILE, ENUMS_OF_MESSAGE, FIELDS_OF_MESSAGE, Locations, MESSAGES_OF_FILE, MESSAGES_OF_MESSAGE,
        ONEOFS_OF_MESSAGE, VALUES_OF_ENUM, joined,
    },
    unescaped,
};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet, SourceCodeInfo,
    field_descriptor_proto::{Label, Type},
    source_code_info::Location,
};

use crate::{accessors, comments};

/// The comments removed from descriptors.
#[derive(Debug, Default)]
pub(crate) struct RemovedComments(Vec<Vec<String>>);

impl RemovedComments {
    /// Replaces the marks in prost's code by their comments.
    pub(crate) fn fill_in(&self, code: &str) -> String {
        let mut filled = String::with_capacity(code.len());
        for line in code.lines() {
            match line.trim_start().strip_prefix(MARK).and_then(|number| self.0.get(number.parse::<usize>().ok()?)) {
                Some(comment) => comment.iter().for_each(|text| filled += &format!("/// {text}\n")),
                None => filled.extend([line, "\n"]),
            }
        }
        filled
    }
}

/// Returns the rewritten files for prost, and their comments.
pub(crate) fn of(set: &FileDescriptorSet, schema: &Schema) -> (Vec<FileDescriptorProto>, RemovedComments) {
    let mut enums = HashMap::new();
    for file in &set.file {
        add_enums(&mut enums, &prefix(file), &file.enum_type, &file.message_type);
    }
    let messages = schema.packages.iter().flat_map(|package| &package.messages);
    let numbers = messages.flat_map(|message| {
        accessors::missing(message).into_iter().map(|field| (format!(".{}", message.full_name), field.name.clone()))
    });
    let messages = schema.packages.iter().flat_map(|package| &package.messages);
    let required = messages.flat_map(|message| {
        let fields = message.fields.iter().filter(|field| field.is_required);
        fields.map(|field| (format!(".{}", message.full_name), field.name.clone()))
    });
    let mut rewriter = Rewriter {
        enums,
        numbers: numbers.collect(),
        required: required.collect(),
        comments: RemovedComments::default(),
    };
    let files = set.file.iter().map(|file| rewriter.file(file)).collect();
    (files, rewriter.comments)
}

/// Returns the paths of the groups that contain their own message, for prost to box them. It finds recursion through
/// messages only.
pub(crate) fn recursive_groups(set: &FileDescriptorSet, schema: &Schema) -> Vec<String> {
    let mut groups = HashSet::new();
    for file in &set.file {
        add_groups(&mut groups, &prefix(file), &file.message_type);
    }
    let messages = schema.packages.iter().flat_map(|package| &package.messages);
    let messages: HashMap<_, _> = messages.map(|message| (message.full_name.as_str(), message)).collect();
    let mut paths = Vec::new();
    for message in messages.values() {
        for field in &message.fields {
            let of = match &field.shape {
                FieldShape::Always(of) | FieldShape::Optional(of) | FieldShape::Member(_, of) => of,
                FieldShape::List(_) | FieldShape::Map(..) => continue,
            };
            let ValueType::Message(of) = of else { continue };
            let name = format!(".{}", message.full_name);
            if groups.contains(&(name.clone(), field.name.clone())) && reaches(&messages, of, &message.full_name) {
                paths.push(match &field.shape {
                    FieldShape::Member(oneof, _) => format!("{name}.{}.{}", message.oneofs[*oneof].name, field.name),
                    _ => format!("{name}.{}", field.name),
                });
            }
        }
    }
    paths
}

/// Returns `true` if a message contains the other one through single fields.
fn reaches(messages: &HashMap<&str, &MessageSchema>, from: &str, to: &str) -> bool {
    let (mut seen, mut left) = (HashSet::new(), vec![from]);
    while let Some(name) = left.pop() {
        if name == to {
            return true;
        }
        if seen.insert(name) {
            left.extend(messages.get(name).into_iter().flat_map(|message| message.messages()));
        }
    }
    false
}

/// Collects the group fields of messages: the full name of the message, with a leading dot, and the name of the field.
fn add_groups(groups: &mut HashSet<(String, String)>, parent: &str, messages: &[DescriptorProto]) {
    for message in messages {
        let full_name = format!("{parent}.{}", message.name());
        let own = message.field.iter().filter(|field| field.r#type() == Type::Group);
        groups.extend(own.map(|field| (full_name.clone(), field.name().to_owned())));
        add_groups(groups, &full_name, &message.nested_type);
    }
}

struct Rewriter {
    enums: HashMap<String, EnumDescriptorProto>,
    /// The fields that become numbers: the full name of the message, with a leading dot, and the name of the field.
    numbers: HashSet<(String, String)>,
    /// The required fields, in the same form.
    required: HashSet<(String, String)>,
    comments: RemovedComments,
}

impl Rewriter {
    fn file(&mut self, original: &FileDescriptorProto) -> FileDescriptorProto {
        let mut file = original.clone();
        file.name.get_or_insert_default();
        file.package = file.package.filter(|package| !package.is_empty());
        // With resolved features, each field has its presence and packing.
        let is_proto3 = |syntax: &String| syntax == "proto3" || is_resolved_edition(syntax);
        file.syntax = file.syntax.filter(is_proto3).map(|_| "proto3".to_owned());
        let prefix = prefix(&file);
        let mut marks = CommentMarks { locations: Locations::new(original), marked: Vec::new() };
        for (index, message) in (0..).zip(&mut file.message_type) {
            self.message(message, &prefix, &[MESSAGES_OF_FILE, index], &mut marks);
        }
        for (index, declared) in (0..).zip(&file.enum_type) {
            self.enumeration(declared, &[ENUMS_OF_FILE, index], &mut marks);
        }
        file.source_code_info = Some(SourceCodeInfo { location: marks.marked });
        file
    }

    fn message(&mut self, declared: &mut DescriptorProto, parent: &str, path: &[i32], marks: &mut CommentMarks) {
        let full_name = format!("{parent}.{}", declared.name());
        self.mark(path, marks, None);
        for (index, field) in (0..).zip(&mut declared.field) {
            let path = joined(path, &[FIELDS_OF_MESSAGE, index]);
            self.default(field);
            let mut note = None;
            let name = (full_name.clone(), field.name().to_owned());
            if self.required.contains(&name) {
                field.set_label(Label::Required);
                (field.proto3_optional, field.oneof_index) = (None, None);
            }
            if self.numbers.contains(&name) {
                let entries = &mut declared.nested_type;
                let entry =
                    entries.iter_mut().find(|entry| field.type_name() == format!("{full_name}.{}", entry.name()));
                note = Some(self.number(entry.and_then(|entry| entry.field.last_mut()).unwrap_or(field)));
            }
            self.mark(&path, marks, note);
        }
        for (index, _) in (0..).zip(&declared.oneof_decl) {
            self.mark(&joined(path, &[ONEOFS_OF_MESSAGE, index]), marks, None);
        }
        for (index, nested) in (0..).zip(&mut declared.nested_type) {
            self.message(nested, &full_name, &joined(path, &[MESSAGES_OF_MESSAGE, index]), marks);
        }
        for (index, nested) in (0..).zip(&declared.enum_type) {
            self.enumeration(nested, &joined(path, &[ENUMS_OF_MESSAGE, index]), marks);
        }
    }

    fn enumeration(&mut self, declared: &EnumDescriptorProto, path: &[i32], marks: &mut CommentMarks) {
        self.mark(path, marks, None);
        for (index, _) in (0..).zip(&declared.value) {
            self.mark(&joined(path, &[VALUES_OF_ENUM, index]), marks, None);
        }
    }

    /// Replaces a comment by a mark. prost requires a location for each declaration, even without a comment.
    fn mark(&mut self, path: &[i32], marks: &mut CommentMarks, note: Option<String>) {
        let mut comment = comments::rustdoc(&marks.locations.comment(path));
        if let Some(note) = note {
            comment.extend((!comment.is_empty()).then(String::new));
            comment.push(note);
        }
        let mut location = Location { path: path.to_owned(), ..Location::default() };
        if !comment.is_empty() {
            location.leading_comments = Some(format!("{}{}", &MARK[3..], self.comments.0.len()));
            self.comments.0.push(comment);
        }
        marks.marked.push(location);
    }

    /// Turns a field or map value of an enum type into a number. Returns a note for its documentation.
    fn number(&self, field: &mut FieldDescriptorProto) -> String {
        let name = field.type_name.take().unwrap_or_default();
        field.set_type(Type::Int32);
        if let Some(declared) = self.enums.get(&name) {
            let default = declared.value.iter().find(|value| Some(value.name()) == field.default_value.as_deref());
            let number = default.or(declared.value.first()).map_or(0, |value| value.number());
            let has_default = number != 0 && field.label() != Label::Repeated;
            field.default_value = has_default.then(|| number.to_string());
        }
        let name = name.trim_start_matches('.');
        format!("The number of a value of `{name}`. There are no accessors, as other fields have their names.")
    }

    fn default(&self, field: &mut FieldDescriptorProto) {
        let Some(default) = field.default_value.take() else { return };
        field.default_value = Some(match field.r#type() {
            Type::Float => float(&default, default.parse::<f32>().map(|number| format!("{number:?}"))),
            Type::Double => float(&default, default.parse::<f64>().map(|number| format!("{number:?}"))),
            Type::Bytes => {
                let bytes = unescaped(&default).unwrap_or_default();
                bytes.iter().map(|byte| format!("\\{byte:03o}")).collect()
            }
            Type::Enum => self.first_alias(field.type_name(), &default),
            _ => default,
        });
    }

    /// Returns the first enum value with the same number as `default`, because prost generates only that one.
    fn first_alias(&self, name: &str, default: &str) -> String {
        let values = self.enums.get(name).map_or(&[][..], |declared| &declared.value);
        let number = values.iter().find(|value| value.name() == default).map(|value| value.number());
        let first = values.iter().find(|value| Some(value.number()) == number);
        first.map_or(default, |value| value.name()).to_owned()
    }
}

/// The comments of a file, and the marks that replace them.
struct CommentMarks<'a> {
    locations: Locations<'a>,
    marked: Vec<Location>,
}

/// Returns a number in the form accepted by prost's macro: `inf`, `-inf`, `nan`, or a Rust literal.
fn float<E>(default: &str, parsed: Result<String, E>) -> String {
    parsed.map_or(default.to_owned(), |number| number.replace("NaN", "nan"))
}

fn add_enums(
    enums: &mut HashMap<String, EnumDescriptorProto>,
    parent: &str,
    declared: &[EnumDescriptorProto],
    messages: &[DescriptorProto],
) {
    enums.extend(declared.iter().map(|declared| (format!("{parent}.{}", declared.name()), declared.clone())));
    for message in messages {
        add_enums(enums, &format!("{parent}.{}", message.name()), &message.enum_type, &message.nested_type);
    }
}

fn prefix(file: &FileDescriptorProto) -> String {
    if file.package().is_empty() { String::new() } else { format!(".{}", file.package()) }
}

const MARK: &str = "/// frpc-build comment ";
