//! Generates the JSON encoding of messages and enums. The code lists fields and types; `frpc` produces the text.

use std::collections::{BTreeSet, HashMap, HashSet};

use frpc_schema::{EnumSchema, FieldSchema, FieldShape, MessageSchema, OneofSchema, PackageSchema, Schema, ValueType};
use proc_macro2::TokenStream;
use quote::quote;

use super::{
    EmitSettings,
    rust::{number, tokens},
    scope::{ModuleImports, ModuleScope},
    types::TypeEmitter,
};
use crate::naming;

/// Returns the list of types for `Any`, and the impls for all enums and messages of a package. A block around the impls
/// holds their imports.
pub(super) fn block(
    emitter: &EmitSettings,
    package: &PackageSchema,
    schema: &Schema,
    scope: &ModuleScope,
) -> Option<TokenStream> {
    let is_here = |name: &str| emitter.is_here(name);
    let enums: Vec<_> = package.enums.iter().filter(|declared| is_here(&declared.full_name)).collect();
    let messages: Vec<_> = package.messages.iter().filter(|declared| is_here(&declared.full_name)).collect();
    if !emitter.has_json || (enums.is_empty() && messages.is_empty()) {
        return None;
    }
    let imports = ModuleImports::new(scope);
    let with_any = with_any(schema);
    let types =
        TypeEmitter { package: package.name.as_str(), names: &emitter.names, scope, imports: &imports, module: MODULE };
    let json = JsonEmitter { types: &types, with_any: &with_any };
    let enums: Vec<_> = enums.iter().map(|declared| json.enumeration(declared)).collect();
    let types = (!messages.is_empty()).then(|| json.types(&messages, others(emitter, package, schema)));
    let messages: Vec<_> =
        messages.iter().map(|declared| MessageJson { json: &json, message: declared }.of()).collect();
    let imports = imports.statements();
    Some(quote! {
        #types

        /// The JSON of the messages.
        const _: () = {
            #imports

            #(#enums)*
            #(#messages)*
        };
    })
}

/// Returns all messages containing a `google.protobuf.Any` at any depth, and `Any` itself.
fn with_any(schema: &Schema) -> HashSet<&str> {
    let mut holders: HashMap<&str, Vec<&str>> = HashMap::new();
    for message in schema.packages.iter().flat_map(|package| &package.messages) {
        message.messages().for_each(|held| holders.entry(held).or_default().push(&message.full_name));
    }
    let mut with_any = HashSet::new();
    let mut next = vec!["google.protobuf.Any"];
    while let Some(message) = next.pop() {
        if with_any.insert(message) {
            next.extend(holders.get(message).into_iter().flatten());
        }
    }
    with_any
}

/// Messages of other packages in the fields of a package, directly or through other packages.
#[derive(Default)]
struct ForeignMessages {
    /// Packages generated here.
    packages: BTreeSet<String>,
    /// Messages generated elsewhere.
    messages: BTreeSet<String>,
}

fn others(emitter: &EmitSettings, package: &PackageSchema, schema: &Schema) -> ForeignMessages {
    let mut others = ForeignMessages::default();
    let mut next = vec![package];
    while let Some(package) = next.pop() {
        let messages = package.messages.iter().filter(|message| emitter.is_here(&message.full_name));
        for name in messages.flat_map(|message| message.messages()) {
            let home = |package: &&PackageSchema| package.messages.iter().any(|message| message.full_name == name);
            match schema.packages.iter().find(home) {
                Some(home) if emitter.is_here(name) => {
                    if others.packages.insert(home.name.clone()) {
                        next.push(home);
                    }
                }
                _ if name.starts_with("google.protobuf.") => {}
                _ => drop(others.messages.insert(name.to_owned())),
            }
        }
    }
    others.packages.remove(&package.name);
    others
}

/// Inputs for the code of a package.
struct JsonEmitter<'a> {
    types: &'a TypeEmitter<'a>,
    /// Messages containing an `Any`.
    with_any: &'a HashSet<&'a str>,
}

impl JsonEmitter<'_> {
    fn types(&self, own: &[&MessageSchema], others: ForeignMessages) -> TokenStream {
        // This function is public, so it needs imports of its own, outside the block of the impls.
        let imports = ModuleImports::new(self.types.scope);
        let [one, all] = ["Type", "Types"].map(|name| imports.name("frpc", MODULE, name));
        let messages = own.iter().map(|message| message.full_name.as_str());
        let messages: BTreeSet<_> = messages.chain(others.messages.iter().map(String::as_str)).collect();
        let messages = messages.into_iter().map(|name| {
            let path = self.types.path(name);
            quote! { #one::of::<#path>() }
        });
        let packages = others.packages.iter().map(|package| {
            let prefix = self.types.prefix(package);
            quote! { #prefix json_types }
        });
        let imports = imports.statements();
        let path = tokens(&self.types.scope.short("::frpc::codec::json::Types"));
        let package = tokens(&self.types.scope.free("Package"));
        // A function, because the compiler skips unused functions. With a static or a constant, it would compile the
        // JSON and protobuf code of all messages, even without any `Any`.
        quote! {
            /// Returns the messages of this package and of their fields, for `google.protobuf.Any` in JSON.
            #[allow(dead_code)]
            #[inline]
            pub const fn json_types() -> &'static #path {
                #imports

                struct #package;

                impl #package {
                    const TYPES: &'static #all = &#all::new(&[#(#messages),*], &[#(#packages),*]);
                }
                #package::TYPES
            }
        }
    }

    fn enumeration(&self, declared: &EnumSchema) -> TokenStream {
        let (path, enumeration) = (self.types.path(&declared.full_name), self.types.import("Enumeration"));
        let mut names: Vec<_> = declared.values.iter().map(|value| (value.number, value.name.as_str())).collect();
        let mut numbers = names.clone();
        names.sort_by_key(|(number, _)| *number);
        names.dedup_by_key(|(number, _)| *number);
        numbers.sort_by_key(|(_, name)| *name);
        let names = names.iter().map(|&(of, name)| {
            let of = number(of.into());
            quote! { (#of, #name) }
        });
        let numbers = numbers.iter().map(|&(of, name)| {
            let of = number(of.into());
            quote! { (#name, #of) }
        });
        let is_null =
            (declared.full_name == "google.protobuf.NullValue").then(|| quote! { const IS_NULL: bool = true; });
        quote! {
            impl #enumeration for #path {
                #is_null
                const NAMES: &'static [(i32, &'static str)] = &[#(#names),*];
                const NUMBERS: &'static [(&'static str, i32)] = &[#(#numbers),*];
            }
        }
    }
}

/// Inputs for the code of a message.
struct MessageJson<'a> {
    json: &'a JsonEmitter<'a>,
    message: &'a MessageSchema,
}

impl MessageJson<'_> {
    fn of(&self) -> TokenStream {
        let MessageSchema { full_name, fields, .. } = self.message;
        let path = self.json.types.path(full_name);
        let allow_deprecated = fields.iter().any(|field| field.is_deprecated).then(|| quote! { #[allow(deprecated)] });
        let [message, writer, reader, result] =
            ["Message", "Writer", "Reader", "Result"].map(|name| self.json.types.import(name));
        let types = self.json.with_any.contains(full_name.as_str()).then(|| {
            let types = self.json.types.import("Types");
            quote! { const TYPES: &'static #types = json_types(); }
        });
        let form = self.form().map(|form| (form, quote! { const IS_OBJECT: bool = false; }));
        let (form, is_object) = form.unzip();
        let (writes, reads) = form.unwrap_or_else(|| (self.writes(), self.reads()));
        let input = if reads.is_empty() {
            quote! { _ }
        } else {
            quote! { input }
        };
        quote! {
            #allow_deprecated
            impl #message for #path {
                const NAME: &'static str = #full_name;
                #types
                #is_object

                fn encode_json(&self, out: &mut #writer) {
                    #writes
                }

                fn decode_json(&mut self, #input: &mut #reader<'_>) -> #result<()> {
                    #reads
                }
            }
        }
    }

    /// Returns the code to write and read a well-known type generated here. Such types have a special JSON form.
    fn form(&self) -> Option<(TokenStream, TokenStream)> {
        let (writer, reader) = (self.json.types.import("Writer"), self.json.types.import("Reader"));
        let both = match self.message.full_name.strip_prefix("google.protobuf.")? {
            "Timestamp" => (
                quote! { out.timestamp(self.seconds, self.nanos); },
                quote! { input.timestamp(&mut self.seconds, &mut self.nanos) },
            ),
            "Duration" => (
                quote! { out.duration(self.seconds, self.nanos); },
                quote! { input.duration(&mut self.seconds, &mut self.nanos) },
            ),
            "FieldMask" => (quote! { out.field_mask(&self.paths); }, quote! { input.field_mask(&mut self.paths) }),
            "Any" => (
                quote! { out.any(&self.type_url, &self.value); },
                quote! { input.any(&mut self.type_url, &mut self.value) },
            ),
            "Struct" => (
                quote! { out.entries(&self.fields, #writer::message); },
                quote! { input.map(&mut self.fields, #reader::message) },
            ),
            "ListValue" => (
                quote! { out.items(&self.values, #writer::message); },
                quote! { input.list(&mut self.values, #reader::message) },
            ),
            "Value" => self.value(),
            "Empty" => (self.writes(), self.reads()),
            "BoolValue" | "BytesValue" | "DoubleValue" | "FloatValue" | "Int32Value" | "Int64Value" | "StringValue"
            | "UInt32Value" | "UInt64Value" => {
                let [FieldSchema { shape, .. }] = &self.message.fields[..] else { return None };
                let read = self.reader(shape.element());
                (quote! { out.value(&self.value); }, quote! { input.#read(&mut self.value) })
            }
            _ => return None,
        };
        Some(both)
    }

    fn value(&self) -> (TokenStream, TokenStream) {
        let reader = self.json.types.import("Reader");
        let next = self.json.types.import("Next");
        let oneof = &self.message.oneofs[0];
        let [null, number, string, bool, fields, list] =
            ["null_value", "number_value", "string_value", "bool_value", "struct_value", "list_value"]
                .map(|member| self.json.types.variant(self.message, oneof, member));
        let writes = quote! {
            match &self.kind {
                None | Some(#null(_)) => out.null(),
                Some(#number(value)) => out.finite(*value),
                Some(#string(value)) => out.value(value),
                Some(#bool(value)) => out.value(value),
                Some(#fields(value)) => out.message(value),
                Some(#list(value)) => out.message(value),
            }
        };
        let reads = quote! {
            match input.next_value()? {
                #next::Null => {
                    self.kind = Some(#null(0));
                    input.null()
                }
                #next::Bool => input.member(&mut self.kind, #bool, #reader::optional_scalar),
                #next::Number => input.member(&mut self.kind, #number, #reader::optional_scalar),
                #next::String => input.member(&mut self.kind, #string, #reader::optional_scalar),
                #next::List => input.member(&mut self.kind, #list, #reader::optional_message),
                #next::Object => input.member(&mut self.kind, #fields, #reader::optional_message),
            }
        };
        (writes, reads)
    }

    /// Returns the fields in ascending order of their numbers.
    fn fields(&self) -> Vec<&FieldSchema> {
        let mut fields: Vec<_> = self.message.fields.iter().collect();
        fields.sort_by_key(|field| field.number);
        fields
    }

    fn writes(&self) -> TokenStream {
        let mut written = BTreeSet::new();
        let writes = self.fields().into_iter().filter_map(|field| match field.shape {
            FieldShape::Member(oneof, _) => {
                written.insert(oneof).then(|| self.write_oneof(&self.message.oneofs[oneof]))
            }
            _ => Some(self.write(field)),
        });
        quote! {
            out.begin();
            #(#writes)*
            out.end();
        }
    }

    fn write(&self, field: &FieldSchema) -> TokenStream {
        let (name, value) = (escaped(&field.json_name), tokens(&naming::snake(&field.name)));
        let write = match &field.shape {
            FieldShape::Always(of) | FieldShape::Optional(of)
                if field.is_required || matches!(field.shape, FieldShape::Always(ValueType::Message(_))) =>
            {
                let write = self.writer(of);
                quote! { out.present(#name, &self.#value, #write) }
            }
            FieldShape::Always(ValueType::Enum(of)) => {
                let of = self.json.types.path(of);
                quote! { out.enumeration::<#of>(#name, self.#value) }
            }
            FieldShape::Always(of) => {
                let write = self.reader(of);
                let reference = matches!(of, ValueType::String | ValueType::Bytes).then(|| quote! { & });
                quote! { out.#write(#name, #reference self.#value) }
            }
            FieldShape::Optional(of @ ValueType::Message(_)) => {
                let write = self.writer(of);
                quote! { out.optional(#name, self.#value.as_ref(), #write) }
            }
            FieldShape::Optional(of) => {
                let write = self.json.types.optional_accessor(of);
                quote! { out.#write(#name, self.#value.as_ref()) }
            }
            FieldShape::List(of @ ValueType::Message(_)) => {
                let write = self.writer(of);
                quote! { out.list(#name, &self.#value, #write) }
            }
            FieldShape::List(of) => {
                let write = self.json.types.list_accessor(of);
                quote! { out.#write(#name, &self.#value) }
            }
            FieldShape::Map(_, of @ (ValueType::Enum(_) | ValueType::Message(_))) => {
                let write = self.writer(of);
                quote! { out.map(#name, &self.#value, #write) }
            }
            FieldShape::Map(..) => quote! { out.scalar_map(#name, &self.#value) },
            FieldShape::Member(..) => unreachable!("members are written with their oneof"),
        };
        quote! { #write; }
    }

    fn write_oneof(&self, oneof: &OneofSchema) -> TokenStream {
        let value = tokens(&naming::snake(&oneof.name));
        let members = self.fields().into_iter().filter(|field| oneof.members.contains(&field.name));
        let arms = members.map(|field| {
            let (name, variant) =
                (escaped(&field.json_name), self.json.types.variant(self.message, oneof, &field.name));
            match field.shape.element() {
                of @ ValueType::Message(_) => {
                    let write = self.writer(of);
                    quote! { Some(#variant(value)) => out.present(#name, value, #write), }
                }
                of => {
                    let write = self.json.types.optional_accessor(of);
                    quote! { Some(#variant(value)) => out.#write(#name, Some(value)), }
                }
            }
        });
        quote! {
            match &self.#value {
                #(#arms)*
                None => {}
            }
        }
    }

    /// Returns the path of the function to write a value.
    fn writer(&self, of: &ValueType) -> TokenStream {
        let writer = self.json.types.import("Writer");
        match of {
            ValueType::Enum(of) => {
                let of = self.json.types.path(of);
                quote! { #writer::name_of::<#of> }
            }
            ValueType::Message(_) => quote! { #writer::message },
            _ => quote! { #writer::value },
        }
    }

    fn reads(&self) -> TokenStream {
        let fields = self.fields();
        if fields.is_empty() {
            return quote! { input.object(&[], &mut |_, _| Ok(())) };
        }
        let of = self.json.types.import("Field");
        let names = fields.iter().map(|field| {
            let (json, proto) = (&field.json_name, &field.name);
            let required = field.is_required.then(|| quote! { .required() });
            if is_nullable(&field.shape) {
                quote! { #of::nullable(#json, #proto) #required }
            } else {
                quote! { #of::new(#json, #proto) #required }
            }
        });
        if let [field] = fields[..] {
            let read = self.read(field);
            return quote! { input.object(&[#(#names),*], &mut |_, input| #read) };
        }
        let last = fields.len() - 1;
        let arms = fields.iter().enumerate().map(|(index, field)| {
            let place = if index == last {
                quote! { _ }
            } else {
                number(i64::try_from(index).unwrap_or(i64::MAX))
            };
            let read = self.read(field);
            quote! { #place => #read, }
        });
        quote! {
            const FIELDS: &[#of] = &[#(#names),*];

            input.object(FIELDS, &mut |field, input| match field { #(#arms)* })
        }
    }

    fn read(&self, field: &FieldSchema) -> TokenStream {
        let value = tokens(&naming::snake(&field.name));
        match &field.shape {
            FieldShape::Always(of) => {
                let read = self.reader(of);
                quote! { input.#read(&mut self.#value) }
            }
            FieldShape::Optional(of) if field.is_required => {
                let read = self.reader(of);
                quote! { input.#read(&mut self.#value) }
            }
            FieldShape::Optional(of) => {
                let read = self.json.types.optional_accessor(of);
                quote! { input.#read(&mut self.#value) }
            }
            FieldShape::Member(oneof, of) => {
                let oneof = &self.message.oneofs[*oneof];
                let (value, variant) =
                    (tokens(&naming::snake(&oneof.name)), self.json.types.variant(self.message, oneof, &field.name));
                let (reader, read) = (self.json.types.import("Reader"), self.json.types.optional_accessor(of));
                quote! { input.member(&mut self.#value, #variant, #reader::#read) }
            }
            FieldShape::List(of @ ValueType::Message(_)) => {
                let read = self.read_by(of);
                quote! { input.list(&mut self.#value, #read) }
            }
            FieldShape::List(of) => {
                let read = self.json.types.list_accessor(of);
                quote! { input.#read(&mut self.#value) }
            }
            FieldShape::Map(_, of @ (ValueType::Enum(_) | ValueType::Message(_))) => {
                let read = self.read_by(of);
                quote! { input.map(&mut self.#value, #read) }
            }
            FieldShape::Map(..) => quote! { input.scalar_map(&mut self.#value) },
        }
    }

    /// Returns the path of the function to read a value.
    fn read_by(&self, of: &ValueType) -> TokenStream {
        let (reader, read) = (self.json.types.import("Reader"), self.reader(of));
        quote! { #reader::#read }
    }

    fn reader(&self, of: &ValueType) -> TokenStream {
        self.json.types.accessor(of, quote! { bytes }, quote! { message })
    }
}

/// Returns `true` if `null` is a valid value of the field.
fn is_nullable(shape: &FieldShape) -> bool {
    let is_single = !matches!(shape, FieldShape::List(_) | FieldShape::Map(..));
    let name = match shape.element() {
        ValueType::Enum(name) | ValueType::Message(name) => name.as_str(),
        _ => "",
    };
    is_single && matches!(name, "google.protobuf.Value" | "google.protobuf.NullValue")
}

/// Returns a name with JSON escapes.
fn escaped(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for letter in name.chars() {
        match letter {
            '"' | '\\' => escaped.extend(['\\', letter]),
            control if u32::from(control) < 0x20 => escaped.push_str(&format!("\\u{:04x}", u32::from(control))),
            letter => escaped.push(letter),
        }
    }
    escaped
}

const MODULE: &str = "codec::json";
