//! The serde attributes with an effect on the JSON of a type.

use proc_macro2::TokenTree;
use syn::{Attribute, LitStr, Result, Token, meta::ParseNestedMeta};

use super::names::RenameRule;

/// The attributes of a type, a variant or a field.
#[derive(Debug, Default)]
pub(super) struct SerdeAttributes {
    pub(super) name: Option<String>,
    /// The case of a struct's fields, an enum's variants or a variant's fields.
    pub(super) case: Option<RenameRule>,
    /// The case of the fields of all variants.
    pub(super) case_of_fields: Option<RenameRule>,
    pub(super) tag: Option<String>,
    pub(super) content: Option<String>,
    pub(super) is_untagged: bool,
    pub(super) is_transparent: bool,
    pub(super) is_closed: bool,
    pub(super) is_skipped: bool,
    pub(super) is_flat: bool,
    /// `true` if the field, or each field of the type, may be missing in serialized or deserialized JSON.
    pub(super) is_optional: bool,
    /// `true` for a field with custom serialization, so that its JSON is unrelated to its type.
    pub(super) is_opaque: bool,
}

/// The item with the attributes. Each kind supports different ones.
#[derive(Clone, Copy)]
pub(super) enum ItemKind {
    Type,
    Variant,
    Field,
}

impl SerdeAttributes {
    pub(super) fn read(kind: ItemKind, attributes: &[Attribute]) -> Result<Self> {
        let mut found = Self::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
            attribute.parse_nested_meta(|meta| found.add(kind, &meta))?;
        }
        Ok(found)
    }

    fn add(&mut self, kind: ItemKind, meta: &ParseNestedMeta<'_>) -> Result<()> {
        use ItemKind::{Field, Type, Variant};

        let name = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
        match (kind, &*name) {
            (_, "rename") => self.name = Some(text(meta)?.value()),
            (Type | Variant, "rename_all") => self.case = Some(RenameRule::read(&text(meta)?)?),
            (Type, "rename_all_fields") => self.case_of_fields = Some(RenameRule::read(&text(meta)?)?),
            (Type, "tag") => self.tag = Some(text(meta)?.value()),
            (Type, "content") => self.content = Some(text(meta)?.value()),
            (Type, "untagged") => self.is_untagged = true,
            (Type, "transparent") => self.is_transparent = true,
            (Type, "deny_unknown_fields") => self.is_closed = true,
            (Variant | Field, "skip") => self.is_skipped = true,
            (Field, "flatten") => self.is_flat = true,
            (Type | Field, "default") | (Field, "skip_serializing_if" | "skip_serializing" | "skip_deserializing") => {
                self.is_optional = true;
                pass_over(meta)?;
            }
            (Field, "with" | "serialize_with" | "deserialize_with") => {
                self.is_opaque = true;
                pass_over(meta)?;
            }
            (_, "bound")
            | (Type, "crate" | "expecting")
            | (Variant | Field, "alias" | "borrow")
            | (Variant, "skip_serializing" | "skip_deserializing") => pass_over(meta)?,
            _ => {
                let text = format!("a schema cannot be derived with `{name}`: implement `Schema` by hand");
                return Err(meta.error(text));
            }
        }
        Ok(())
    }
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
