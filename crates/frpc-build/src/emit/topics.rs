//! Generates the module with the topics of a package: constants for frisbee-pubsub.

use std::collections::HashSet;

use frpc_schema::{PackageSchema, Schema};
use proc_macro2::TokenStream;
use quote::quote;

use super::{
    emitter::{EmitSettings, MessageTopic},
    rust::{doc, tokens},
};
use crate::naming;

pub(super) fn module(package: &PackageSchema, emitter: &EmitSettings) -> Option<TokenStream> {
    let constants: Vec<_> = of(package, &emitter.topics)
        .map(|topic| {
            let about = doc(&format!("`{}` under `{}`.", topic.message, topic.pattern));
            let (constant, pattern) = (tokens(&constant(topic, package)), &topic.pattern);
            let message = tokens(&emitter.names.path(&topic.message, &package.name, 1));
            quote! {
                #about
                pub const #constant: Topic<#message> = Topic::new(#pattern);
            }
        })
        .collect();
    let (about, module) = (doc("The topics of this package."), tokens(MODULE));
    (!constants.is_empty()).then(|| {
        quote! {
            #about
            pub mod #module {
                use ::frisbee_pubsub::Topic;

                #(#constants)*
            }
        }
    })
}

/// Checks the topics. Returns an error if one has no message or a conflicting name.
pub(crate) fn check(schema: &Schema, topics: &[MessageTopic]) -> Result<(), String> {
    let messages = || schema.packages.iter().flat_map(|package| &package.messages);
    if let Some(topic) = topics.iter().find(|topic| !messages().any(|message| message.full_name == topic.message)) {
        return Err(format!("the topic of '{}' has no message: no proto file declares it", topic.message));
    }
    for package in schema.packages.iter().filter(|package| of(package, topics).next().is_some()) {
        let mut names = HashSet::new();
        if let Some(topic) = of(package, topics).find(|topic| !names.insert(constant(topic, package))) {
            return Err(format!(
                "more than one topic would have the constant for '{}': declare the others with `Topic::new`",
                topic.message
            ));
        }
        let is_module = |message: &&frpc_schema::MessageSchema| {
            own(&message.full_name, package).is_some_and(|own| naming::snake(own) == MODULE)
                && !message.nested.is_empty()
        };
        let mut own_modules = naming::modules(&package.name);
        own_modules.push(MODULE.to_owned());
        let is_package = schema.packages.iter().any(|other| naming::modules(&other.name).starts_with(&own_modules));
        if is_package || package.messages.iter().any(|message| is_module(&message)) {
            return Err(format!(
                "the package '{}' already has a module `{MODULE}`, the name of the module for topics: declare them with `Topic::new`",
                package.name
            ));
        }
    }
    Ok(())
}

fn of<'a>(package: &'a PackageSchema, topics: &'a [MessageTopic]) -> impl Iterator<Item = &'a MessageTopic> {
    let is_here = |topic: &&MessageTopic| package.messages.iter().any(|message| message.full_name == topic.message);
    topics.iter().filter(is_here)
}

fn constant(topic: &MessageTopic, package: &PackageSchema) -> String {
    naming::shouty(&own(&topic.message, package).unwrap_or(&topic.message).replace('.', "_"))
}

fn own<'a>(full_name: &'a str, package: &PackageSchema) -> Option<&'a str> {
    full_name.strip_prefix(&package.name).map(|own| own.trim_start_matches('.'))
}

const MODULE: &str = "topics";
