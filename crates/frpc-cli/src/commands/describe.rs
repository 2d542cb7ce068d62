//! `frpc describe`: shows declarations.

use frpc::codec::Format;
use prost_reflect::{EnumDescriptor, MessageDescriptor, ServiceDescriptor};
use serde_json::json;

use super::list::{address_and_name, schema_of};
use crate::{
    arguments::MetadataOptions,
    connect::{ConnectOptions, addresses},
    declarations::ProtoDeclaration,
    failure::{CommandError, Result},
    invocation::is_json_rpc,
    messages, open_rpc,
    schema::{self, SchemaSources, ServerSchema},
    suggest,
    terminal::{print_json, print_line, printable, printable_name},
};

/// Shows the declaration of a service, method, message or enum.
///
/// The output is in proto syntax and includes the messages used by the declaration.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DescribeCommand {
    /// The address of the server. Omit it with --proto or --descriptor-set.
    address: Option<String>,
    /// The full name or any unambiguous part. Default: all services.
    name: Option<String>,
    /// Prints the message, or the request of the method, as JSON with all fields, to be filled in.
    #[arg(long, visible_alias = "msg-template")]
    template: bool,
    /// Also writes the whole schema to a descriptor set, for --descriptor-set and other tools.
    #[arg(long, visible_alias = "protoset-out", value_name = "FILE")]
    save: Option<std::path::PathBuf>,
    #[command(flatten)]
    sources: SchemaSources,
    #[command(flatten)]
    metadata: MetadataOptions,
    #[command(flatten)]
    connect: ConnectOptions,
}

const EXAMPLES: &str = addresses!(
    "Examples:
  frpc describe :7300 Say
  frpc describe :7300 Say --template
  frpc describe grpc://localhost:7300 --save services.binpb"
);

impl DescribeCommand {
    pub(crate) async fn run(&self, is_json: bool) -> Result<()> {
        let (address, name) = address_and_name(&self.sources, &self.address, &self.name);
        if let Some(address) = address.filter(|address| is_json_rpc(address) && self.sources.is_empty()) {
            return self.describe_functions(address, name, is_json).await;
        }
        let schema = schema_of(&self.sources, &self.connect, &self.metadata, address, None).await?;
        if let Some(path) = &self.save {
            let written = std::fs::write(path, schema.encode());
            written.map_err(|error| CommandError::new(format!("{}: {error}", path.display())))?;
        }
        let all = match name {
            Some(name) => vec![find(&schema, name)?],
            None => schema.services().iter().cloned().map(ProtoDeclaration::Service).collect(),
        };
        for (index, declared) in all.iter().enumerate() {
            if self.template {
                let shape = match declared {
                    ProtoDeclaration::Method(method) => method.input(),
                    ProtoDeclaration::Message(message) => message.clone(),
                    ProtoDeclaration::Service(_) | ProtoDeclaration::Enum(_) => {
                        return Err(CommandError::new("only messages and methods have a template")
                            .with_try("`frpc describe ADDRESS METHOD --template`"));
                    }
                };
                let template = messages::template(&shape);
                let text = if is_json { template.to_string() } else { format!("{template:#}") };
                print_json(text)?;
            } else if is_json {
                print_json(summary(declared))?;
            } else {
                if index > 0 {
                    print_line("")?;
                }
                print_line(printable(declared.text().trim_end()))?;
            }
        }
        Ok(())
    }
}

impl DescribeCommand {
    async fn describe_functions(&self, address: &str, name: Option<&str>, is_json: bool) -> Result<()> {
        if self.template || self.save.is_some() {
            return Err(CommandError::new("functions of JSON-RPC have neither templates nor descriptors"));
        }
        let channel = self.connect.connect(address, Format::Json).await?;
        let functions = open_rpc::functions(&channel).await?;
        let found: Vec<_> =
            functions.iter().filter(|function| name.is_none_or(|name| function.name() == name)).collect();
        if let (Some(name), true) = (name, found.is_empty()) {
            let failure = CommandError::new(format!("there is no function {name}"));
            let names = functions.iter().map(open_rpc::FunctionDocument::name);
            return Err(
                failure.with_try(suggest::probably(name, names).unwrap_or_else(|| format!("`frpc list {address}`")))
            );
        }
        for function in found {
            if is_json {
                print_json(&function.0)?;
                continue;
            }
            for line in function.description().lines() {
                print_line(format_args!("// {}", printable(line)))?;
            }
            let (name, signature) = (printable_name(function.name()), printable_name(&function.signature()));
            print_line(format_args!("{name}{signature}"))?;
            print_json(format_args!("{:#}", function.0))?;
        }
        Ok(())
    }
}

fn summary(declared: &ProtoDeclaration) -> serde_json::Value {
    let (kind, name) = match declared {
        ProtoDeclaration::Service(service) => ("service", service.full_name().to_owned()),
        ProtoDeclaration::Method(method) => ("method", schema::path(method)),
        ProtoDeclaration::Message(message) => ("message", message.full_name().to_owned()),
        ProtoDeclaration::Enum(found) => ("enum", found.full_name().to_owned()),
    };
    json!({ "kind": kind, "name": name, "proto": declared.text() })
}

fn find(schema: &ServerSchema, name: &str) -> Result<ProtoDeclaration> {
    let pool = schema.pool();
    if let Some(service) = schema.service(name) {
        return Ok(ProtoDeclaration::Service(service.clone()));
    }
    let messages = || pool.all_messages().filter(|message| !message.is_map_entry());
    let message = pool.get_message_by_name(name).or_else(|| last_part(messages(), name, MessageDescriptor::name));
    if let Some(message) = message {
        return Ok(ProtoDeclaration::Message(message));
    }
    let found = pool.get_enum_by_name(name).or_else(|| last_part(pool.all_enums(), name, EnumDescriptor::name));
    if let Some(found) = found {
        return Ok(ProtoDeclaration::Enum(found));
    }
    schema.method(name).map(ProtoDeclaration::Method).map_err(|_| {
        let mut names: Vec<String> = schema.services().iter().map(|service| service.full_name().to_owned()).collect();
        names.extend(schema.services().iter().flat_map(ServiceDescriptor::methods).map(|method| schema::path(&method)));
        names.extend(messages().map(|message| message.full_name().to_owned()));
        let failure = CommandError::new(format!("there is no service, method or type {name}"));
        match suggest::probably(name, names.iter().map(String::as_str)) {
            Some(advice) => failure.with_try(advice),
            None => failure.with_try("`frpc list` with the same address or files"),
        }
    })
}

/// Returns the only item whose last part is `name`.
fn last_part<T>(all: impl Iterator<Item = T>, name: &str, last: impl Fn(&T) -> &str) -> Option<T> {
    let mut found = all.filter(|one| last(one) == name);
    let first = found.next();
    first.filter(|_| found.next().is_none())
}
