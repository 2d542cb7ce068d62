//! The members of messages of any type: fields that may be absent, lists, maps, messages.

use std::ops::Range;

use super::{
    error::{ErrorKind, Result},
    message::Message,
    reader::Reader,
    scalar::Key,
    writer::Writer,
};
use crate::codec::polyglot::Entries;

impl Writer {
    /// Writes a value.
    #[inline]
    pub fn value<T: Message>(&mut self, value: &T) {
        value.encode_json(self);
    }

    /// Writes a message in another one.
    pub fn message<M: Message>(&mut self, message: &M) {
        if self.enter() {
            message.encode_json(self);
            self.leave();
        }
    }

    /// Writes a field that may be absent.
    #[inline]
    pub fn optional<T>(&mut self, name: &str, value: Option<&T>, write: impl FnOnce(&mut Self, &T)) {
        if let Some(value) = value {
            self.present(name, value, write);
        }
    }

    /// Writes a field that is there, whatever its value.
    pub fn present<T: ?Sized>(&mut self, name: &str, value: &T, write: impl FnOnce(&mut Self, &T)) {
        if self.begin_field(name) {
            write(self, value);
            self.end_field(name);
        }
    }

    /// Writes a list, unless it is empty.
    pub fn list<T>(&mut self, name: &str, items: &[T], write: impl Fn(&mut Self, &T)) {
        if !items.is_empty() && self.begin_field(name) {
            self.items(items, write);
            self.end_field(name);
        }
    }

    /// Writes the items of a list.
    pub fn items<T>(&mut self, items: &[T], write: impl Fn(&mut Self, &T)) {
        self.open_list();
        for (index, item) in items.iter().enumerate() {
            self.begin_item();
            write(self, item);
            if self.is_failed() {
                self.fail_at_index(index);
                return;
            }
        }
        self.close_list();
    }

    /// Writes a map, unless it is empty.
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
        self.open_map();
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

    /// Begins an entry of a map, and returns where its key stands.
    fn key<K: Key>(&mut self, key: &K) -> Range<usize> {
        let start = self.begin_entry();
        key.encode_key(self);
        start..self.end_key()
    }
}

impl Reader<'_> {
    /// Reads a message in another one.
    pub fn message<M: Message>(&mut self, into: &mut M) -> Result<()> {
        self.enter(M::STACK_LEN)?;
        into.decode_json(self)?;
        self.leave(M::STACK_LEN);
        Ok(())
    }

    /// Reads a field that may be absent.
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

    /// Reads a message that may be absent.
    pub fn optional_message<M: Message>(&mut self, into: &mut Option<M>) -> Result<()> {
        self.message(set_default(into))
    }

    /// Reads a member of a oneof, which `variant` makes of its value, by a function that reads a field that may be absent.
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

    /// Reads a list.
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

    /// Reads a map.
    pub fn map<K: Key, V: Default, C: Entries<K, V>>(
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

    /// Reads the entries of a map: `read` gets the key of each, and returns whether it is new.
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
            // As with lists, for a table that doubles.
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

/// Keeps the code that sets hundreds of fields, and the message on its way to a box, out of recursive functions.
#[inline(never)]
fn set_default<T: Default>(into: &mut Option<T>) -> &mut T {
    into.insert(T::default())
}
