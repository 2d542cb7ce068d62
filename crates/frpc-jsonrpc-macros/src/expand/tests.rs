//! Compile errors for incorrect uses of the attribute.

use quote::quote;

use super::expand;

#[test]
fn unsupported_functions_are_rejected_with_advice() {
    let table = [
        ("", "fn f(&self) {}", "a function called by name has no `self`: pass it a state instead, as `&T`"),
        ("", "fn f<T>(a: T) {}", "a function called by name cannot be generic: callers cannot choose types"),
        ("", "unsafe fn f() {}", "a function called by name cannot be `unsafe`"),
        ("", "extern \"C\" fn f() {}", "a function called by name cannot be `extern`"),
        (
            "",
            "fn f((a, b): (i64, i64)) {}",
            "callers need a name for this parameter: use an identifier, and destructure it in the body",
        ),
        ("", "fn f(a: impl Sized) {}", "a parameter needs a concrete type instead of `impl Trait`"),
        ("", "fn f() -> impl Sized {}", "the result needs a concrete type instead of `impl Trait`"),
        ("", "fn f(a: &mut Db) {}", "calls run concurrently and cannot share `&mut T`: take `&T` with a lock inside"),
        ("", "fn f(#[default] a: &Db) {}", "only arguments from callers can have a default or another name"),
        ("", "fn f(#[name(\"b\")] a: Context) {}", "only arguments from callers can have a default or another name"),
        ("", "fn f(a: i64, #[name(\"a\")] b: i64) {}", "two arguments have the name `a`"),
        ("blocking", "async fn f() {}", "an async function does not block: leave out `blocking` or `async`"),
        ("fast", "fn f() {}", "unknown option: expected `name = \"…\"` or `blocking`"),
        ("name = \"\"", "fn f() {}", "the name of a function must not be empty"),
        ("name = \"rpc.f\"", "fn f() {}", "JSON-RPC reserves names starting with `rpc.`"),
        ("", "struct F;", "expected `fn`"),
    ];
    for (options, item, expected) in table {
        let tokens = |text: &str| text.parse().expect("the text has tokens");
        let found = expand(tokens(options), tokens(item)).expect_err("it is wrong").to_string();
        assert_eq!(found, expected, "{item}");
    }
}

#[test]
fn other_attributes_stay_on_the_function() {
    let expanded = expand(
        quote!(),
        quote!(
            #[inline]
            #[doc = " Adds."]
            fn f(#[default(2)] a: i64) {}
        ),
    )
    .expect("it is right");
    let expanded = expanded.to_string();
    assert!(expanded.contains("# [inline] # [doc = \" Adds.\"] fn call (a : i64)"), "{expanded}");
    assert!(expanded.contains("# [doc = \" Adds.\"] # [allow (non_camel_case_types)]"), "{expanded}");
}
