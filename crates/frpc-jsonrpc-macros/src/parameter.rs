//! Parameters of a function and the sources of their values.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{
    Attribute, Expr, ExprLit, FnArg, Ident, Lit, LitStr, Pat, PatType, Result, Type, TypeReference, ext::IdentExt,
    spanned::Spanned,
};

/// A parameter and the source of its value.
pub(crate) struct FunctionParameter {
    pub(crate) ident: Ident,
    pub(crate) source: ParameterSource,
}

/// The source of a parameter's value.
pub(crate) enum ParameterSource {
    /// An argument from the caller.
    Argument(Box<CallerArgument>),
    /// The context of the call, borrowed or owned.
    Context { is_lent: bool },
    /// The state of this type.
    State(Box<Type>),
}

/// A parameter filled by the caller.
pub(crate) struct CallerArgument {
    /// The name used by callers.
    pub(crate) name: String,
    /// The type to deserialize.
    pub(crate) owned: Type,
    /// `true` if the function borrows the value.
    pub(crate) is_lent: bool,
    pub(crate) default: Option<TokenStream>,
}

impl FunctionParameter {
    /// Parses a parameter and removes our attributes from it.
    pub(crate) fn take(input: &mut FnArg) -> Result<Self> {
        let input = match input {
            FnArg::Receiver(receiver) => {
                let text = "a function called by name has no `self`: pass it a state instead, as `&T`";
                return Err(syn::Error::new(receiver.span(), text));
            }
            FnArg::Typed(input) => input,
        };
        let Pat::Ident(pattern) = &*input.pat else {
            return Err(syn::Error::new(
                input.pat.span(),
                "callers need a name for this parameter: use an identifier, and destructure it in the body",
            ));
        };
        let ident = pattern.ident.clone();
        let marks = ParameterAttributes::take(input)?;
        let source = match &*input.ty {
            Type::Reference(reference) if is_argument(reference) => {
                marks.argument(&ident, lent_type(&reference.elem)?, true)
            }
            Type::Reference(reference) => {
                if let Some(mutability) = &reference.mutability {
                    let text = "calls run concurrently and cannot share `&mut T`: take `&T` with a lock inside";
                    return Err(syn::Error::new(mutability.span(), text));
                }
                let source = match &*reference.elem {
                    Type::Path(path) if ends_with(path, "Context") => ParameterSource::Context { is_lent: true },
                    elem => ParameterSource::State(Box::new(elem.clone())),
                };
                marks.refuse("only arguments from callers can have")?;
                source
            }
            Type::Path(path) if ends_with(path, "Context") => {
                marks.refuse("only arguments from callers can have")?;
                ParameterSource::Context { is_lent: false }
            }
            Type::ImplTrait(found) => {
                return Err(syn::Error::new(found.span(), "a parameter needs a concrete type instead of `impl Trait`"));
            }
            owned => marks.argument(&ident, owned.clone(), false),
        };
        Ok(Self { ident, source })
    }

    pub(crate) fn argument(&self) -> Option<&CallerArgument> {
        match &self.source {
            ParameterSource::Argument(argument) => Some(argument),
            _ => None,
        }
    }

    pub(crate) fn is_context(&self) -> bool {
        matches!(self.source, ParameterSource::Context { .. })
    }
}

/// Our attributes of a parameter.
#[derive(Default)]
struct ParameterAttributes {
    default: Option<TokenStream>,
    name: Option<LitStr>,
    first: Option<Span>,
}

impl ParameterAttributes {
    fn take(input: &mut PatType) -> Result<Self> {
        let mut marks = Self::default();
        let mut others = Vec::new();
        for attribute in std::mem::take(&mut input.attrs) {
            if attribute.path().is_ident("default") {
                marks.default = Some(default(&attribute)?);
            } else if attribute.path().is_ident("name") {
                marks.name = Some(attribute.parse_args()?);
            } else {
                others.push(attribute);
                continue;
            }
            marks.first.get_or_insert(attribute.span());
        }
        input.attrs = others;
        Ok(marks)
    }

    fn argument(self, ident: &Ident, owned: Type, is_lent: bool) -> ParameterSource {
        let name = self.name.map_or_else(|| ident.unraw().to_string(), |name| name.value());
        ParameterSource::Argument(Box::new(CallerArgument { name, owned, is_lent, default: self.default }))
    }

    fn refuse(&self, who: &str) -> Result<()> {
        match self.first {
            Some(span) => Err(syn::Error::new(span, format!("{who} a default or another name"))),
            None => Ok(()),
        }
    }
}

fn default(attribute: &Attribute) -> Result<TokenStream> {
    if matches!(attribute.meta, syn::Meta::Path(_)) {
        let span = attribute.span();
        return Ok(quote_spanned!(span=> ::core::default::Default::default()));
    }
    let value: Expr = attribute.parse_args()?;
    Ok(match &value {
        Expr::Lit(ExprLit { lit: Lit::Str(_), .. }) => quote!(::core::convert::Into::into(#value)),
        _ => quote!(#value),
    })
}

/// Returns `true` if the referenced value comes from the caller.
fn is_argument(reference: &TypeReference) -> bool {
    reference.mutability.is_none()
        && match &*reference.elem {
            Type::Slice(_) => true,
            Type::Path(path) => path.path.is_ident("str") || ends_with(path, "String") || ends_with(path, "Vec"),
            _ => false,
        }
}

/// Returns the type to deserialize for a reference to `elem`.
fn lent_type(elem: &Type) -> Result<Type> {
    match elem {
        Type::Slice(slice) => {
            let item = &slice.elem;
            Ok(syn::parse_quote!(::std::vec::Vec<#item>))
        }
        Type::Path(path) if path.path.is_ident("str") => Ok(syn::parse_quote!(::std::string::String)),
        other => Ok(other.clone()),
    }
}

fn ends_with(path: &syn::TypePath, name: &str) -> bool {
    path.path.segments.last().is_some_and(|segment| segment.ident == name)
}
