//! Generates the polyglot encoding of messages and enums. The code lists fields and types; `frpc` produces the bytes.

use std::collections::{HashMap, HashSet};

use frpc_schema::{
    EnumSchema, FieldSchema, FieldShape, MessageSchema, PackageSchema, PositionTables, Schema, ValueType,
};
use proc_macro2::TokenStream;
use quote::quote;

use super::{
    EmitSettings,
    layout::{self, LayoutNames},
    required,
    rust::{number, tokens},
    scope::{ModuleImports, ModuleScope},
    types::TypeEmitter,
};
use crate::naming;

/// Returns the impls for all enums and messages of a package. A block around them holds their imports, so these cannot
/// conflict with names of the module.
pub(super) fn block(
    emitter: &EmitSettings,
    package: &PackageSchema,
    schema: &Schema,
    scope: &ModuleScope,
) -> Option<TokenStream> {
    let recursive = recursive(package);
    let requiring = if emitter.has_required_fields { required::requiring(schema) } else { HashSet::new() };
    let imports = ModuleImports::new(scope);
    let types = TypeEmitter {
        package: package.name.as_str(),
        names: &emitter.names,
        scope,
        imports: &imports,
        module: "codec",
    };
    let codec = CodecEmitter { types: &types, has_json: emitter.has_json, requiring: &requiring };
    let enums = package.enums.iter().filter(|declared| emitter.is_here(&declared.full_name));
    let enums = enums.map(|declared| codec.enumeration(declared));
    let messages = package.messages.iter().filter(|declared| emitter.is_here(&declared.full_name));
    let messages = messages.map(|declared| {
        let is_recursive = recursive.contains(declared.full_name.as_str());
        MessageCodec { codec: &codec, message: declared }.of(is_recursive)
    });
    let impls: Vec<_> = enums.chain(messages).collect();
    let imports = imports.statements();
    (!impls.is_empty()).then(|| {
        quote! {
            /// The encoding of the messages.
            const _: () = {
                #imports

                #(#impls)*
            };
        }
    })
}

/// Returns the recursive messages of a package, and all messages containing them. A message is recursive if it can
/// contain itself at any depth.
pub(super) fn recursive(package: &PackageSchema) -> HashSet<&str> {
    let mut left: HashMap<&str, Vec<&str>> =
        package.messages.iter().map(|message| (message.full_name.as_str(), message.messages().collect())).collect();
    loop {
        let finite: Vec<_> = left
            .iter()
            .filter(|(_, held)| !held.iter().any(|held| left.contains_key(held)))
            .map(|(&name, _)| name)
            .collect();
        if finite.is_empty() {
            return left.into_keys().collect();
        }
        finite.iter().for_each(|name| drop(left.remove(name)));
    }
}

/// Inputs for the code of a package.
struct CodecEmitter<'a> {
    types: &'a TypeEmitter<'a>,
    has_json: bool,
    /// The messages that can lack a required field. Empty if these are not checked.
    requiring: &'a HashSet<&'a str>,
}

impl CodecEmitter<'_> {
    fn enumeration(&self, declared: &EnumSchema) -> TokenStream {
        let (path, enumeration) = (self.types.path(&declared.full_name), self.types.import("Enumeration"));
        let numbers = declared.values.iter().map(|value| number(value.number.into()));
        let tables = PositionTables::of(declared).map(|PositionTables { positions, unknown, .. }| {
            let pair = |(from, to)| {
                let (from, to) = (number(from), number(to));
                quote! { (#from, #to) }
            };
            let positions = positions.iter().map(|&(number, position)| pair((number.into(), position.into())));
            let unknown = unknown.iter().map(|&(position, number)| pair((position.into(), number.into())));
            quote! {
                const POSITIONS: &'static [(i32, u32)] = &[#(#positions),*];
                const UNKNOWN: &'static [(u32, i32)] = &[#(#unknown),*];
            }
        });
        quote! {
            impl #enumeration for #path {
                const NUMBERS: &'static [i32] = &[#(#numbers),*];
                #tables
            }
        }
    }

    fn kind(&self, of: &ValueType) -> TokenStream {
        let kind = match of {
            ValueType::Bool => quote! { Bool },
            ValueType::I32 => quote! { I32 },
            ValueType::I64 => quote! { I64 },
            ValueType::U32 | ValueType::Enum(_) => quote! { U32 },
            ValueType::U64 => quote! { U64 },
            ValueType::F32 => quote! { F32 },
            ValueType::F64 => quote! { F64 },
            ValueType::String => quote! { String },
            ValueType::Bytes => quote! { Bytes },
            ValueType::Message(_) => quote! { Any },
        };
        let of = self.types.import("Kind");
        quote! { #of::#kind }
    }
}

/// Inputs for the code of a message.
struct MessageCodec<'a> {
    codec: &'a CodecEmitter<'a>,
    message: &'a MessageSchema,
}

impl MessageCodec<'_> {
    fn of(&self, is_recursive: bool) -> TokenStream {
        let MessageSchema { full_name, fields, .. } = self.message;
        let path = self.codec.types.path(full_name);
        let name = short_name(full_name, self.codec.types.package);
        let allow_deprecated = fields.iter().any(|field| field.is_deprecated).then(|| quote! { #[allow(deprecated)] });
        let [message, formats, layout_type, sink, writer, reader, result] =
            ["Message", "Formats", "Layout", "Sink", "Writer", "Reader", "Result"]
                .map(|name| self.codec.types.import(name));
        let option = tokens(&self.codec.types.scope.short("::core::option::Option"));
        let with_json = self.codec.has_json.then(|| quote! { .with_json() });
        let layout = layout::layout_of(
            self.message,
            &LayoutNames {
                import: &|name| self.codec.types.import(name),
                kind: &|of| self.codec.kind(of),
                message: &|of| self.codec.types.path(of),
            },
        );
        let required = required::table_of(self.message, self.codec.requiring, self.codec.types);
        let (out, writes) = self.writes();
        let (input, reads) = self.reads();
        // Inlined large messages take minutes to compile, and inlined recursive ones use too much stack.
        let is_small = fields.len() <= SMALL_FIELDS_MAX && !is_recursive;
        let inline = if is_small {
            quote! { #[inline] }
        } else {
            quote! { #[inline(never)] }
        };
        quote! {
            #allow_deprecated
            impl #message for #path {
                const NAME: &'static str = #name;
                const FORMATS: #option<&'static #formats<Self>> = Some(&#formats::prost() #with_json);

                #[inline]
                fn layout() -> #option<&'static #layout_type> {
                    #layout
                }

                #required

                #inline
                fn encode_fields<S: #sink>(&self, #out: &mut #writer<S>) {
                    #writes
                }

                #inline
                fn decode_fields(&mut self, #input: &mut #reader<'_>) -> #result<()> {
                    #reads
                }
            }
        }
    }

    /// Returns the name of the writer parameter and the body of `encode_fields`.
    fn writes(&self) -> (TokenStream, TokenStream) {
        if self.message.fields.is_empty() {
            return (quote! { _ }, quote! {});
        }
        if !self.is_large() {
            let writes = self.message.fields.iter().map(|field| self.write(field, &quote! { self }));
            return (quote! { out }, quote! { #(#writes)* });
        }
        let path = self.codec.types.path(&self.message.full_name);
        let (sink, writer) = (self.codec.types.import("Sink"), self.codec.types.import("Writer"));
        let writes = self.message.fields.iter().map(|field| self.write(field, &quote! { message }));
        let once = quote! {
            fn encode(message: &#path, out: &mut #writer<&mut dyn #sink>) {
                #(#writes)*
            }

            out.with_any_sink(|out| encode(self, out));
        };
        (quote! { out }, once)
    }

    /// Returns `true` for a message with very many fields. Each field then gets a single function call.
    fn is_large(&self) -> bool {
        self.message.fields.len() > INLINE_FIELDS_MAX
    }

    fn write(&self, field: &FieldSchema, message: &TokenStream) -> TokenStream {
        let name = tokens(&naming::snake(&field.name));
        let write = match &field.shape {
            // The field may be boxed. With an explicit type, a reference converts in either case.
            FieldShape::Always(ValueType::Message(of)) => self.write_message(of, quote! { &#message.#name }),
            FieldShape::Optional(ValueType::Message(of)) if field.is_required => {
                self.write_message(of, quote! { &#message.#name })
            }
            FieldShape::Always(of) if self.is_large() && !matches!(of, ValueType::Enum(_)) => {
                quote! { out.scalar(&#message.#name) }
            }
            FieldShape::Always(of @ (ValueType::String | ValueType::Bytes)) => {
                self.write_value(of, quote! { &#message.#name })
            }
            FieldShape::Always(of) => self.write_value(of, quote! { #message.#name }),
            FieldShape::Optional(of) if field.is_required => self.write_optional(of, quote! { Some(&#message.#name) }),
            FieldShape::Optional(of) => self.write_optional(of, quote! { #message.#name.as_ref() }),
            FieldShape::Member(oneof, of) => {
                let oneof = &self.message.oneofs[*oneof];
                let (value, variant) =
                    (tokens(&naming::snake(&oneof.name)), self.codec.types.variant(self.message, oneof, &field.name));
                let member = local(&field.name);
                let write = self.write_optional(of, member.clone());
                quote! {
                    let #member = match &#message.#value { Some(#variant(value)) => Some(value), _ => None };
                    #write
                }
            }
            FieldShape::List(of) => {
                let write = self.codec.types.list_accessor(of);
                quote! { out.#write(&#message.#name) }
            }
            FieldShape::Map(_, of) => {
                let write = self.map_accessor(of);
                quote! { out.#write(&#message.#name) }
            }
        };
        quote! { #write; }
    }

    fn write_message(&self, of: &str, value: TokenStream) -> TokenStream {
        let of = self.codec.types.path(of);
        quote! { out.message::<#of>(#value) }
    }

    fn write_optional(&self, of: &ValueType, value: TokenStream) -> TokenStream {
        match of {
            ValueType::Message(of) => {
                let of = self.codec.types.path(of);
                quote! { out.message_or_nil::<#of>(#value) }
            }
            of => {
                let write = self.codec.types.optional_accessor(of);
                quote! { out.#write(#value) }
            }
        }
    }

    fn write_value(&self, of: &ValueType, value: TokenStream) -> TokenStream {
        let write = self.codec.types.accessor(of, quote! { bytes }, quote! { message });
        quote! { out.#write(#value) }
    }

    /// Returns the method of `Writer` and `Reader` for maps with values of a type.
    fn map_accessor(&self, of: &ValueType) -> TokenStream {
        match of {
            ValueType::Enum(of) => {
                let of = self.codec.types.path(of);
                quote! { enumeration_map::<#of, _> }
            }
            ValueType::Message(_) => quote! { message_map },
            _ => quote! { scalar_map },
        }
    }

    /// Returns the name of the reader parameter and the body of `decode_fields`.
    fn reads(&self) -> (TokenStream, TokenStream) {
        let MessageSchema { fields, oneofs, .. } = self.message;
        if fields.is_empty() {
            return (quote! { _ }, quote! { Ok(()) });
        }
        self.codec.types.imports.add("frpc", "codec", "At as _");
        let choices = oneofs.iter().map(|oneof| {
            let (choice, name) = (local(&oneof.name), tokens(&naming::snake(&oneof.name)));
            let of = self.codec.types.import("Choice");
            quote! { let mut #choice = #of::new(&mut self.#name); }
        });
        let reads = fields.iter().map(|field| self.read(field));
        (quote! { input }, quote! { #(#choices)* #(#reads)* Ok(()) })
    }

    fn read(&self, field: &FieldSchema) -> TokenStream {
        let name = tokens(&naming::snake(&field.name));
        let into = quote! { &mut self.#name };
        let is_checked = field.is_required && self.codec.requiring.contains(self.message.full_name.as_str());
        let read = match &field.shape {
            FieldShape::Always(ValueType::Message(of)) | FieldShape::Optional(ValueType::Message(of)) if is_checked => {
                let of = self.codec.types.path(of);
                quote! { input.required_message::<#of>(#into) }
            }
            FieldShape::Optional(of) if is_checked => {
                let (reader, read) = (self.codec.types.import("Reader"), self.read_optional(of));
                quote! { input.required(#into, #reader::#read) }
            }
            FieldShape::Always(ValueType::Message(of)) => {
                let of = self.codec.types.path(of);
                quote! { input.message_or_default::<#of>(#into) }
            }
            FieldShape::Always(of) if self.is_large() && !matches!(of, ValueType::Enum(_)) => {
                quote! { input.scalar(#into) }
            }
            FieldShape::Always(of) => {
                let read = self.codec.types.accessor(of, quote! { blob }, quote! { message_or_default });
                quote! { input.#read(#into) }
            }
            FieldShape::Optional(of) => {
                let read = self.read_optional(of);
                quote! { input.#read(#into) }
            }
            FieldShape::Member(oneof, of) => {
                let oneof = &self.message.oneofs[*oneof];
                let (choice, variant) =
                    (local(&oneof.name), self.codec.types.variant(self.message, oneof, &field.name));
                let place = oneof.members.iter().position(|member| *member == field.name);
                let place = tokens(&place.expect("the oneof lists its members").to_string());
                let (reader, read) = (self.codec.types.import("Reader"), self.read_optional(of));
                quote! { #choice.member(#place, input, #variant, #reader::#read) }
            }
            FieldShape::List(of) => {
                let read = self.codec.types.list_accessor(of);
                quote! { input.#read(#into) }
            }
            FieldShape::Map(_, of) => {
                let read = self.map_accessor(of);
                quote! { input.#read(#into) }
            }
        };
        let name = &field.name;
        quote! { #read.at(#name)?; }
    }

    /// Returns the method of `Reader` for an optional value of a type.
    fn read_optional(&self, of: &ValueType) -> TokenStream {
        match of {
            ValueType::Message(of) => {
                let of = self.codec.types.path(of);
                quote! { message_or_nil::<#of, _> }
            }
            of => self.codec.types.optional_accessor(of),
        }
    }
}

/// Returns a local variable name for a field or oneof, distinct from the parameters and locals of the function.
fn local(field: &str) -> TokenStream {
    match naming::snake(field).as_str() {
        name @ ("input" | "out" | "message") => tokens(&format!("{name}_")),
        name => tokens(name),
    }
}

/// Returns a message name without its package, for errors.
fn short_name<'a>(full_name: &'a str, package: &str) -> &'a str {
    full_name.strip_prefix(package).unwrap_or(full_name).trim_start_matches('.')
}

/// Maximum number of fields for inline encoding code, compiled once per kind of sink.
const INLINE_FIELDS_MAX: usize = 64;

/// Maximum number of fields of a message for `#[inline]`.
const SMALL_FIELDS_MAX: usize = 16;
