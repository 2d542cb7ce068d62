//! The serde attributes with an effect on the JSON of a type.

use proc_macro2::TokenTree;
use syn::{Attribute, LitStr, Result, Token, meta::ParseNestedMeta};

use super::names::RenameRule;

/// The attributes of a type.
#[derive(Debug, Default)]
pub(super) struct TypeAttributes {
    pub(super) name: Option<String>,
    /// The case of a struct's fields or an enum's variants.
    pub(super) case: Option<RenameRule>,
    /// The case of the fields of all variants.
    pub(super) case_of_fields: Option<RenameRule>,
    pub(super) tag: Option<String>,
    pub(super) content: Option<String>,
    pub(super) is_untagged: bool,
    pub(super) is_transparent: bool,
    pub(super) is_closed: bool,
    pub(super) has_default: bool,
}

/// The attributes of a variant.
#[derive(Debug, Default)]
pub(super) struct VariantAttributes {
    pub(super) name: Option<String>,
    pub(super) case: Option<RenameRule>,
    pub(super) is_skipped: bool,
}

/// The attributes of a field.
#[derive(Debug, Default)]
pub(super) struct FieldAttributes {
    pub(super) name: Option<String>,
    pub(super) is_skipped: bool,
    pub(super) is_flat: bool,
    /// `true` if the field may be missing in serialized or deserialized JSON.
    pub(super) is_optional: bool,
    /// `true` for a field with custom serialization, so that its JSON is unrelated to its type.
    pub(super) is_opaque: bool,
}

impl TypeAttributes {
    pub(super) fn read(attributes: &[Attribute]) -> Result<Self> {
        read(attributes, |found: &mut Self, name, meta| {
            match name {
                "rename" => found.name = Some(text(meta)?.value()),
                "rename_all" => found.case = Some(RenameRule::read(&text(meta)?)?),
                "rename_all_fields" => found.case_of_fields = Some(RenameRule::read(&text(meta)?)?),
                "tag" => found.tag = Some(text(meta)?.value()),
                "content" => found.content = Some(text(meta)?.value()),
                "untagged" => found.is_untagged = true,
                "transparent" => found.is_transparent = true,
                "deny_unknown_fields" => found.is_closed = true,
                "default" => {
                    found.has_default = true;
                    pass_over(meta)?;
                }
                "bound" | "crate" | "expecting" => pass_over(meta)?,
                _ => return Err(unknown(name, meta)),
            }
            Ok(())
        })
    }
}

impl VariantAttributes {
    pub(super) fn read(attributes: &[Attribute]) -> Result<Self> {
        read(attributes, |found: &mut Self, name, meta| {
            match name {
                "rename" => found.name = Some(text(meta)?.value()),
                "rename_all" => found.case = Some(RenameRule::read(&text(meta)?)?),
                "skip" => found.is_skipped = true,
                "alias" | "bound" | "borrow" | "skip_serializing" | "skip_deserializing" => pass_over(meta)?,
                _ => return Err(unknown(name, meta)),
            }
            Ok(())
        })
    }
}

impl FieldAttributes {
    pub(super) fn read(attributes: &[Attribute]) -> Result<Self> {
        read(attributes, |found: &mut Self, name, meta| {
            match name {
                "rename" => found.name = Some(text(meta)?.value()),
                "skip" => found.is_skipped = true,
                "flatten" => found.is_flat = true,
                "default" | "skip_serializing_if" | "skip_serializing" | "skip_deserializing" => {
                    found.is_optional = true;
                    pass_over(meta)?;
                }
                "with" | "serialize_with" | "deserialize_with" => {
                    found.is_opaque = true;
                    pass_over(meta)?;
                }
                "alias" | "bound" | "borrow" => pass_over(meta)?,
                _ => return Err(unknown(name, meta)),
            }
            Ok(())
        })
    }
}

/// Passes the name of each serde attribute to `set`.
fn read<T: Default>(
    attributes: &[Attribute],
    set: impl Fn(&mut T, &str, &ParseNestedMeta<'_>) -> Result<()>,
) -> Result<T> {
    let mut found = T::default();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        attribute.parse_nested_meta(|meta| {
            let name = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
            set(&mut found, &name, &meta)
        })?;
    }
    Ok(found)
}

/// Parses the string value of an attribute.
fn text(meta: &ParseNestedMeta<'_>) -> Result<LitStr> {
    if meta.input.peek(syn::token::Paren) {
        return Err(meta.error("a schema applies to serialization and deserialization: use one name for both"));
    }
    meta.value()?.parse()
}

/// Skips the value of an attribute.
fn pass_over(meta: &ParseNestedMeta<'_>) -> Result<()> {
    while !meta.input.is_empty() && !meta.input.peek(Token![,]) {
        meta.input.parse::<TokenTree>()?;
    }
    Ok(())
}

fn unknown(name: &str, meta: &ParseNestedMeta<'_>) -> syn::Error {
    meta.error(format!("a schema cannot be derived with `{name}`: implement `Schema` by hand"))
}
