//! The messages of the attribute to those who use it wrongly.

use quote::quote;

use super::expand;

macro_rules! message {
    ($($options:ident $(= $value:literal)?),*; $($item:tt)*) => {
        message(quote!($($options $(= $value)?),*), quote!($($item)*))
    };
}

fn message(options: proc_macro2::TokenStream, item: proc_macro2::TokenStream) -> String {
    expand(options, item).expect_err("it is wrong").to_string()
}

#[test]
fn a_function_that_cannot_be_called_by_name_is_refused_with_a_way_out() {
    let table = [
        (
            message!(; fn f(&self) {}),
            "a function that is called by name has no `self`: give it what it needs as a state, `&T`",
        ),
        (
            message!(; fn f<T>(a: T) {}),
            "a function that is called by name has no generics: callers cannot choose types",
        ),
        (message!(; unsafe fn f() {}), "a function that anybody can call is not unsafe"),
        (message!(; extern "C" fn f() {}), "a function that is called by name is one of Rust"),
        (
            message!(; fn f((a, b): (i64, i64)) {}),
            "callers need a name for this parameter: write one, and take it apart within",
        ),
        (message!(; fn f(a: impl Sized) {}), "callers send a value of one type: write which"),
        (message!(; fn f() -> impl Sized {}), "callers get a value of one type: write which"),
        (
            message!(; fn f(a: &mut Db) {}),
            "calls run side by side, so that nothing can be lent to one alone: take `&T`, and a lock in it",
        ),
        (message!(; fn f(#[default] a: &Db) {}), "only arguments of callers have a default or a name of their own"),
        (
            message!(; fn f(#[name("b")] a: Context) {}),
            "only arguments of callers have a default or a name of their own",
        ),
        (message!(; fn f(a: i64, #[name("a")] b: i64) {}), "two arguments have the name `a`"),
        (message!(blocking; async fn f() {}), "an async function does not block: leave out `blocking` or `async`"),
        (message!(fast; fn f() {}), "no such option: there are `name = \"…\"` and `blocking`"),
        (message!(name = ""; fn f() {}), "the name of a function is not empty"),
        (message!(name = "rpc.f"; fn f() {}), "JSON-RPC keeps names that begin with `rpc.` for itself"),
        (message!(; struct F;), "expected `fn`"),
    ];
    for (found, expected) in table {
        assert_eq!(found, expected);
    }
}

#[test]
fn attributes_of_others_stay_with_the_function() {
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
