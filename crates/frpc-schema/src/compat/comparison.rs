//! Comparison of two declarations of a message, and of all messages they contain.

use std::collections::{HashMap, HashSet};

use prost_types::{DescriptorProto, FieldDescriptorProto};

use super::{
    declarations::Declarations,
    mismatch::{FIELDS_MAX, MessageField, MismatchReason},
    types::{EncodingKind, holds, is_repeated, kind, scalar},
};
use crate::{check::is_entry, diagnostic::shown};

/// State of a comparison.
pub(super) struct MessageComparison<'a> {
    pub(super) here: &'a Declarations<'a>,
    pub(super) there: &'a Declarations<'a>,
    /// True if this side is the writer.
    pub(super) is_writer: bool,
    /// True if narrowing fields count as incompatible.
    pub(super) keeps_values: bool,
    /// Pairs of corresponding messages, in the order of discovery.
    pub(super) pairs: Vec<MessagePair<'a>>,
}

/// A message of each side.
pub(super) struct MessagePair<'a> {
    pub(super) here: usize,
    pub(super) there: usize,
    /// Full name of the message on this side.
    pub(super) name: &'a str,
    /// The pair and field this pair was discovered in. `None` for the first pair.
    pub(super) within: Option<(usize, &'a str)>,
}

impl<'a> MessageComparison<'a> {
    /// Compares all pairs. Returns the pair and the field of the first incompatibility, without a field if it concerns
    /// the message.
    pub(super) fn run(&mut self) -> Option<(usize, Option<&'a str>, MismatchReason)> {
        let mut seen: HashSet<_> = self.pairs.iter().map(|pair| (pair.here, pair.there)).collect();
        let (mut next, mut compared) = (0, 0);
        while let Some(pair) = self.pairs.get(next) {
            let (own, other) = (self.here.message(pair.here), self.there.message(pair.there));
            let name = pair.name;
            // The 1 bounds the number of pairs without fields.
            compared += own.field.len() + other.field.len() + 1;
            if compared > FIELDS_MAX {
                return Some((next, None, MismatchReason::TooLarge { message: shown(name) }));
            }
            let others = by_number(other);
            for field in &own.field {
                let Some(other) = others.get(&field.number()) else { continue };
                match self.compare(field, other) {
                    FieldFit::Compatible => {}
                    FieldFit::DependsOn(here, there) => {
                        if seen.insert((here, there)) {
                            let within = Some((next, field.name()));
                            self.pairs.push(MessagePair { here, there, name: field.type_name(), within });
                        }
                    }
                    unfit @ (FieldFit::Narrows | FieldFit::Incompatible) => {
                        let (here, there) = (self.here.type_of(field), self.there.type_of(other));
                        let (at, of) = (Some(field.name()), member(name, field));
                        return Some(match unfit {
                            FieldFit::Narrows => (next, at, MismatchReason::Narrows { field: of, here, there }),
                            _ => (next, at, MismatchReason::Types { field: of, here, there }),
                        });
                    }
                }
            }
            if let Some((first, second)) = self.together(own, other) {
                let (field, is_here) = (second.name(), self.is_writer);
                let [first, second] = [first, second].map(|field| member(name, field));
                return Some((next, Some(field), MismatchReason::Together { first, second, is_here }));
            }
            next += 1;
        }
        None
    }

    fn compare(&self, own: &FieldDescriptorProto, other: &FieldDescriptorProto) -> FieldFit {
        let (written, read) = if self.is_writer { (own, other) } else { (other, own) };
        if is_repeated(written) && !is_repeated(read) {
            return FieldFit::Incompatible;
        }
        match (kind(own), kind(other)) {
            (Some(own_kind @ (EncodingKind::Message | EncodingKind::Group)), other_kind)
                if Some(own_kind) == other_kind =>
            {
                let (own, other) = (self.here.find(own.type_name()), self.there.find(other.type_name()));
                let Some((own, other)) = own.zip(other) else { return FieldFit::Incompatible };
                let entries = [self.here.message(own), self.there.message(other)].map(is_entry);
                let [is_written_map, is_read_map] = if self.is_writer { entries } else { [entries[1], entries[0]] };
                if self.keeps_values && is_read_map && !is_written_map && is_repeated(written) {
                    return FieldFit::Narrows;
                }
                FieldFit::DependsOn(own, other)
            }
            (Some(kind), Some(other)) if kind == other => {
                let holds_all = scalar(written).zip(scalar(read)).is_some_and(|(written, read)| holds(read, written));
                if self.keeps_values && !holds_all { FieldFit::Narrows } else { FieldFit::Compatible }
            }
            _ => FieldFit::Incompatible,
        }
    }

    /// Returns two fields of this side that the writer can set at the same time although they share a oneof on the
    /// reader's side.
    fn together(
        &self,
        own: &'a DescriptorProto,
        other: &'a DescriptorProto,
    ) -> Option<(&'a FieldDescriptorProto, &'a FieldDescriptorProto)> {
        let others = by_number(other);
        let mut firsts = HashMap::new();
        for field in &own.field {
            let Some(other) = others.get(&field.number()) else { continue };
            let (written, read) = if self.is_writer { (field, *other) } else { (*other, field) };
            let Some(choice) = oneof(read) else { continue };
            let (first, before) = *firsts.entry(choice).or_insert((field, oneof(written)));
            if !std::ptr::eq(first, field) && (before.is_none() || before != oneof(written)) {
                return Some((first, field));
            }
        }
        None
    }

    /// Returns the path from the first message to a field.
    pub(super) fn path(&self, at: usize, field: Option<&'a str>) -> String {
        let mut names: Vec<_> = field.into_iter().collect();
        let mut pair = &self.pairs[at];
        while let Some((parent, field)) = pair.within {
            names.push(field);
            pair = &self.pairs[parent];
        }
        let mut path = shown(pair.name.rsplit('.').next().unwrap_or_default());
        let left_out = names.len().saturating_sub(PATH_LEN_MAX);
        // `names` starts with the innermost field, so this drops the outer ones.
        names.truncate(PATH_LEN_MAX);
        if left_out > 0 {
            path += ".…";
        }
        names.iter().rev().for_each(|name| path += &format!(".{}", shown(name)));
        path
    }
}

/// Result of comparing two fields.
enum FieldFit {
    Compatible,
    /// Compatible if this pair of messages is.
    DependsOn(usize, usize),
    /// Compatible, but the reader's type does not hold all values of the writer's.
    Narrows,
    Incompatible,
}

/// Returns the oneof of a field. Ignores the generated oneof of a proto3 `optional` field.
fn oneof(field: &FieldDescriptorProto) -> Option<i32> {
    field.oneof_index.filter(|_| !field.proto3_optional())
}

/// Returns the fields of a message by number. If a number is declared twice, the first field counts.
fn by_number(message: &DescriptorProto) -> HashMap<i32, &FieldDescriptorProto> {
    // In reverse, so the first of several duplicates is inserted last and stays.
    message.field.iter().rev().map(|field| (field.number(), field)).collect()
}

fn member(message: &str, field: &FieldDescriptorProto) -> MessageField {
    MessageField { message: shown(message), name: shown(field.name()), number: field.number() }
}

/// Maximum number of fields in the path of a misfit. Longer paths keep the last ones.
const PATH_LEN_MAX: usize = 16;
