//! Messages with masked fields, and the tree of the fields to select. frisbee-rpc-build generates the implementations.

use std::collections::BTreeMap;

use prost_types::FieldMask;

/// A message with fields that a mask can select. frisbee-rpc-build implements it with `configure().field_masks(true)`.
pub trait MaskedMessage: prost::Message + Default {
    /// The full name of the message in the proto file.
    const NAME: &'static str;

    /// The fields, including the members of oneofs.
    const FIELDS: &'static [MaskedField];

    /// Resets all fields outside the mask.
    fn project_fields(&mut self, mask: &MaskNode<'_>);

    /// Updates the fields in the mask.
    fn merge_fields(&mut self, from: Self, mask: &MaskNode<'_>, options: MergeOptions);
}

/// The name of a field, and the fields inside it.
#[derive(Clone, Copy, Debug)]
pub struct MaskedField {
    pub(super) name: &'static str,
    /// The full name of its type, if that is a message with masked fields.
    pub(super) message: &'static str,
    /// A function, because messages may contain themselves.
    pub(super) fields: Option<fn() -> &'static [MaskedField]>,
}

impl MaskedField {
    /// Creates a field that has no fields inside: a scalar, a list, a map, or a well-known type.
    pub const fn new(name: &'static str) -> Self {
        Self { name, message: "", fields: None }
    }

    /// Creates a field that is a single message.
    pub const fn message<M: MaskedMessage>(name: &'static str) -> Self {
        Self { name, message: M::NAME, fields: Some(fields_of::<M>) }
    }
}

fn fields_of<M: MaskedMessage>() -> &'static [MaskedField] {
    M::FIELDS
}

/// The treatment of messages, lists and maps by [`merge`](super::merge). The defaults are the same as in protobuf's
/// `FieldMaskUtil`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeOptions {
    /// `true` to replace or clear a message at the end of a path, instead of merging it. Default: `false`.
    pub replace_messages: bool,
    /// `true` to replace lists and maps, instead of appending to them. Default: `false`.
    pub replace_repeated: bool,
}

impl<M: MaskedMessage> MaskedMessage for Box<M> {
    const NAME: &'static str = M::NAME;
    const FIELDS: &'static [MaskedField] = M::FIELDS;

    fn project_fields(&mut self, mask: &MaskNode<'_>) {
        (**self).project_fields(mask);
    }

    fn merge_fields(&mut self, from: Self, mask: &MaskNode<'_>, options: MergeOptions) {
        (**self).merge_fields(*from, mask, options);
    }
}

/// The selected fields of a message, for generated code.
#[derive(Debug, Default)]
pub struct MaskNode<'a> {
    /// `true` if the whole message is selected, so that its fields do not matter.
    is_whole: bool,
    fields: BTreeMap<&'a str, MaskNode<'a>>,
}

impl<'a> MaskNode<'a> {
    /// Creates the tree of a checked mask. The check limits its depth.
    pub(super) fn of(mask: &'a FieldMask) -> Self {
        let mut root = Self::default();
        for path in &mask.paths {
            let mut node = &mut root;
            for part in path.split('.') {
                node = node.fields.entry(part).or_default();
            }
            node.is_whole = true;
        }
        root
    }

    pub(super) fn project_all<M: MaskedMessage>(&self, message: &mut M) {
        if !self.is_whole {
            message.project_fields(self);
        }
    }

    /// Returns `true` if a field or a part of it is selected.
    pub fn has(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    /// Resets a field that is not selected.
    pub fn project_value<T: Default>(&self, field: &str, value: &mut T) {
        if !self.has(field) {
            *value = T::default();
        }
    }

    /// Resets a message that is not selected, or its fields outside the mask.
    pub fn project_message<M: MaskedMessage>(&self, field: &str, value: &mut Option<M>) {
        match (self.fields.get(field), &mut *value) {
            (Some(node), Some(message)) => node.project_all(message),
            (Some(_), None) => {}
            (None, _) => *value = None,
        }
    }

    /// Resets a required message that is not selected, or its fields outside the mask.
    pub fn project_required<M: MaskedMessage>(&self, field: &str, value: &mut M) {
        match self.fields.get(field) {
            Some(node) => node.project_all(value),
            None => *value = M::default(),
        }
    }

    /// Returns `true` if a member of a oneof is selected. Resets its fields outside the mask.
    pub fn project_member<M: MaskedMessage>(&self, field: &str, value: &mut M) -> bool {
        let node = self.fields.get(field);
        node.inspect(|node| node.project_all(value)).is_some()
    }

    /// Replaces a selected field.
    pub fn merge_value<T>(&self, field: &str, into: &mut T, from: T) {
        if self.has(field) {
            *into = from;
        }
    }

    /// Appends to a selected list or map, or replaces it.
    pub fn merge_repeated<T, I>(&self, field: &str, into: &mut T, from: T, options: MergeOptions)
    where
        T: IntoIterator<Item = I> + Extend<I>,
    {
        if self.has(field) {
            if options.replace_repeated {
                *into = from;
            } else {
                into.extend(from);
            }
        }
    }

    /// Merges a selected message, or replaces it.
    pub fn merge_message<M: MaskedMessage>(
        &self,
        field: &str,
        into: &mut Option<M>,
        from: Option<M>,
        options: MergeOptions,
    ) {
        match self.fields.get(field) {
            Some(node) if node.is_whole && options.replace_messages => *into = from,
            Some(node) => match (into.as_mut(), from) {
                (Some(into), Some(from)) => node.merge_into(into, from, options),
                // The fields in the mask are cleared, but a whole message without a value is not.
                (Some(into), None) if !node.is_whole => into.merge_fields(M::default(), node, options),
                (None, Some(from)) => node.merge_into(into.get_or_insert_default(), from, options),
                (_, None) => {}
            },
            None => {}
        }
    }

    /// Merges a selected message that is always there, or replaces it.
    pub fn merge_required<M: MaskedMessage>(&self, field: &str, into: &mut M, from: M, options: MergeOptions) {
        if let Some(node) = self.fields.get(field) {
            node.merge_into(into, from, options);
        }
    }

    /// Returns `true` if a member of a oneof is cleared, because it is selected but has no value. Clears its fields in
    /// the mask otherwise.
    pub fn clears_member<M: MaskedMessage>(&self, field: &str, value: &mut M, options: MergeOptions) -> bool {
        match self.fields.get(field) {
            Some(node) if node.is_whole => options.replace_messages,
            Some(node) => {
                value.merge_fields(M::default(), node, options);
                false
            }
            None => false,
        }
    }

    fn merge_into<M: MaskedMessage>(&self, into: &mut M, from: M, options: MergeOptions) {
        if !self.is_whole {
            into.merge_fields(from, self, options);
        } else if options.replace_messages {
            *into = from;
        } else {
            // protobuf defines the merge of messages by their encoding.
            let merged = into.merge(&from.encode_to_vec()[..]);
            // Messages nested more deeply than prost decodes are replaced.
            if merged.is_err() {
                *into = from;
            }
        }
    }
}
