//! Compile errors of the derives.

use proc_macro2::TokenStream;

fn refused(item: &str, expand: fn(TokenStream) -> syn::Result<TokenStream>) -> String {
    expand(item.parse().unwrap()).unwrap_err().to_string()
}

#[test]
fn mistakes_in_attributes_are_named() {
    let into = |item: &str| refused(item, crate::into_status::expand);
    for (item, expected) in [
        ("struct S;", "only an enum can be a status: it has one code per variant"),
        (
            "enum E { A }",
            "this variant has no code: add `#[status(NotFound)]` or another code, or `#[status(transparent)]`",
        ),
        ("enum E { #[status(Ok)] A }", "an error cannot have the code `Ok`"),
        ("enum E { #[status(NotFound, Aborted)] A }", "a variant has one code"),
        (
            "enum E { #[status(NotFound, text = \"a\")] A }",
            "unknown option: expected a code such as `NotFound`, `message = \"…\"`, `reason = \"…\"` or `transparent`",
        ),
        ("enum E { #[status(NotFound, message = \"a\", message = \"b\")] A }", "`message` is given twice"),
        (
            "enum E { #[status(NotFound, reason = \"A\")] A }",
            "a reason needs a domain: add `#[status(domain = \"…\")]` to the enum",
        ),
        ("#[status(domain = \"d\")] enum E { #[status(NotFound, reason = \"\")] A }", "a reason must not be empty"),
        ("#[status(reason = \"d\")] enum E {}", "unknown option of the enum: expected `domain = \"…\"`"),
        (
            "enum E { #[status(NotFound)] A(#[metadata] u8) }",
            "metadata belong to an `ErrorInfo`: add `reason = \"…\"` to the variant",
        ),
        (
            "enum E { #[status(NotFound)] A(#[detail] #[metadata] u8) }",
            "a field is either a detail or in the metadata, and once",
        ),
        (
            "enum E { #[status(NotFound)] A(#[status(Aborted)] u8) }",
            "`status` belongs to the variant: a field can be a `#[detail]` or `#[metadata]`",
        ),
        (
            "enum E { #[status(transparent)] A(u8, u8) }",
            "a transparent variant has exactly one field, without attributes",
        ),
        (
            "enum E { #[status(transparent, NotFound)] A(u8) }",
            "a transparent variant has no code, message or reason of its own",
        ),
    ] {
        assert_eq!(into(item), expected, "{item}");
    }
    let unknown = into("enum E { #[status(NotFund)] A }");
    assert!(unknown.starts_with("`NotFund` is not a code: expected one of `Cancelled`, `Unknown`, "), "{unknown}");
}

#[test]
fn variants_that_cannot_be_restored_are_named() {
    let from = |item: &str| refused(item, crate::from_status::expand);
    for (item, expected) in [
        (
            "enum E { #[status(NotFound)] A(u8) }",
            "a client cannot restore this field: mark it with `#[detail]` or `#[metadata]`",
        ),
        (
            "enum E { #[status(NotFound)] A, #[status(NotFound)] B }",
            "a client cannot tell this variant from `A`: give each its own `reason = \"…\"`",
        ),
        (
            "enum E { #[status(transparent)] A(Status), #[status(transparent)] B(Status) }",
            "a second transparent variant would never be restored",
        ),
    ] {
        assert_eq!(from(item), expected, "{item}");
    }
}
