//! Parsing of message fields by name.

use super::{
    error::{ErrorKind, Result},
    reader::Reader,
};

/// The names of a field, and its treatment of `null`.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    json: &'static str,
    proto: &'static str,
    is_nullable: bool,
    is_required: bool,
    /// `true` if the name needs no escapes in JSON.
    is_plain: bool,
}

impl Field {
    /// Creates a field from its names in JSON and in the proto file.
    pub const fn new(json: &'static str, proto: &'static str) -> Self {
        Self { json, proto, is_nullable: false, is_required: false, is_plain: is_plain(json.as_bytes()) }
    }

    /// Creates a field with `null` as a valid value. For other fields, `null` means absent.
    pub const fn nullable(json: &'static str, proto: &'static str) -> Self {
        Self { json, proto, is_nullable: true, is_required: false, is_plain: is_plain(json.as_bytes()) }
    }

    /// Marks the field as required: its absence is an error.
    pub const fn required(self) -> Self {
        Self { is_required: true, ..self }
    }
}

const fn is_plain(mut name: &[u8]) -> bool {
    while let [byte, rest @ ..] = name {
        if *byte < 0x20 || matches!(*byte, b'"' | b'\\') {
            return false;
        }
        name = rest;
    }
    true
}

impl Reader<'_> {
    /// Parses the fields of a message. Calls `read` with the index of each field present, and skips unknown fields.
    pub fn object(&mut self, fields: &[Field], read: &mut dyn FnMut(usize, &mut Self) -> Result<()>) -> Result<()> {
        let is_any = self.take_any();
        let mut seen = SeenFields::new(fields.len() + 1);
        let mut expected = 0;
        let mut is_more = self.begin(b'{', b'}', "an object")?;
        while is_more {
            // Fast path: writers usually send fields in declaration order.
            if let Some(field) = fields.get(expected)
                && field.is_plain
                && self.skip_name(field.json)
            {
                self.field(expected, field, &mut seen, read).map_err(|error| error.in_field(field.json))?;
                expected += 1;
                is_more = self.is_more(b'}')?;
                continue;
            }
            let name = self.name()?;
            if let Some(index) = find(fields, expected, &name) {
                let field = &fields[index];
                self.field(index, field, &mut seen, read).map_err(|error| error.in_field(field.json))?;
                expected = index + 1;
            } else if is_any && name == "@type" {
                seen.add(fields.len()).ok_or_else(|| self.error(ErrorKind::Duplicate).in_field("@type"))?;
                self.skip()?;
            } else {
                let skipped = self.ignore_unknown(|| ErrorKind::UnknownField).and_then(|()| self.skip());
                skipped.map_err(|error| error.in_field(&name))?;
            }
            is_more = self.is_more(b'}')?;
        }
        let missing = (0..).zip(fields).find(|(index, field)| field.is_required && !seen.has(*index));
        missing.map_or(Ok(()), |(_, field)| Err(self.error(ErrorKind::Missing).in_field(field.json)))
    }

    fn field(
        &mut self,
        index: usize,
        field: &Field,
        seen: &mut SeenFields,
        read: &mut dyn FnMut(usize, &mut Self) -> Result<()>,
    ) -> Result<()> {
        seen.add(index).ok_or_else(|| self.error(ErrorKind::Duplicate))?;
        if !field.is_nullable && self.peek() == Some(b'n') {
            if field.is_required {
                return Err(self.error(ErrorKind::Missing));
            }
            return self.null();
        }
        read(index, self)?;
        // An unknown enum name was ignored, so the field keeps its default. A required field must not.
        if self.take_unknown() && field.is_required {
            return Err(self.error(ErrorKind::Missing));
        }
        Ok(())
    }
}

/// Returns the index of a field. The search starts after the last field found, because writers usually keep the order.
#[inline]
fn find(fields: &[Field], expected: usize, name: &str) -> Option<usize> {
    let is_named = |field: &Field| field.json == name || field.proto == name;
    let (before, behind) = fields.split_at(expected.min(fields.len()));
    let index = behind.iter().position(is_named).map(|index| expected + index);
    index.or_else(|| before.iter().position(is_named))
}

/// The set of fields found so far.
pub(in crate::codec) struct SeenFields {
    first: u128,
    others: Vec<u128>,
}

impl SeenFields {
    pub(in crate::codec) fn new(count: usize) -> Self {
        Self { first: 0, others: vec![0; count.saturating_sub(1) / 128] }
    }

    /// Adds a field, or returns `None` if it was there before.
    #[inline]
    pub(in crate::codec) fn add(&mut self, index: usize) -> Option<()> {
        let seen = match index / 128 {
            0 => &mut self.first,
            other => &mut self.others[other - 1],
        };
        let bit = 1 << (index % 128);
        let is_new = *seen & bit == 0;
        *seen |= bit;
        is_new.then_some(())
    }

    /// Returns `true` if the field was found.
    pub(in crate::codec) fn has(&self, index: usize) -> bool {
        let seen = match index / 128 {
            0 => self.first,
            other => self.others[other - 1],
        };
        seen & (1 << (index % 128)) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::json::{Message, Writer, from_str};

    #[derive(Default)]
    struct Odd(String);

    impl Message for Odd {
        const NAME: &'static str = "odd.Odd";

        fn encode_json(&self, _: &mut Writer) {}

        fn decode_json(&mut self, input: &mut Reader<'_>) -> Result<()> {
            input.object(&[Field::new(r"a\n", "a")], &mut |_, input| input.string(&mut self.0))
        }
    }

    #[test]
    fn escaped_field_names_match_exactly() {
        assert_eq!(from_str::<Odd>(r#"{"a\\n": "x"}"#).unwrap().0, "x");
        assert_eq!(from_str::<Odd>(r#"{"a\n": "x"}"#).unwrap().0, "");
        assert_eq!(from_str::<Odd>(r#"{ "a" : "x\ty\u00e4" }"#).unwrap().0, "x\ty\u{e4}");
    }

    #[test]
    fn skipped_values_are_checked_like_others() {
        assert!(from_str::<Odd>(r#"{"x": [{"\ud83d\ude00": "\u00e4"}, -0.5e7]}"#).is_ok());
        for (text, error) in [
            (r#"{"x": ["a", "\n\ud83d"]}"#, "odd.Odd.x: not an escape (at byte 15)"),
            (r#"{"x": [tru]}"#, "odd.Odd.x: expected a value, found true or false (at byte 7)"),
            (r#"{"x": [1"#, "odd.Odd.x: the JSON ends here (at byte 8)"),
            (r#"{"x": 1.}"#, "odd.Odd.x: expected a digit, found a closing brace (at byte 8)"),
        ] {
            assert_eq!(
                from_str::<Odd>(text).map(|odd| odd.0).map_err(|error| error.to_string()),
                Err(error.to_owned())
            );
        }
    }
}
