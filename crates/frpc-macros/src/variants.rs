//! The attributes of an error enum.

use proc_macro2::{Ident, Span};
use quote::format_ident;
use syn::{
    Attribute, Data, DeriveInput, Error, GenericArgument, LitStr, PathArguments, Result, Type, Variant,
    spanned::Spanned,
};

/// An error enum.
pub(crate) struct ErrorEnum {
    pub(crate) input: DeriveInput,
    pub(crate) variants: Vec<ErrorVariant>,
    /// The domain of each `ErrorInfo`.
    pub(crate) domain: String,
}

/// A variant of an error enum.
pub(crate) struct ErrorVariant {
    pub(crate) name: Ident,
    pub(crate) fields: Vec<ErrorField>,
    pub(crate) kind: VariantKind,
}

/// The status of a variant.
pub(crate) enum VariantKind {
    /// The only field converts into the status.
    Transparent,
    Coded {
        code: Ident,
        message: Option<LitStr>,
        reason: Option<LitStr>,
    },
}

/// A field of a variant.
pub(crate) struct ErrorField {
    /// The name, or the index.
    pub(crate) member: syn::Member,
    /// The variable that holds the field.
    pub(crate) local: Ident,
    pub(crate) ty: Type,
    pub(crate) role: FieldRole,
}

/// The use of a field in the status.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldRole {
    /// In the message only.
    Plain,
    Detail(DetailCount),
    Metadata,
}

/// The number of messages in a field with details.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DetailCount {
    One,
    Optional,
    Many,
}

impl ErrorEnum {
    pub(crate) fn read(input: DeriveInput) -> Result<Self> {
        let Data::Enum(data) = &input.data else {
            return Err(Error::new(input.ident.span(), "only an enum can be a status: it has one code per variant"));
        };
        let mut domain = None;
        for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("status")) {
            attribute.parse_nested_meta(|meta| {
                if !meta.path.is_ident("domain") {
                    return Err(meta.error("unknown option of the enum: expected `domain = \"…\"`"));
                }
                domain = Some(meta.value()?.parse::<LitStr>()?.value());
                Ok(())
            })?;
        }
        let variants: Vec<_> = data.variants.iter().map(ErrorVariant::read).collect::<Result<_>>()?;
        for variant in &variants {
            if let VariantKind::Coded { reason: Some(reason), .. } = &variant.kind
                && domain.is_none()
            {
                let message = "a reason needs a domain: add `#[status(domain = \"…\")]` to the enum";
                return Err(Error::new(reason.span(), message));
            }
        }
        Ok(Self { variants, domain: domain.unwrap_or_default(), input })
    }
}

impl ErrorVariant {
    fn read(variant: &Variant) -> Result<Self> {
        let mut options = StatusOptions::default();
        for attribute in variant.attrs.iter().filter(|attribute| attribute.path().is_ident("status")) {
            options.read(attribute)?;
        }
        let fields: Vec<_> = variant.fields.iter().enumerate().map(ErrorField::read).collect::<Result<_>>()?;
        let kind = match options {
            StatusOptions { transparent: Some(span), code: None, message: None, reason: None } => {
                let is_plain = matches!(&fields[..], [field] if field.role == FieldRole::Plain);
                if !is_plain {
                    return Err(Error::new(span, "a transparent variant has exactly one field, without attributes"));
                }
                VariantKind::Transparent
            }
            StatusOptions { transparent: Some(span), .. } => {
                return Err(Error::new(span, "a transparent variant has no code, message or reason of its own"));
            }
            StatusOptions { code: Some(code), message, reason, .. } => VariantKind::Coded { code, message, reason },
            StatusOptions { code: None, .. } => {
                let message = "this variant has no code: add `#[status(NotFound)]` or another code, or \
                               `#[status(transparent)]`";
                return Err(Error::new(variant.ident.span(), message));
            }
        };
        let metadata = fields.iter().find(|field| field.role == FieldRole::Metadata);
        if let (Some(field), VariantKind::Coded { reason: None, .. }) = (metadata, &kind) {
            let message = "metadata belong to an `ErrorInfo`: add `reason = \"…\"` to the variant";
            return Err(Error::new(field.ty.span(), message));
        }
        Ok(Self { name: variant.ident.clone(), fields, kind })
    }
}

#[derive(Default)]
struct StatusOptions {
    code: Option<Ident>,
    message: Option<LitStr>,
    reason: Option<LitStr>,
    transparent: Option<Span>,
}

impl StatusOptions {
    fn read(&mut self, attribute: &Attribute) -> Result<()> {
        attribute.parse_nested_meta(|meta| {
            let Some(name) = meta.path.get_ident() else { return Err(meta.error(UNKNOWN)) };
            let twice = |is_twice: bool| match is_twice {
                true => Err(meta.error(format!("`{name}` is given twice"))),
                false => Ok(()),
            };
            match name.to_string().as_str() {
                "message" => twice(self.message.replace(meta.value()?.parse()?).is_some()),
                "reason" => {
                    let reason: LitStr = meta.value()?.parse()?;
                    if reason.value().is_empty() {
                        return Err(Error::new(reason.span(), "a reason must not be empty"));
                    }
                    twice(self.reason.replace(reason).is_some())
                }
                "transparent" => twice(self.transparent.replace(name.span()).is_some()),
                "Ok" => Err(meta.error("an error cannot have the code `Ok`")),
                code if CODES.contains(&code) => match self.code.replace(name.clone()) {
                    Some(_) => Err(meta.error("a variant has one code")),
                    None => Ok(()),
                },
                other if other.starts_with(|first: char| first.is_ascii_uppercase()) => {
                    let codes = CODES.join("`, `");
                    Err(meta.error(format!("`{other}` is not a code: expected one of `{codes}`")))
                }
                _ => Err(meta.error(UNKNOWN)),
            }
        })
    }
}

impl ErrorField {
    fn read((index, field): (usize, &syn::Field)) -> Result<Self> {
        let mut role = FieldRole::Plain;
        for attribute in &field.attrs {
            let new = match attribute.path() {
                path if path.is_ident("detail") => FieldRole::Detail(count(&field.ty)),
                path if path.is_ident("metadata") => FieldRole::Metadata,
                path if path.is_ident("status") => {
                    let message = "`status` belongs to the variant: a field can be a `#[detail]` or `#[metadata]`";
                    return Err(Error::new(attribute.span(), message));
                }
                _ => continue,
            };
            attribute.meta.require_path_only()?;
            if role != FieldRole::Plain {
                return Err(Error::new(attribute.span(), "a field is either a detail or in the metadata, and once"));
            }
            role = new;
        }
        let (member, local) = match &field.ident {
            Some(name) => (syn::Member::Named(name.clone()), name.clone()),
            None => (syn::Member::from(index), format_ident!("_{index}")),
        };
        Ok(Self { member, local, ty: field.ty.clone(), role })
    }

    /// Returns the name of the field as text.
    pub(crate) fn name(&self) -> String {
        match &self.member {
            syn::Member::Named(name) => syn::ext::IdentExt::unraw(name).to_string(),
            syn::Member::Unnamed(index) => index.index.to_string(),
        }
    }
}

/// Returns the number of messages in a type, by its spelling.
fn count(ty: &Type) -> DetailCount {
    match wrapper(ty) {
        Some((name, _)) if name == "Option" => DetailCount::Optional,
        Some((name, _)) if name == "Vec" => DetailCount::Many,
        _ => DetailCount::One,
    }
}

/// Returns the name and the argument of a type with one type argument.
pub(crate) fn wrapper(ty: &Type) -> Option<(&Ident, &Type)> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last()?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first()? {
        GenericArgument::Type(inner) => Some((&last.ident, inner)),
        _ => None,
    }
}

const UNKNOWN: &str =
    "unknown option: expected a code such as `NotFound`, `message = \"…\"`, `reason = \"…\"` or `transparent`";

/// The variants of `frpc::Code` for errors.
const CODES: [&str; 16] = [
    "Cancelled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];
