//! Messages with fields in braces.

use proc_macro2::TokenStream;
use quote::quote;
use syn::LitStr;

/// Returns the code of a message. Fields without a name become variables: `{0}` is the variable `_0`.
pub(crate) fn format(message: &LitStr) -> TokenStream {
    let text = message.value();
    let mut named = String::with_capacity(text.len() + 8);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        named.push(letter);
        if letter != '{' {
            continue;
        }
        match letters.peek() {
            Some('{') => named.extend(letters.next()),
            Some(digit) if digit.is_ascii_digit() => named.push('_'),
            _ => {}
        }
    }
    let literal = LitStr::new(&named, message.span());
    quote! { ::std::format!(#literal) }
}
