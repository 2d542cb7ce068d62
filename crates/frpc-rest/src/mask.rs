//! The field mask of a PATCH request, taken from its body.

use frpc_json::{Splitter, text::unescape};

use crate::{
    params::{ParamFields, ParamNode, RequestError},
    types::{MessageInfo, TypeTable, ValueKind, WellKnown},
    values::json_mask,
};

/// Sets the field `update_mask` to the members of the body, if the message has this field and the request does not set
/// it. `text` must be valid JSON, which the caller has checked.
///
/// # Errors
///
/// If the mask is too long.
pub(crate) fn complete(
    types: &TypeTable,
    message: &MessageInfo,
    body: usize,
    text: &str,
    fields: &mut ParamFields,
) -> Result<(), RequestError> {
    let is_mask = |of: &ValueKind| *of == ValueKind::Message("google.protobuf.FieldMask".to_owned());
    let index = message.index_of("update_mask").filter(|index| is_mask(&message.fields[*index].of));
    let of = message.fields[body].message().and_then(|of| types.message(of));
    let (Some(index), Some(of)) = (index.filter(|index| !fields.contains_key(index)), of) else { return Ok(()) };
    let mut mask = MaskBuilder { types, mask: String::new(), path: String::new() };
    mask.add(of, text)?;
    fields.insert(index, ParamNode::Values(vec![mask.mask]));
    Ok(())
}

struct MaskBuilder<'a> {
    types: &'a TypeTable,
    mask: String,
    path: String,
}

impl MaskBuilder<'_> {
    fn add(&mut self, message: &MessageInfo, text: &str) -> Result<(), RequestError> {
        let mut members = Splitter::new(text);
        if members.next_byte() != Some(b'{') {
            return Ok(());
        }
        while members.peek().is_some_and(|byte| byte != b'}') {
            let Some(name) = members.value() else { break };
            members.next_byte();
            let Some(value) = members.value() else { break };
            if members.peek() == Some(b',') {
                members.next_byte();
            }
            let name = name.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
            let index = name.and_then(unescape).and_then(|name| message.index_of(&name));
            let Some(field) = index.map(|index| &message.fields[index]) else { continue };
            let len = self.path.len();
            if len > 0 {
                self.path.push('.');
            }
            self.path.push_str(&json_mask(&field.name));
            let inner = field.message().filter(|name| field.shape.is_one() && WellKnown::of(name).is_none());
            match inner.and_then(|name| self.types.message(name)) {
                Some(inner) if has_members(value) => self.add(inner, value)?,
                _ => self.put()?,
            }
            self.path.truncate(len);
        }
        Ok(())
    }

    fn put(&mut self) -> Result<(), RequestError> {
        if self.mask.len() + self.path.len() > MASK_LEN_MAX {
            let text =
                format!("the body has too many fields for a field mask of {MASK_LEN_MAX} bytes: set `update_mask`");
            return Err(text.into());
        }
        if !self.mask.is_empty() {
            self.mask.push(',');
        }
        self.mask.push_str(&self.path);
        Ok(())
    }
}

/// Returns `true` for an object that is not empty.
fn has_members(text: &str) -> bool {
    let mut members = Splitter::new(text);
    members.next_byte() == Some(b'{') && members.peek() != Some(b'}')
}

/// The maximum length of a mask made from a body.
const MASK_LEN_MAX: usize = 64 << 10;
