//! Expansion of a function into a type that implements `Function`.

#[cfg(test)]
mod tests;

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::{format_ident, quote, quote_spanned};
use syn::{ItemFn, Result, ReturnType, Type, ext::IdentExt, spanned::Spanned};

use crate::{
    docs::docs,
    options::FunctionOptions,
    parameter::{FunctionParameter, ParameterSource},
};

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let options = FunctionOptions::parse(options)?;
    let mut item: ItemFn = syn::parse2(item)?;
    check(&item, &options)?;
    let parameters: Vec<FunctionParameter> =
        item.sig.inputs.iter_mut().map(FunctionParameter::take).collect::<Result<_>>()?;
    let name = match &options.name {
        Some(name) => name.value(),
        None => item.sig.ident.unraw().to_string(),
    };
    check_names(&item, &parameters)?;

    let type_name = item.sig.ident.clone();
    let visibility = item.vis.clone();
    let docs = docs(&item.attrs);
    let attributes: Vec<_> = item.attrs.iter().filter(|attribute| attribute.path().is_ident("doc")).cloned().collect();
    let described = describe(&name, &docs, &parameters, &item);
    let calling = calling(&name, &parameters, &item, &options);
    let deref = deref(&item);

    let function = {
        let mut function = item;
        function.sig.ident = format_ident!("call", span = type_name.span());
        function
    };
    Ok(quote! {
        #(#attributes)*
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug)]
        #visibility struct #type_name;

        impl #type_name {
            #[allow(dead_code)]
            #function
        }

        #deref

        #[allow(clippy::all, clippy::pedantic)]
        impl ::frpc_jsonrpc::Function for #type_name {
            fn description(&self) -> &::frpc_jsonrpc::Description {
                #described
            }

            fn call(
                &self,
                __params: ::core::option::Option<&str>,
                __context: &::frpc_jsonrpc::Context,
                __out: &mut ::std::vec::Vec<u8>,
            ) -> ::frpc_jsonrpc::Called {
                #calling
            }
        }
    })
}

fn check(item: &ItemFn, options: &FunctionOptions) -> Result<()> {
    let signature = &item.sig;
    let refuse = |span: proc_macro2::Span, text: &str| Err(syn::Error::new(span, text));
    if let Some(parameter) = signature.generics.params.iter().find(|p| !matches!(p, syn::GenericParam::Lifetime(_))) {
        return refuse(parameter.span(), "a function called by name cannot be generic: callers cannot choose types");
    }
    if let Some(unsafety) = &signature.unsafety {
        return refuse(unsafety.span(), "a function called by name cannot be `unsafe`");
    }
    if let Some(abi) = &signature.abi {
        return refuse(abi.span(), "a function called by name cannot be `extern`");
    }
    if let Some(variadic) = &signature.variadic {
        return refuse(variadic.span(), "take a `Vec<T>` for any number of values");
    }
    if let (true, Some(asyncness)) = (options.is_blocking, &signature.asyncness) {
        return refuse(asyncness.span(), "an async function does not block: leave out `blocking` or `async`");
    }
    if let ReturnType::Type(_, returned) = &signature.output
        && let Type::ImplTrait(found) = &**returned
    {
        return refuse(found.span(), "the result needs a concrete type instead of `impl Trait`");
    }
    Ok(())
}

fn check_names(item: &ItemFn, parameters: &[FunctionParameter]) -> Result<()> {
    let mut names = Vec::new();
    for (parameter, input) in parameters.iter().zip(&item.sig.inputs) {
        if let Some(argument) = parameter.argument() {
            if names.contains(&&argument.name) {
                let text = format!("two arguments have the name `{}`", argument.name);
                return Err(syn::Error::new(input.span(), text));
            }
            names.push(&argument.name);
        }
    }
    Ok(())
}

/// Generates the description, created on first use.
fn describe(name: &str, docs: &str, parameters: &[FunctionParameter], item: &ItemFn) -> TokenStream {
    let arguments = parameters.iter().filter_map(FunctionParameter::argument).map(|argument| {
        let (name, owned) = (&argument.name, &argument.owned);
        let has_default = argument.default.is_some();
        let schema = schema_of(owned);
        quote!(.with_parameter(::frpc_jsonrpc::generated::parameter::<#owned>(#name, #schema, #has_default)))
    });
    let takes_context = parameters.iter().any(FunctionParameter::is_context);
    let context = takes_context.then(|| quote!(.with_context()));
    let result = match returned(&item.sig.output) {
        Some(returned) => schema_of(&returned.value),
        None => schema_of(&syn::parse_quote!(())),
    };
    quote! {
        static DESCRIPTION: ::std::sync::LazyLock<::frpc_jsonrpc::Description> = ::std::sync::LazyLock::new(|| {
            ::frpc_jsonrpc::Description::new(#name).with_docs(#docs) #(#arguments)* #context .with_result(#result)
        });
        &DESCRIPTION
    }
}

/// Generates the schema of a type. The compiler finds out whether the type has one.
fn schema_of(of: &Type) -> TokenStream {
    let of = match of {
        Type::Reference(reference) => &reference.elem,
        of => of,
    };
    let of = without_lifetimes(quote!(#of));
    quote! {{
        #[allow(unused_imports)]
        use ::frpc_jsonrpc::generated::{AnySchema as _, KnownSchema as _};
        (&::frpc_jsonrpc::generated::Probe::<#of>::new()).schema()
    }}
}

/// Replaces lifetimes by `'static`, because lifetimes of the function are not in scope in its schemas.
fn without_lifetimes(tokens: TokenStream) -> TokenStream {
    let mut is_lifetime = false;
    let replaced = tokens.into_iter().map(|token| match token {
        TokenTree::Group(group) => {
            let inside = without_lifetimes(group.stream());
            TokenTree::Group(Group::new(group.delimiter(), inside))
        }
        TokenTree::Ident(ident) if is_lifetime => {
            is_lifetime = false;
            TokenTree::Ident(Ident::new("static", ident.span()))
        }
        token => {
            is_lifetime = matches!(&token, TokenTree::Punct(sign) if sign.as_char() == '\'');
            token
        }
    });
    replaced.collect()
}

/// Generates the code that reads the arguments and calls the function.
fn calling(name: &str, parameters: &[FunctionParameter], item: &ItemFn, options: &FunctionOptions) -> TokenStream {
    let type_name = &item.sig.ident;
    let arguments: Vec<_> = parameters.iter().filter_map(|p| Some((&p.ident, p.argument()?))).collect();
    let names = arguments.iter().map(|(_, argument)| &argument.name);
    let idents: Vec<_> = arguments.iter().map(|(ident, _)| ident).collect();
    let reads = arguments.iter().enumerate().map(|(index, (_, argument))| {
        let owned = &argument.owned;
        match &argument.default {
            Some(default) => quote!(__arguments.or_else::<#owned>(#index, || #default)?),
            None => quote!(__arguments.required::<#owned>(#index)?),
        }
    });
    let is_later = options.is_blocking || item.sig.asyncness.is_some();
    let failed = if is_later {
        quote!(return ::core::result::Result::Err(status))
    } else {
        quote!(return ::frpc_jsonrpc::Called::Failed(status))
    };
    let states = parameters.iter().filter_map(|parameter| {
        let (ident, ParameterSource::State(state)) = (&parameter.ident, &parameter.source) else { return None };
        Some(quote! {
            let #ident = match ::frpc_jsonrpc::generated::state::<#state>(&__context, #name) {
                ::core::result::Result::Ok(state) => state,
                ::core::result::Result::Err(status) => #failed,
            };
        })
    });
    let passed = parameters.iter().map(|parameter| {
        let ident = &parameter.ident;
        match &parameter.source {
            ParameterSource::Argument(argument) if argument.is_lent => quote!(&#ident),
            ParameterSource::Context { is_lent: true } => quote!(&__context),
            ParameterSource::Context { is_lent: false } => {
                quote!(<::frpc_jsonrpc::Context as ::core::clone::Clone>::clone(&__context))
            }
            _ => quote!(#ident),
        }
    });
    let needs_context = parameters.iter().any(|parameter| parameter.argument().is_none());
    let await_ = item.sig.asyncness.map(|_| quote!(.await));
    let returned = returned(&item.sig.output);
    let called = quote!(#type_name::call(#(#passed),*) #await_);
    let called = match &returned {
        Some(FunctionOutput { span, fails: true, .. }) => {
            quote_spanned!(*span=> ::frpc_jsonrpc::generated::result(#called))
        }
        _ => quote!(::core::result::Result::Ok::<_, ::frpc_jsonrpc::generated::Status>(#called)),
    };
    let own_context = (needs_context && is_later)
        .then(|| quote!(let __context = <::frpc_jsonrpc::Context as ::core::clone::Clone>::clone(__context);));
    let run = if options.is_blocking {
        quote!(::frpc_jsonrpc::generated::block(#name, move || { #(#states)* #called }))
    } else if item.sig.asyncness.is_some() {
        quote!(::frpc_jsonrpc::generated::start(#name, async move { #(#states)* #called }, __out))
    } else {
        quote!(#(#states)* ::frpc_jsonrpc::generated::finish(#name, #called, __out))
    };
    quote! {
        const __NAMES: &[&str] = &[#(#names),*];
        let __read = || -> ::core::result::Result<_, ::frpc_jsonrpc::generated::Status> {
            let __arguments = ::frpc_jsonrpc::generated::Arguments::read(#name, __NAMES, __params, [::core::option::Option::None; __NAMES.len()])?;
            ::core::result::Result::Ok((#(#reads,)*))
        };
        let (#(#idents,)*) = match __read() {
            ::core::result::Result::Ok(arguments) => arguments,
            ::core::result::Result::Err(status) => return ::frpc_jsonrpc::Called::Failed(status),
        };
        #own_context
        #run
    }
}

/// Generates a `Deref` to a function pointer, so that the type can be called like the function.
///
/// There is none for async functions with references: the pointer type cannot express the lifetime of their future.
fn deref(item: &ItemFn) -> Option<TokenStream> {
    let signature = &item.sig;
    let (type_name, output) = (&signature.ident, &signature.output);
    let has_references =
        signature.inputs.iter().any(|input| matches!(input, syn::FnArg::Typed(input) if is_borrowed(&input.ty)));
    if signature.asyncness.is_some() && has_references {
        return None;
    }
    let lifetimes = &signature.generics.params;
    let lifetimes = (!lifetimes.is_empty()).then(|| quote!(for<#lifetimes>));
    let types: Vec<&Type> = signature
        .inputs
        .iter()
        .filter_map(|input| match input {
            syn::FnArg::Typed(input) => Some(&*input.ty),
            syn::FnArg::Receiver(_) => None,
        })
        .collect();
    let (pointer, value) = if signature.asyncness.is_some() {
        let output = match output {
            ReturnType::Default => quote!(()),
            ReturnType::Type(_, output) => quote!(#output),
        };
        let idents: Vec<_> = (0..types.len()).map(|index| format_ident!("a{index}")).collect();
        (
            quote!(fn(#(#types),*) -> ::core::pin::Pin<::std::boxed::Box<dyn ::core::future::Future<Output = #output> + ::core::marker::Send>>),
            quote!(|#(#idents),*| ::std::boxed::Box::pin(#type_name::call(#(#idents),*))),
        )
    } else {
        (quote!(#lifetimes fn(#(#types),*) #output), quote!(#type_name::call))
    };
    Some(quote! {
        impl ::core::ops::Deref for #type_name {
            type Target = #pointer;

            fn deref(&self) -> &Self::Target {
                const CALL: #pointer = #value;
                &CALL
            }
        }
    })
}

fn is_borrowed(found: &Type) -> bool {
    let tokens = quote!(#found).to_string();
    tokens.contains('&') || tokens.contains('\'')
}

/// The return type of a function.
struct FunctionOutput {
    /// The type of the value in case of success.
    value: Type,
    /// `true` for a `Result`.
    fails: bool,
    span: proc_macro2::Span,
}

fn returned(output: &ReturnType) -> Option<FunctionOutput> {
    let ReturnType::Type(_, returned) = output else { return None };
    let span = returned.span();
    if let Type::Path(path) = &**returned
        && let Some(last) = path.path.segments.last()
        && last.ident == "Result"
    {
        let value = match &last.arguments {
            syn::PathArguments::AngleBracketed(arguments) => {
                arguments.args.iter().find_map(|argument| match argument {
                    syn::GenericArgument::Type(value) => Some(value.clone()),
                    _ => None,
                })
            }
            _ => None,
        };
        // A `Result` alias without arguments may have any value type.
        let value = value.unwrap_or_else(|| syn::parse_quote!(::frpc_jsonrpc::generated::Anything));
        return Some(FunctionOutput { value, fails: true, span });
    }
    Some(FunctionOutput { value: (**returned).clone(), fails: false, span })
}
