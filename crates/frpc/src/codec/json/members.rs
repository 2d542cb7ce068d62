//! The members of messages of any type: fields that may be absent, lists, maps, messages, enums.

use super::{
    error::{ErrorKind, Result},
    message::{Enumeration, Key, Message},
    reader::Reader,
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

    /// Writes the name of an enum value, or its number if it has no name.
    pub fn name_of<E: Enumeration>(&mut self, number: &i32) {
        if E::IS_NULL {
            self.null();
        } else {
            self.put_name_of(E::NAMES, *number);
        }
    }

    /// Writes a field of an enum's type.
    pub fn enumeration<E: Enumeration>(&mut self, name: &str, number: i32) {
        if number != 0 {
            self.name(name);
            self.name_of::<E>(&number);
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
        if self.is_failed() {
            return;
        }
        self.name(name);
        write(self, value);
        if self.is_failed() {
            self.tell(|error| error.in_field(name));
        }
    }

    /// Writes a list, unless it is empty.
    pub fn list<T>(&mut self, name: &str, items: &[T], write: impl Fn(&mut Self, &T)) {
        if !items.is_empty() {
            self.present(name, items, |out, items| out.items(items, write));
        }
    }

    /// Writes the items of a list.
    pub fn items<T>(&mut self, items: &[T], write: impl Fn(&mut Self, &T)) {
        self.put(b"[");
        for (index, item) in items.iter().enumerate() {
            self.comma(b'[');
            write(self, item);
            if self.is_failed() {
                self.tell(|error| error.at_index(index));
                return;
            }
        }
        self.put(b"]");
    }

    /// Writes a map, unless it is empty.
    pub fn map<'a, K, V, C>(&mut self, name: &str, map: &'a C, write: impl Fn(&mut Self, &V))
    where
        K: Key + 'a,
        V: 'a,
        &'a C: IntoIterator<Item = (&'a K, &'a V)>,
    {
        if map.into_iter().next().is_some() {
            self.present(name, map, |out, _| out.entries(map, write));
        }
    }

    /// Writes the entries of a map.
    pub fn entries<'a, K, V, C>(&mut self, map: &'a C, write: impl Fn(&mut Self, &V))
    where
        K: Key + 'a,
        V: 'a,
        &'a C: IntoIterator<Item = (&'a K, &'a V)>,
    {
        self.put(b"{");
        for (key, value) in map {
            self.comma(b'{');
            let start = self.len();
            key.encode_key(self);
            let key = start..self.len();
            self.put(b":");
            write(self, value);
            if self.is_failed() {
                let key = self.written(key);
                self.tell(|error| error.in_field(&key));
                return;
            }
        }
        self.put(b"}");
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

    /// Reads the number or the name of an enum value.
    pub fn enumeration<E: Enumeration>(&mut self, into: &mut i32) -> Result<()> {
        if E::IS_NULL && self.peek() == Some(b'n') {
            return self.null();
        }
        self.number_of(E::NUMBERS, into)
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

    /// Reads a member of a oneof, which `variant` makes of its value.
    pub fn member<O, T: Default>(
        &mut self,
        into: &mut Option<O>,
        variant: impl FnOnce(T) -> O,
        read: impl FnOnce(&mut Self, &mut T) -> Result<()>,
    ) -> Result<()> {
        if into.is_some() {
            return Err(self.error(ErrorKind::OneofTwice));
        }
        let mut value = None;
        self.optional(&mut value, read)?;
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
            self.push_default(into)?;
            read(self, &mut into[index]).map_err(|error| error.at_index(index))?;
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
        self.enter(0)?;
        let (mut count, mut charged) = (0, 0);
        let mut is_more = self.begin(b'{', b'}', "an object")?;
        while is_more {
            let name = self.name()?;
            count += 1;
            let len = C::allocated_len(count);
            // As with lists, for a table that doubles.
            self.charge((len - charged) * 2 + name.len())?;
            charged = len;
            let key = K::decode_key(&name).ok_or_else(|| self.invalid("a key of this map").at_key(&name))?;
            let mut value = V::default();
            read(self, &mut value).map_err(|error| error.at_key(&name))?;
            if !self.take_unknown() && !into.add(key, value) {
                return Err(self.error(ErrorKind::Duplicate).at_key(&name));
            }
            is_more = self.is_more(b'}')?;
        }
        self.leave(0);
        Ok(())
    }

    fn push_default<T: Default>(&mut self, list: &mut Vec<T>) -> Result<()> {
        self.reserve(list)?;
        list.push(T::default());
        Ok(())
    }
}

/// Keeps the code that sets hundreds of fields, and the message on its way to a box, out of recursive functions.
#[inline(never)]
fn set_default<T: Default>(into: &mut Option<T>) -> &mut T {
    into.insert(T::default())
}
