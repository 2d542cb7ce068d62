//! The changes of a layout that break peers.
//!
//! Plain peers, such as those that frpc-go generates, know a method by its operation, and fields and values of enums by
//! their positions. Binaries that were built before by frpc-build call methods by their paths. Where a message is no longer
//! the same they speak protobuf, which knows fields and values by their numbers.

use std::collections::{BTreeMap, HashMap, HashSet};

use frpc_schema::{Diagnostic, Schema, Type, compat::has_same_values, location::Place};
use prost_types::field_descriptor_proto::Type as Scalar;

use super::layout::{Field, Label, Layout, Of, Value};

/// A change that breaks peers.
pub(super) struct Change {
    message: String,
    place: Option<Place>,
    /// The lines that have to go for the change to be accepted.
    lines: String,
    /// The rule by which plain peers are broken, if they are.
    plain: Option<&'static str>,
    /// The rule by which older binaries are broken, if they are.
    older: Option<&'static str>,
}

impl Change {
    /// Returns the mistake that this change is, or `None` if nobody is broken who matters.
    pub(super) fn diagnostic(self, lock: &str, has_plain_peers: bool) -> Option<Diagnostic> {
        let plain = self.plain.filter(|_| has_plain_peers);
        if plain.is_none() && self.older.is_none() {
            return None;
        }
        let mut diagnostic = Diagnostic::new(self.message);
        if let Some(place) = self.place {
            diagnostic = diagnostic.at(place);
        }
        if let Some(rule) = plain {
            diagnostic = diagnostic.note(format_args!("this breaks plain peers, such as those in Go: {rule}"));
        }
        if let Some(rule) = self.older {
            diagnostic = diagnostic.note(format_args!("this breaks binaries that were built before: {rule}"));
        }
        Some(diagnostic.help(format_args!("to accept it, delete {} from {lock} and build again", self.lines)))
    }
}

/// Returns the changes that break peers, given the layout of before and the schema of today with its layout.
pub(super) fn find(before: &Layout, now: &Layout, schema: &Schema) -> Vec<Change> {
    let mut changes = Changes {
        before,
        now,
        places: Places::of(schema),
        seen: HashSet::new(),
        seen_before: HashSet::new(),
        left: Vec::new(),
        found: Vec::new(),
    };
    changes.methods();
    changes.types();
    changes.found
}

struct Changes<'a> {
    before: &'a Layout,
    now: &'a Layout,
    places: Places<'a>,
    /// Types of before that were compared with types of today.
    seen: HashSet<[&'a str; 2]>,
    /// Those of before among them.
    seen_before: HashSet<&'a str>,
    /// Types that are still to be compared.
    left: Vec<[&'a str; 2]>,
    found: Vec<Change>,
}

impl<'a> Changes<'a> {
    fn methods(&mut self) {
        let (before, now) = (self.before, self.now);
        let by_path: HashMap<_, _> =
            now.methods().map(|(_, at, method)| (method.path.as_str(), (at, method))).collect();
        let old_paths: HashSet<_> = before.methods().map(|(_, _, method)| method.path.as_str()).collect();
        let mut moved: BTreeMap<&str, (Change, usize)> = BTreeMap::new();
        for (file, operation, old) in before.methods() {
            let path = old.path.as_str();
            let lines = format!("the line of '{path}'");
            let in_place = now.files.get(file).and_then(|methods| methods.get(&operation));
            // A method in the place of another that is gone is the same one by a new name.
            let renamed = in_place.filter(|new| new.kind == old.kind && !old_paths.contains(new.path.as_str()));
            let (at, new) = match (by_path.get(path), renamed) {
                (Some(&(at, new)), _) => (at, new),
                (None, Some(new)) => {
                    let message = format!("method '{path}' is named '{}' now", new.path);
                    let place = self.places.method(&new.path);
                    let lines = lines.clone();
                    self.found.push(Change { message, place, lines, plain: None, older: Some(BY_PATH) });
                    (operation, new)
                }
                (None, None) => {
                    let message = format!("method '{path}' was removed");
                    let place = self.places.service(path).unwrap_or_else(|| Place::new(file, None));
                    let place = Some(place);
                    self.found.push(Change { message, place, lines, plain: Some(BY_OPERATION), older: Some(BY_PATH) });
                    continue;
                }
            };
            if new.kind != old.kind {
                let message = format!("method '{path}' streams otherwise than before");
                let (place, lines) = (self.places.method(path), lines.clone());
                self.found.push(Change { message, place, lines, plain: Some(BY_KIND), older: Some(BY_KIND) });
            }
            if at != operation {
                let message = format!("method '{path}' has operation {at} now, and had {operation}");
                let place = self.places.method(path);
                let change = Change { message, place, lines, plain: Some(BY_OPERATION), older: None };
                moved.entry(file).and_modify(|(_, more)| *more += 1).or_insert((change, 0));
            }
            self.left.extend([[old.input.as_str(), &new.input], [old.output.as_str(), &new.output]]);
        }
        for (mut change, more) in moved.into_values() {
            if more > 0 {
                let s = if more > 1 { "s" } else { "" };
                change.message += &format!(", and {more} more method{s} of this file moved");
                change.lines = "the lines of these methods".to_owned();
            }
            self.found.push(change);
        }
    }

    /// Compares the types that methods reach, and then those that none reached, by their names.
    fn types(&mut self) {
        self.reached();
        let before = self.before;
        for name in before.messages.keys().chain(before.enums.keys()) {
            if !self.seen_before.contains(name.as_str()) {
                self.left.push([name, name]);
                self.reached();
            }
        }
    }

    fn reached(&mut self) {
        let (before, now) = (self.before, self.now);
        while let Some([old, new]) = self.left.pop() {
            if !self.seen.insert([old, new]) {
                continue;
            }
            self.seen_before.insert(old);
            // An entry that is not in the file was deleted, and so accepted.
            if let (Some(fields_before), Some(fields)) = (before.messages.get(old), now.messages.get(new)) {
                self.message(fields_before, fields, old, new);
            }
            if let (Some(values), Some(new_values)) = (before.enums.get(old), now.enums.get(new)) {
                self.enumeration(values, new_values, old, new);
            }
        }
    }

    fn message(&mut self, old: &'a [Field], new: &'a [Field], old_name: &str, name: &str) {
        let lines = format!("'message {old_name}' and the lines below it");
        let pairs = matched(old, new, |field| (field.name.as_str(), field.number));
        let change = |message, place| Change { message, place, lines: lines.clone(), plain: None, older: None };

        for (index, field) in old.iter().enumerate() {
            if pairs.iter().all(|(of_old, _)| *of_old != index) {
                let message = format!("field '{}' ({}) was removed from {name}", field.name, field.number);
                self.found.push(Change { plain: Some(BY_POSITION), ..change(message, self.places.message(name)) });
            }
        }
        for (index, field) in new.iter().enumerate() {
            if pairs.iter().all(|(_, of_new)| *of_new != index) {
                let message = format!("field '{}' ({}) was added to {name}", field.name, field.number);
                let place = self.places.field(name, field.number);
                self.found.push(Change { plain: Some(BY_POSITION), ..change(message, place) });
            }
        }
        let mut has_other_types = false;
        for &(of_old, of_new) in &pairs {
            let (old, new) = (&old[of_old], &new[of_new]);
            let place = self.places.field(name, new.number);
            if old.number != new.number {
                let message =
                    format!("field '{}' of {name} has number {} now, and had {}", new.name, new.number, old.number);
                self.found.push(Change { older: Some(BY_NUMBER), ..change(message, place.clone()) });
            }
            let (plain, older) = (is_same_plain(old, new), is_same_in_protobuf(old, new));
            if !plain || !older {
                has_other_types |= !plain;
                let message = format!(
                    "field '{}' ({}) of {name} is '{}{}' now, and was '{}{}'",
                    new.name, new.number, new.label, new.of, old.label, old.of
                );
                let (plain, older) = ((!plain).then_some(BY_TYPE), (!older).then_some(BY_ENCODING));
                self.found.push(Change { plain, older, ..change(message, place) });
            } else if let (Of::Message(old), Of::Message(new)) | (Of::Enum(old), Of::Enum(new)) = (&old.of, &new.of) {
                self.left.push([old, new]);
            }
        }
        // A field that changed its type stands elsewhere by itself.
        if !has_other_types && let Some(two) = pairs.windows(2).find(|two| two[0].1 > two[1].1) {
            let [before, behind] = [&new[two[0].1], &new[two[1].1]];
            let message = format!(
                "field '{}' ({}) of {name} is sent ahead of '{}' ({}) now, and was behind it",
                behind.name, behind.number, before.name, before.number
            );
            let place = self.places.field(name, behind.number);
            self.found.push(Change { plain: Some(BY_POSITION), ..change(message, place) });
        }
        for (is_now, what) in
            [(true, "share a oneof now, and could"), (false, "can be set together now, and could not")]
        {
            let Some([one, other]) = parted(old, new, &pairs, is_now) else { continue };
            let both = format!("'{}' ({}) and '{}' ({})", one.name, one.number, other.name, other.number);
            let message = match is_now {
                true => format!("fields {both} of {name} {what} be set together"),
                false => format!("fields {both} of {name} {what}"),
            };
            let place = self.places.field(name, other.number);
            self.found.push(Change { older: Some(BY_ONEOF), ..change(message, place) });
        }
    }

    fn enumeration(&mut self, old: &[Value], new: &[Value], old_name: &str, name: &str) {
        let lines = format!("'enum {old_name}' and the lines below it");
        let change = |message, place| Change { message, place, lines: lines.clone(), plain: None, older: None };
        let pairs = matched(old, new, |value| (value.name.as_str(), value.number));
        for &(of_old, of_new) in &pairs {
            let (old, new) = (&old[of_old], &new[of_new]);
            if old.number != new.number {
                let message =
                    format!("value '{}' of {name} has number {} now, and had {}", new.name, new.number, old.number);
                let place = self.places.value(name, &new.name);
                self.found.push(Change { older: Some(VALUE_BY_NUMBER), ..change(message, place) });
            }
        }
        let removed = (0..old.len()).find(|index| pairs.iter().all(|(of_old, _)| of_old != index));
        if let Some(removed) = removed {
            let message = format!("value '{}' ({}) was removed from {name}", old[removed].name, old[removed].number);
            self.found
                .push(Change { plain: Some(VALUE_BY_POSITION), ..change(message, self.places.enumeration(name)) });
        } else if let Some(&(from, to)) = pairs.iter().find(|(from, to)| from != to) {
            let message = format!("value '{}' of {name} has position {to} now, and had {from}", new[to].name);
            let place = self.places.value(name, &new[to].name);
            self.found.push(Change { plain: Some(VALUE_BY_POSITION), ..change(message, place) });
        }
    }
}

/// Returns the indices of declarations that are the same before and now: those of the same name, and of the others those of
/// the same number, which were renamed. They are in the order of before.
fn matched<'a, T>(old: &'a [T], new: &'a [T], key: impl Fn(&'a T) -> (&'a str, i32)) -> Vec<(usize, usize)> {
    let new_names: HashMap<_, _> = new.iter().enumerate().map(|(index, item)| (key(item).0, index)).collect();
    let mut taken: HashSet<_> = old.iter().filter_map(|item| new_names.get(key(item).0).copied()).collect();
    let mut pairs = Vec::new();
    for (index, item) in old.iter().enumerate() {
        let (name, number) = key(item);
        let renamed = || (0..new.len()).find(|index| key(&new[*index]).1 == number && !taken.contains(index));
        if let Some(found) = new_names.get(name).copied().or_else(renamed) {
            taken.insert(found);
            pairs.push((index, found));
        }
    }
    pairs
}

/// Returns two fields that are members of one oneof now and were not before, or the reverse.
fn parted<'a>(old: &'a [Field], new: &'a [Field], pairs: &[(usize, usize)], is_now: bool) -> Option<[&'a Field; 2]> {
    let oneof = |field: &'a Field| match &field.label {
        Label::Member(oneof) => Some(oneof.as_str()),
        _ => None,
    };
    let mut firsts = HashMap::new();
    for &(of_old, of_new) in pairs {
        let (old, new) = (&old[of_old], &new[of_new]);
        let (together, other) = if is_now { (oneof(new), oneof(old)) } else { (oneof(old), oneof(new)) };
        let Some(together) = together else { continue };
        let (first, before) = *firsts.entry(together).or_insert((new, other));
        if !std::ptr::eq(first, new) && (before.is_none() || before != other) {
            return Some([first, new]);
        }
    }
    None
}

/// Returns whether plain peers read the bytes of two fields alike. Presence is no part of them.
fn is_same_plain(old: &Field, new: &Field) -> bool {
    let of = match (&old.of, &new.of) {
        (Of::Scalar(old), Of::Scalar(new)) => Type::of_scalar(*old) == Type::of_scalar(*new),
        (Of::Enum(_), Of::Enum(_)) | (Of::Message(_), Of::Message(_)) => true,
        _ => false,
    };
    of && is_same_shape(&old.label, &new.label, |old, new| Type::of_scalar(old) == Type::of_scalar(new))
}

/// Returns whether protobuf reads all that the one field wrote as the other, whichever is older.
fn is_same_in_protobuf(old: &Field, new: &Field) -> bool {
    let declared = |of: &Of| match of {
        Of::Scalar(of) => *of,
        Of::Enum(_) => Scalar::Enum,
        Of::Message(_) => Scalar::Message,
    };
    has_same_values(declared(&old.of), declared(&new.of)) && is_same_shape(&old.label, &new.label, has_same_values)
}

/// Returns whether both are single, lists, or maps with the same keys. Protobuf could read a map as a list of messages with a
/// key and a value, but nobody writes one.
fn is_same_shape(old: &Label, new: &Label, is_same_key: impl Fn(Scalar, Scalar) -> bool) -> bool {
    match (old, new) {
        (Label::Map(old), Label::Map(new)) => is_same_key(*old, *new),
        (Label::Map(_), _) | (_, Label::Map(_)) => false,
        (old, new) => (*old == Label::Repeated) == (*new == Label::Repeated),
    }
}

/// The places of declarations by their names.
struct Places<'a> {
    services: HashMap<&'a str, &'a Place>,
    methods: HashMap<&'a str, &'a Place>,
    messages: HashMap<&'a str, &'a frpc_schema::Message>,
    enums: HashMap<&'a str, &'a frpc_schema::Enum>,
}

impl<'a> Places<'a> {
    fn of(schema: &'a Schema) -> Self {
        let services = schema.packages.iter().flat_map(|package| &package.services);
        let methods = services.clone().flat_map(|service| &service.methods);
        let messages = schema.packages.iter().flat_map(|package| &package.messages);
        let enums = schema.packages.iter().flat_map(|package| &package.enums);
        Self {
            services: services.map(|service| (service.full_name.as_str(), &service.place)).collect(),
            methods: methods.map(|method| (method.path.as_str(), &method.place)).collect(),
            messages: messages.map(|message| (message.full_name.as_str(), message)).collect(),
            enums: enums.map(|declared| (declared.full_name.as_str(), declared)).collect(),
        }
    }

    /// Returns the place of the service that a path begins with.
    fn service(&self, path: &str) -> Option<Place> {
        let (service, _) = path.split_once('/')?;
        self.services.get(service).map(|place| (*place).clone())
    }

    fn method(&self, path: &str) -> Option<Place> {
        self.methods.get(path).map(|place| (*place).clone())
    }

    fn message(&self, name: &str) -> Option<Place> {
        self.messages.get(name).map(|message| message.place.clone())
    }

    fn field(&self, message: &str, number: i32) -> Option<Place> {
        let fields = &self.messages.get(message)?.fields;
        fields.iter().find(|field| field.number == number).map(|field| field.place.clone())
    }

    fn enumeration(&self, name: &str) -> Option<Place> {
        self.enums.get(name).map(|declared| declared.place.clone())
    }

    fn value(&self, declared: &str, name: &str) -> Option<Place> {
        let values = &self.enums.get(declared)?.values;
        values.iter().find(|value| value.name == name).map(|value| value.place.clone())
    }
}

const BY_OPERATION: &str = "they call a method by its operation";
const BY_PATH: &str = "they call a method by its path";
const BY_KIND: &str = "they expect one message where there is a stream now, or the reverse";
const BY_POSITION: &str = "they know a field by its position";
const BY_NUMBER: &str = "where messages differ, they know a field by its number";
const BY_TYPE: &str = "they read the type of before";
const BY_ENCODING: &str = "where messages differ, they read the type of before in protobuf";
const BY_ONEOF: &str = "of the members of a oneof, one side keeps the last";
const VALUE_BY_POSITION: &str = "they know a value by its position";
const VALUE_BY_NUMBER: &str = "where messages differ, they know a value by its number";
