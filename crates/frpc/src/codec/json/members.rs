//! Members of JSON objects: optional fields, oneofs, lists, maps and nested messages.

use std::ops::Range;

use super::{
    error::{ErrorKind, Result},
    message::Message,
    reader::Reader,
    scalar::Key,
    writer::Writer,
};
use crate::codec::polyglot::MapEntries;

impl Writer {
    /// Writes a value without a name.
    #[inline]
    pub fn value<T: Message>(&mut self, value: &T) {
        value.encode_json(self);
    }

    /// Writes a nested message.
    pub fn message<M: Message>(&mut self, message: &M) {
        if self.enter() {
            message.encode_json(self);
            self.leave();
        }
    }

    /// Writes an optional field. Writes nothing for `None`.
    #[inline]
    pub fn optional<T>(&mut self, name: &str, value: Option<&T>, write: impl FnOnce(&mut Self, &T)) {
        if let Some(value) = value {
            self.present(name, value, write);
        }
    }

    /// Writes a field even if it has the default value.
    pub fn present<T: ?Sized>(&mut self, name: &str, value: &T, write: impl FnOnce(&mut Self, &T)) {
        if self.begin_field(name) {
            write(self, value);
            self.end_field(name);
        }
    }

    /// Writes a list field. Writes nothing for an empty list.
    pub fn list<T>(&mut self, name: &str, items: &[T], write: impl Fn(&mut Self, &T)) {
        if !items.is_empty() && self.begin_field(name) {
            self.items(items, write);
            self.end_field(name);
        }
    }

    /// Writes the elements of a list.
    pub fn items<T>(&mut self, items: &[T], write: impl Fn(&mut Self, &T)) {
        self.put(b"[");
        for (index, item) in items.iter().enumerate() {
            self.comma(b'[');
            write(self, item);
            if self.is_failed() {
                self.fail_at_index(index);
                return;
            }
        }
        self.put(b"]");
    }

    /// Writes a map field. Writes nothing for an empty map.
    pub fn map<'a, K: Key + 'a, V: 'a>(
        &mut self,
        name: &str,
        entries: impl IntoIterator<Item = (&'a K, &'a V), IntoIter: ExactSizeIterator>,
        write: impl Fn(&mut Self, &V),
    ) {
        let entries = entries.into_iter();
        if entries.len() > 0 && self.begin_field(name) {
            self.entries(entries, write);
            self.end_field(name);
        }
    }

    /// Writes the entries of a map.
    pub fn entries<'a, K: Key + 'a, V: 'a>(
        &mut self,
        entries: impl IntoIterator<Item = (&'a K, &'a V)>,
        write: impl Fn(&mut Self, &V),
    ) {
        self.put(b"{");
        for (key, value) in entries {
            let key = self.key(key);
            write(self, value);
            if self.is_failed() {
                self.fail_at_key(key);
                return;
            }
        }
        self.end();
    }

    /// Starts a map entry. Returns the range of its key in the output, for errors.
    fn key<K: Key>(&mut self, key: &K) -> Range<usize> {
        let start = self.begin_entry();
        key.encode_key(self);
        start..self.end_key()
    }
}

impl Reader<'_> {
    /// Parses a nested message.
    pub fn message<M: Message>(&mut self, into: &mut M) -> Result<()> {
        self.enter(M::STACK_LEN)?;
        into.decode_json(self)?;
        self.leave(M::STACK_LEN);
        Ok(())
    }

    /// Parses an optional field. An ignored enum name leaves it unset.
    pub fn optional<T: Default>(
        &mut self,
        into: &mut Option<T>,
        read: impl FnOnce(&mut Self, &mut T) -> Result<()>,
    ) -> Result<()> {
        read(self, set_default(into))?;
        if self.take_unknown() {
            *into = None;
        }
        Ok(())
    }

    /// Parses an optional message.
    pub fn optional_message<M: Message>(&mut self, into: &mut Option<M>) -> Result<()> {
        self.message(set_default(into))
    }

    /// Parses a oneof member with `read`, a function for an optional field, and converts its value with `variant`.
    pub fn member<O, T>(
        &mut self,
        into: &mut Option<O>,
        variant: impl FnOnce(T) -> O,
        read: impl FnOnce(&mut Self, &mut Option<T>) -> Result<()>,
    ) -> Result<()> {
        if into.is_some() {
            return Err(self.error(ErrorKind::OneofTwice));
        }
        let mut value = None;
        read(self, &mut value)?;
        *into = value.map(variant);
        Ok(())
    }

    /// Parses a list.
    pub fn list<T: Default>(
        &mut self,
        into: &mut Vec<T>,
        mut read: impl FnMut(&mut Self, &mut T) -> Result<()>,
    ) -> Result<()> {
        let mut is_more = self.begin(b'[', b']', "a list")?;
        while is_more {
            let index = into.len();
            self.reserve(into)?;
            into.push(T::default());
            if let Err(error) = read(self, &mut into[index]) {
                return Err(error.at_index(index));
            }
            if self.take_unknown() {
                into.pop();
            }
            is_more = self.is_more(b']')?;
        }
        Ok(())
    }

    /// Parses a map.
    pub fn map<K: Key, V: Default, C: MapEntries<K, V>>(
        &mut self,
        into: &mut C,
        mut read: impl FnMut(&mut Self, &mut V) -> Result<()>,
    ) -> Result<()> {
        self.read_entries(C::allocated_len, &mut |input, name| {
            let Some(key) = K::decode_key(name) else { return Err(input.invalid("a key of this map")) };
            let mut value = V::default();
            read(input, &mut value)?;
            Ok(input.take_unknown() || into.add(key, value))
        })
    }

    /// Parses map entries. `read` parses the value for a key and returns `false` for a duplicate key.
    fn read_entries(
        &mut self,
        allocated_len: fn(usize) -> usize,
        read: &mut dyn FnMut(&mut Self, &str) -> Result<bool>,
    ) -> Result<()> {
        self.enter(0)?;
        let (mut count, mut charged) = (0, 0);
        let mut is_more = self.begin(b'{', b'}', "an object")?;
        while is_more {
            let name = self.name()?;
            count += 1;
            let len = allocated_len(count);
            // Counts twice the growth: the old and the new table coexist during a reallocation.
            self.charge((len - charged) * 2 + name.len())?;
            charged = len;
            let is_new = read(self, &name).map_err(|error| error.at_key(&name))?;
            if !is_new {
                return Err(self.error(ErrorKind::Duplicate).at_key(&name));
            }
            is_more = self.is_more(b'}')?;
        }
        self.leave(0);
        Ok(())
    }
}

/// Not inlined: setting hundreds of fields takes code, and moving a message into a box takes stack. Neither belongs in
/// a recursive function.
#[inline(never)]
fn set_default<T: Default>(into: &mut Option<T>) -> &mut T {
    into.insert(T::default())
}
