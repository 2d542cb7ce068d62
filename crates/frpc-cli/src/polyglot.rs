//! Messages of plain fRPC, whose types are learned while the program runs: what frpc-build generates for them, as values.
//!
//! The order of fields, positions and operations are those of [`frpc_schema`], the bytes those of [`frpc::codec`].

use std::{collections::HashMap, hash::Hash};

use bytes::Bytes;
use frpc::codec::{self, At, Choice, Content, DecodeError, Kind, Positions, Presence, Reader, Result, Writer};
use frpc_schema::{Field, Message, Options, PositionTables, Schema, Shape, Type, prost_types::FileDescriptorSet};
use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind as FieldKind, MapKey, MessageDescriptor, ReflectMessage, Value,
};

/// The layouts of messages and the operations of methods, by their full names.
#[derive(Debug)]
pub(crate) struct Layouts {
    messages: HashMap<String, Message>,
    enums: HashMap<String, Enum>,
    operations: HashMap<String, u16>,
}

/// The tables of an enum. Those between numbers and positions are empty if each number is its position.
#[derive(Debug)]
struct Enum {
    numbers: Vec<i32>,
    positions: Vec<(i32, u32)>,
    unknown: Vec<(u32, i32)>,
}

impl Layouts {
    /// Reads what some files declare, which have to be there with everything that they import.
    pub(crate) fn read(files: &FileDescriptorSet, options: &Options) -> Result<Self, frpc_schema::Error> {
        let mut layouts = Self { messages: HashMap::new(), enums: HashMap::new(), operations: HashMap::new() };
        for package in Schema::read(files, options)?.packages {
            let messages = package.messages.into_iter();
            layouts.messages.extend(messages.map(|message| (message.full_name.clone(), message)));
            let enums = package.enums.into_iter();
            layouts.enums.extend(enums.map(|declared| (declared.full_name.clone(), Enum::of(&declared))));
            let methods = package.services.into_iter().flat_map(|service| service.methods);
            layouts.operations.extend(methods.map(|method| (method.path, method.operation)));
        }
        Ok(layouts)
    }

    /// Returns the operation of a method by its path, `package.Service/Method`.
    pub(crate) fn operation(&self, path: &str) -> Option<u16> {
        self.operations.get(path).copied()
    }

    /// Returns the bytes of a message.
    pub(crate) fn encode(&self, message: &DynamicMessage) -> Bytes {
        codec::encode_with(|out| self.write_fields(message, out))
    }

    /// Reads a message, or the error in its place.
    pub(crate) fn decode(
        &self,
        shape: &MessageDescriptor,
        content: &Bytes,
    ) -> Result<Content<DynamicMessage>, DecodeError> {
        let make = || DynamicMessage::new(shape.clone());
        let name = shape.full_name().strip_prefix(shape.package_name()).unwrap_or(shape.full_name());
        codec::decode_with(content, name.trim_start_matches('.'), make, |message, input| {
            self.read_fields(message, input)
        })
    }

    fn layout(&self, shape: &MessageDescriptor) -> &Message {
        &self.messages[shape.full_name()]
    }

    /// Returns the tables of an enum. Other types have none, and need none.
    fn positions(&self, of: &Type) -> Positions<'_> {
        match of {
            Type::Enum(name) => {
                let Enum { numbers, positions, unknown } = &self.enums[name];
                Positions::new(numbers, positions, unknown)
            }
            _ => Positions::new(&[], &[], &[]),
        }
    }
}

impl Enum {
    fn of(declared: &frpc_schema::Enum) -> Self {
        let numbers = declared.values.iter().map(|value| value.number).collect();
        let (positions, unknown) =
            PositionTables::of(declared).map(|tables| (tables.positions, tables.unknown)).unwrap_or_default();
        Self { numbers, positions, unknown }
    }
}

/// Writing.
impl Layouts {
    fn write_fields(&self, message: &DynamicMessage, out: &mut Writer<Vec<u8>>) {
        let shape = message.descriptor();
        for field in &self.layout(&shape).fields {
            let declared = declared(&shape, field);
            // A field that is unset has the default of its type.
            let value = message.get_field(&declared);
            match &field.shape {
                Shape::Always(of) => self.write(out, of, &value),
                Shape::Optional(of) | Shape::Member(_, of) => {
                    self.write_optional(out, of, message.has_field(&declared).then_some(&*value));
                }
                Shape::List(of) => {
                    let items = value.as_list().unwrap_or_default();
                    out.list(kind(of), items, |out, item| self.write(out, of, item));
                }
                Shape::Map(key, of) => {
                    let entries = value.as_map().into_iter().flatten().collect::<Vec<_>>().into_iter();
                    out.map((kind(key), kind(of)), entries, write_key, |out, value| self.write(out, of, value));
                }
            }
        }
    }

    fn write(&self, out: &mut Writer<Vec<u8>>, of: &Type, value: &Value) {
        match value {
            Value::Bool(value) => out.bool(*value),
            Value::I32(value) => out.i32(*value),
            Value::I64(value) => out.i64(*value),
            Value::U32(value) => out.u32(*value),
            Value::U64(value) => out.u64(*value),
            Value::F32(value) => out.f32(*value),
            Value::F64(value) => out.f64(*value),
            Value::String(value) => out.string(value),
            Value::Bytes(value) => out.bytes(value),
            Value::EnumNumber(number) => out.enumeration_in(self.positions(of), *number),
            Value::Message(message) => out.message_with(|out| self.write_fields(message, out)),
            Value::List(_) | Value::Map(_) => unreachable!("neither holds another, nor does a field that is none"),
        }
    }

    fn write_optional(&self, out: &mut Writer<Vec<u8>>, of: &Type, value: Option<&Value>) {
        match of {
            Type::Bool => out.optional(value.and_then(Value::as_bool).as_ref(), |out, value| out.bool(*value)),
            Type::I32 => out.optional(value.and_then(Value::as_i32).as_ref(), |out, value| out.i32(*value)),
            Type::I64 => out.optional(value.and_then(Value::as_i64).as_ref(), |out, value| out.i64(*value)),
            Type::U32 => out.optional(value.and_then(Value::as_u32).as_ref(), |out, value| out.u32(*value)),
            Type::U64 => out.optional(value.and_then(Value::as_u64).as_ref(), |out, value| out.u64(*value)),
            Type::F32 => out.optional(value.and_then(Value::as_f32).as_ref(), |out, value| out.f32(*value)),
            Type::F64 => out.optional(value.and_then(Value::as_f64).as_ref(), |out, value| out.f64(*value)),
            Type::String => {
                let text = value.and_then(Value::as_str).map(str::to_owned);
                out.optional(text.as_ref(), |out, text| out.string(text));
            }
            Type::Bytes => out.optional(value.and_then(Value::as_bytes), |out, bytes| out.bytes(bytes)),
            Type::Enum(_) => {
                let positions = self.positions(of);
                let number = value.and_then(Value::as_enum_number);
                out.optional(number.as_ref(), |out, number| out.enumeration_in(positions, *number));
            }
            Type::Message(_) => match value {
                Some(value) => self.write(out, of, value),
                None => out.nil(),
            },
        }
    }
}

fn write_key(out: &mut Writer<Vec<u8>>, key: &MapKey) {
    match key {
        MapKey::Bool(key) => out.bool(*key),
        MapKey::I32(key) => out.i32(*key),
        MapKey::I64(key) => out.i64(*key),
        MapKey::U32(key) => out.u32(*key),
        MapKey::U64(key) => out.u64(*key),
        MapKey::String(key) => out.string(key),
    }
}

/// Reading. Lists and maps are read into the types that generated code has for them, so that the memory they may take is bounded
/// as it is there.
impl Layouts {
    fn read_fields(&self, message: &mut DynamicMessage, input: &mut Reader<'_>) -> Result<()> {
        let shape = message.descriptor();
        let layout = self.layout(&shape);
        let mut members = vec![None; layout.oneofs.len()];
        let mut choices: Vec<_> = members.iter_mut().map(Choice::new).collect();
        for field in &layout.fields {
            let declared = declared(&shape, field);
            let value = self.read_field(input, field, &declared).at(&field.name)?;
            if let Shape::Member(oneof, _) = field.shape {
                let place = layout.oneofs[oneof].members.iter().position(|member| *member == field.name);
                choices[oneof].set(place.unwrap_or_default(), value.map(|value| (declared, value)));
            } else if let Some(value) = value.filter(|value| is_set(value, &declared)) {
                message.set_field(&declared, value);
            }
        }
        for (declared, value) in members.into_iter().flatten() {
            message.set_field(&declared, value);
        }
        Ok(())
    }

    fn read_field(&self, input: &mut Reader<'_>, field: &Field, declared: &FieldDescriptor) -> Result<Option<Value>> {
        match (&field.shape, declared.kind()) {
            (Shape::Always(_), FieldKind::Message(shape)) => {
                let message = self.read_message(input, &shape)?.unwrap_or_else(|| DynamicMessage::new(shape));
                Ok(Some(Value::Message(message)))
            }
            (Shape::Optional(_) | Shape::Member(..), FieldKind::Message(shape)) => {
                Ok(self.read_message(input, &shape)?.map(Value::Message))
            }
            (Shape::List(_), FieldKind::Message(shape)) => self.read_messages(input, &shape).map(Some),
            (Shape::Map(key, of), FieldKind::Message(entry)) => {
                self.read_map(input, (key, of), &entry.map_entry_value_field()).map(Some)
            }
            (shape, _) => self.read_plain_field(input, shape),
        }
    }

    /// Reads a field that holds no messages.
    fn read_plain_field(&self, input: &mut Reader<'_>, shape: &Shape) -> Result<Option<Value>> {
        match shape {
            Shape::Always(of) => by_type!(of, read_one(input, self.positions(of))).map(Some),
            Shape::Optional(of) | Shape::Member(_, of) => by_type!(of, read_optional(input, self.positions(of))),
            Shape::List(of) => by_type!(of, read_list(input, kind(of), self.positions(of))).map(Some),
            Shape::Map(..) => unreachable!("the entries of maps are messages"),
        }
    }

    /// Reads a message, or `None` if it is nil.
    fn read_message(&self, input: &mut Reader<'_>, shape: &MessageDescriptor) -> Result<Option<DynamicMessage>> {
        input.message_with(|input| {
            let mut message = DynamicMessage::new(shape.clone());
            self.read_fields(&mut message, input)?;
            Ok(message)
        })
    }

    fn read_messages(&self, input: &mut Reader<'_>, shape: &MessageDescriptor) -> Result<Value> {
        let mut items = Vec::new();
        input.list(Kind::Any, &mut items, |input, item| self.read_message(input, shape).map(|read| *item = read))?;
        Ok(Value::List(items.into_iter().map(|item| message_or_default(item, shape)).collect()))
    }

    fn read_map(&self, input: &mut Reader<'_>, of: (&Type, &Type), value: &FieldDescriptor) -> Result<Value> {
        match of.0 {
            Type::Bool => self.read_map_by::<bool>(input, of, value),
            Type::I32 => self.read_map_by::<i32>(input, of, value),
            Type::I64 => self.read_map_by::<i64>(input, of, value),
            Type::U32 => self.read_map_by::<u32>(input, of, value),
            Type::U64 => self.read_map_by::<u64>(input, of, value),
            Type::String => self.read_map_by::<String>(input, of, value),
            _ => unreachable!("a map has no other keys"),
        }
    }

    fn read_map_by<K: Native + Eq + Hash>(
        &self,
        input: &mut Reader<'_>,
        (key, of): (&Type, &Type),
        value: &FieldDescriptor,
    ) -> Result<Value> {
        let kinds = (kind(key), kind(of));
        let FieldKind::Message(shape) = value.kind() else {
            return by_type!(of, read_entries::<K>(input, kinds, self.positions(of)));
        };
        let mut entries = HashMap::new();
        let read = |input: &mut Reader<'_>, value: &mut _| self.read_message(input, &shape).map(|read| *value = read);
        input.map(kinds, &mut entries, K::read_plain, read)?;
        Ok(map_of(entries.into_iter().map(|(key, value)| (key, message_or_default(value, &shape)))))
    }
}

/// Returns a message of a list or map, where nil stands for a default one.
fn message_or_default(message: Option<DynamicMessage>, shape: &MessageDescriptor) -> Value {
    Value::Message(message.unwrap_or_else(|| DynamicMessage::new(shape.clone())))
}

/// Calls a function for the Rust type of a value that is no message.
macro_rules! by_type {
    ($of:expr, $function:ident $(::<$key:ty>)? ($($argument:expr),*)) => {
        match $of {
            Type::Bool => $function::<bool $(, $key)?>($($argument),*),
            Type::I32 => $function::<i32 $(, $key)?>($($argument),*),
            Type::I64 => $function::<i64 $(, $key)?>($($argument),*),
            Type::U32 => $function::<u32 $(, $key)?>($($argument),*),
            Type::U64 => $function::<u64 $(, $key)?>($($argument),*),
            Type::F32 => $function::<f32 $(, $key)?>($($argument),*),
            Type::F64 => $function::<f64 $(, $key)?>($($argument),*),
            Type::String => $function::<String $(, $key)?>($($argument),*),
            Type::Bytes => $function::<Bytes $(, $key)?>($($argument),*),
            Type::Enum(_) => $function::<Number $(, $key)?>($($argument),*),
            Type::Message(_) => unreachable!("messages are read by their descriptors"),
        }
    };
}
use by_type;

fn read_one<T: Native>(input: &mut Reader<'_>, positions: Positions<'_>) -> Result<Value> {
    let mut value = T::default();
    value.read(input, positions)?;
    Ok(value.into_value())
}

fn read_optional<T: Native>(input: &mut Reader<'_>, positions: Positions<'_>) -> Result<Option<Value>> {
    let mut value = None;
    input.optional(&mut value, |input, value: &mut T| value.read(input, positions))?;
    Ok(value.map(T::into_value))
}

fn read_list<T: Native>(input: &mut Reader<'_>, kind: Kind, positions: Positions<'_>) -> Result<Value> {
    let mut items = Vec::new();
    input.list(kind, &mut items, |input, item: &mut T| item.read(input, positions))?;
    Ok(Value::List(items.into_iter().map(T::into_value).collect()))
}

fn read_entries<V: Native, K: Native + Eq + Hash>(
    input: &mut Reader<'_>,
    kinds: (Kind, Kind),
    positions: Positions<'_>,
) -> Result<Value> {
    let mut entries = HashMap::new();
    input.map(kinds, &mut entries, K::read_plain, |input, value: &mut V| value.read(input, positions))?;
    Ok(map_of(entries.into_iter().map(|(key, value)| (key, value.into_value()))))
}

fn map_of<K: Native>(entries: impl Iterator<Item = (K, Value)>) -> Value {
    let key = |key: K| key.into_value().into_map_key();
    Value::Map(entries.filter_map(|(of, value)| Some((key(of)?, value))).collect())
}

/// A type that generated code has for values that are no messages.
trait Native: Presence {
    fn read(&mut self, input: &mut Reader<'_>, positions: Positions<'_>) -> Result<()>;

    fn into_value(self) -> Value;

    /// Reads what is no enum.
    fn read_plain(input: &mut Reader<'_>, into: &mut Self) -> Result<()> {
        into.read(input, Positions::new(&[], &[], &[]))
    }
}

macro_rules! native {
    ($($type:ty: $read:ident, $value:ident;)*) => {$(
        impl Native for $type {
            fn read(&mut self, input: &mut Reader<'_>, _: Positions<'_>) -> Result<()> {
                input.$read(self)
            }

            fn into_value(self) -> Value {
                Value::$value(self)
            }
        }
    )*};
}

native! {
    bool: bool, Bool;
    i32: i32, I32;
    i64: i64, I64;
    u32: u32, U32;
    u64: u64, U64;
    f32: f32, F32;
    f64: f64, F64;
    String: string, String;
    Bytes: blob, Bytes;
}

/// A number of an enum.
#[derive(Default)]
struct Number(i32);

impl Presence for Number {
    fn is_default(&self) -> bool {
        self.0.is_default()
    }
}

impl Native for Number {
    fn read(&mut self, input: &mut Reader<'_>, positions: Positions<'_>) -> Result<()> {
        input.enumeration_in(positions, &mut self.0)
    }

    fn into_value(self) -> Value {
        Value::EnumNumber(self.0)
    }
}

/// Returns the kind of a value, as lists and maps tell it.
fn kind(of: &Type) -> Kind {
    match of {
        Type::Bool => Kind::Bool,
        Type::I32 => Kind::I32,
        Type::I64 => Kind::I64,
        Type::U32 | Type::Enum(_) => Kind::U32,
        Type::U64 => Kind::U64,
        Type::F32 => Kind::F32,
        Type::F64 => Kind::F64,
        Type::String => Kind::String,
        Type::Bytes => Kind::Bytes,
        Type::Message(_) => Kind::Any,
    }
}

/// Returns whether a value says more than that its field is there. One that does not need not be kept.
fn is_set(value: &Value, declared: &FieldDescriptor) -> bool {
    let is_default = match value {
        // Minus zero equals zero, but is none.
        Value::F32(value) => value.is_default(),
        Value::F64(value) => value.is_default(),
        value => value.is_default_for_field(declared),
    };
    declared.supports_presence() || !is_default
}

/// Returns the field of the descriptor. Both are of the same files.
fn declared(shape: &MessageDescriptor, field: &Field) -> FieldDescriptor {
    let number = field.number.unsigned_abs();
    shape.get_field(number).unwrap_or_else(|| panic!("{} has no field {number}", shape.full_name()))
}
