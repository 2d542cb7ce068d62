//! The codec of messages and enums. The code names each field and what it is; the bytes are the library's business.

use proc_macro2::TokenStream;
use quote::quote;

use super::tokens;
use crate::{
    naming::{self, Names},
    schema::{Enum, Field, Message, Oneof, Package, Shape, Type},
};

pub(super) fn enumeration(declared: &Enum, package: &Package, names: &Names) -> TokenStream {
    let path = tokens(&names.path(&declared.full_name, &package.name, 0));
    let numbers = declared.numbers.iter().map(|number| tokens(&number.to_string()));
    quote! {
        impl ::frpc::codec::Enumeration for #path {
            const NUMBERS: &'static [i32] = &[#(#numbers),*];
        }
    }
}

pub(super) fn message(declared: &Message, package: &Package, names: &Names) -> TokenStream {
    let path = tokens(&names.path(&declared.full_name, &package.name, 0));
    let name = short_name(&declared.full_name, &package.name);
    let allow_deprecated =
        declared.fields.iter().any(|field| field.is_deprecated).then(|| quote! { #[allow(deprecated)] });
    // A required field may be boxed or not; `into` fits both.
    let has_into = declared.fields.iter().any(|field| matches!(field.shape, Shape::Always(Type::Message(_))));
    let allow_into = has_into.then(|| quote! { #[allow(clippy::useless_conversion)] });
    let codec = Codec { message: declared, package, names };
    let (out, writes) = codec.writes();
    let (input, reads) = codec.reads();
    quote! {
        #allow_deprecated
        #allow_into
        impl ::frpc::codec::Message for #path {
            const NAME: &'static str = #name;

            fn encode_fields<S: ::frpc::codec::Sink>(&self, #out: &mut ::frpc::codec::Writer<S>) {
                #writes
            }

            fn decode_fields(
                #input: &mut ::frpc::codec::Reader<'_>,
            ) -> ::core::result::Result<Self, ::frpc::codec::DecodeError> {
                #reads
            }
        }
    }
}

/// The code for one message.
struct Codec<'a> {
    message: &'a Message,
    package: &'a Package,
    names: &'a Names,
}

impl Codec<'_> {
    /// The name of the writer, and what is done with it.
    fn writes(&self) -> (TokenStream, TokenStream) {
        if self.message.fields.is_empty() {
            return (quote! { _ }, quote! {});
        }
        let writes = self.message.fields.iter().map(|field| self.write(field));
        (quote! { out }, quote! { #(#writes)* })
    }

    fn write(&self, field: &Field) -> TokenStream {
        let name = tokens(&naming::snake(&field.name));
        let write = match &field.shape {
            Shape::Always(Type::Message(of)) => {
                let of = self.path(of);
                quote! { out.message_or_nil::<#of>(Some(&self.#name)) }
            }
            Shape::Always(of @ (Type::String | Type::Bytes)) => self.write_value(of, quote! { &self.#name }),
            Shape::Always(of) => self.write_value(of, quote! { self.#name }),
            Shape::Optional(of) => self.write_optional(of, quote! { self.#name.as_ref() }),
            Shape::Member(oneof, of) => {
                let oneof = &self.message.oneofs[*oneof];
                let (value, variant) = (tokens(&naming::snake(&oneof.name)), self.variant(oneof, &field.name));
                let member = local(&field.name);
                let write = self.write_optional(of, member.clone());
                quote! {
                    let #member = match &self.#value { Some(#variant(value)) => Some(value), _ => None };
                    #write
                }
            }
            Shape::List(of) => {
                let (kind, write) = (kind(of), self.write_by(of, quote! { item }));
                quote! { out.list(#kind, &self.#name, #write) }
            }
            Shape::Map(key, value) => {
                let kinds = [kind(key), kind(value)];
                let (key, value) = (self.write_by(key, quote! { key }), self.write_by(value, quote! { value }));
                quote! { out.map((#(#kinds),*), self.#name.iter(), #key, #value) }
            }
        };
        quote! { #write; }
    }

    fn write_optional(&self, of: &Type, value: TokenStream) -> TokenStream {
        match of {
            Type::Message(of) => {
                let of = self.path(of);
                quote! { out.message_or_nil::<#of>(#value) }
            }
            of => {
                let write = self.write_by(of, quote! { value });
                quote! { out.optional(#value, #write) }
            }
        }
    }

    /// A closure that writes what the reference `name` points to.
    fn write_by(&self, of: &Type, name: TokenStream) -> TokenStream {
        let value = match of {
            Type::String | Type::Bytes | Type::Message(_) => name.clone(),
            _ => quote! { *#name },
        };
        let write = self.write_value(of, value);
        quote! { |out, #name| #write }
    }

    fn write_value(&self, of: &Type, value: TokenStream) -> TokenStream {
        let write = self.accessor(of, quote! { bytes }, quote! { message });
        quote! { out.#write(#value) }
    }

    /// What `Writer` and `Reader` call a type. They have the same names for all but two.
    fn accessor(&self, of: &Type, bytes: TokenStream, message: TokenStream) -> TokenStream {
        match of {
            Type::Bool => quote! { bool },
            Type::I32 => quote! { i32 },
            Type::I64 => quote! { i64 },
            Type::U32 => quote! { u32 },
            Type::U64 => quote! { u64 },
            Type::F32 => quote! { f32 },
            Type::F64 => quote! { f64 },
            Type::String => quote! { string },
            Type::Bytes => bytes,
            Type::Enum(of) => {
                let of = self.path(of);
                quote! { enumeration::<#of> }
            }
            Type::Message(_) => message,
        }
    }

    /// The name of the reader, and what is done with it.
    fn reads(&self) -> (TokenStream, TokenStream) {
        let Message { fields, oneofs, .. } = self.message;
        if fields.is_empty() {
            return (quote! { _ }, quote! { Ok(Self {}) });
        }
        let reads = fields.iter().map(|field| self.read(field));
        if oneofs.is_empty() {
            let names = fields.iter().map(|field| tokens(&naming::snake(&field.name)));
            return (quote! { input }, quote! { use ::frpc::codec::At as _; Ok(Self { #(#names: #reads),* }) });
        }
        let locals = fields.iter().map(|field| local(&field.name));
        let plain = fields.iter().filter(|field| !matches!(field.shape, Shape::Member(..))).map(|field| {
            let (name, local) = (naming::snake(&field.name), local(&field.name));
            if name == local.to_string() {
                local
            } else {
                let name = tokens(&name);
                quote! { #name: #local }
            }
        });
        let oneofs = oneofs.iter().map(|oneof| self.first_member(oneof));
        let reads = quote! {
            use ::frpc::codec::At as _;
            #(let #locals = #reads;)*
            Ok(Self { #(#plain,)* #(#oneofs),* })
        };
        (quote! { input }, reads)
    }

    fn read(&self, field: &Field) -> TokenStream {
        let read = match &field.shape {
            Shape::Always(Type::Message(of)) => {
                let (of, name) = (self.path(of), &field.name);
                return quote! { input.message_or_default::<#of>().at(#name)?.into() };
            }
            Shape::Optional(Type::Message(of)) | Shape::Member(_, Type::Message(of)) => {
                let (of, name) = (self.path(of), &field.name);
                return quote! { input.message_or_nil::<#of, _>().at(#name)? };
            }
            Shape::Always(of) => self.read_value(of),
            Shape::Optional(of) | Shape::Member(_, of) => {
                let read = self.read_value(of);
                quote! { input.optional(|input| #read) }
            }
            Shape::List(of) => {
                let (kind, read) = (kind(of), self.read_value(of));
                quote! { input.list(#kind, |input| #read) }
            }
            Shape::Map(key, value) => {
                let kinds = [kind(key), kind(value)];
                let (key, value) = (self.read_value(key), self.read_value(value));
                quote! { input.map((#(#kinds),*), |input| #key, |input| #value) }
            }
        };
        let name = &field.name;
        quote! { #read.at(#name)? }
    }

    fn read_value(&self, of: &Type) -> TokenStream {
        let read = self.accessor(of, quote! { blob }, quote! { message_or_default });
        quote! { input.#read() }
    }

    /// Which member is set is not on the wire: it is the first that is there.
    fn first_member(&self, oneof: &Oneof) -> TokenStream {
        let name = tokens(&naming::snake(&oneof.name));
        let members = oneof.members.iter().map(|member| {
            let (local, variant) = (local(member), self.variant(oneof, member));
            quote! { #local.map(#variant) }
        });
        let first = members.reduce(|first, next| quote! { #first.or(#next) });
        quote! { #name: #first }
    }

    /// The path to a oneof's variant.
    fn variant(&self, oneof: &Oneof, member: &str) -> TokenStream {
        let module = self.names.path(&format!("{}.x", self.message.full_name), &self.package.name, 0);
        let module = module.strip_suffix("X").expect("the path ends with the name it was asked for");
        let of = naming::oneof_type(&oneof.name, oneof.siblings.iter().map(String::as_str));
        tokens(&format!("{module}{of}::{}", naming::upper_camel(member)))
    }

    fn path(&self, full_name: &str) -> TokenStream {
        tokens(&self.names.path(full_name, &self.package.name, 0))
    }
}

/// The local variable for a field; not to be confused with the reader or writer.
fn local(field: &str) -> TokenStream {
    match naming::snake(field).as_str() {
        name @ ("input" | "out") => tokens(&format!("{name}_")),
        name => tokens(name),
    }
}

fn kind(of: &Type) -> TokenStream {
    let kind = match of {
        Type::Bool => quote! { Bool },
        Type::I32 => quote! { I32 },
        Type::I64 => quote! { I64 },
        Type::U32 | Type::Enum(_) => quote! { U32 },
        Type::U64 => quote! { U64 },
        Type::F32 => quote! { F32 },
        Type::F64 => quote! { F64 },
        Type::String => quote! { String },
        Type::Bytes => quote! { Bytes },
        Type::Message(_) => quote! { Any },
    };
    quote! { ::frpc::codec::Kind::#kind }
}

/// The name without its package: what errors say.
fn short_name<'a>(full_name: &'a str, package: &str) -> &'a str {
    full_name.trim_start_matches('.').strip_prefix(package).unwrap_or(full_name).trim_start_matches('.')
}
