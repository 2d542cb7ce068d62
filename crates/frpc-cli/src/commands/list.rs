//! `frpc list`: lists the services and methods of a server.

use frpc::codec::Format;
use serde_json::json;

use crate::{
    arguments::MetadataOptions,
    connect::{ConnectOptions, addresses},
    failure::{CommandError, Result},
    invocation::{call_failure, is_json_rpc},
    open_rpc,
    schema::{self, ReflectionError, SchemaSources, ServerSchema},
    suggest,
    terminal::{OutputStyle, print_json, print_line, printable_name},
};

/// Lists the services and methods of a server or of proto files.
///
/// Uses reflection, or rpc.discover for JSON-RPC.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ListCommand {
    /// The address of the server. Omit it with --proto or --descriptor-set.
    address: Option<String>,
    /// A single service, by its full name or its last part.
    service: Option<String>,
    #[command(flatten)]
    sources: SchemaSources,
    #[command(flatten)]
    metadata: MetadataOptions,
    #[command(flatten)]
    connect: ConnectOptions,
}

const EXAMPLES: &str = addresses!(
    "Examples:
  frpc list :7300
  frpc list grpc://localhost:7300 Echo
  frpc list --proto echo.proto"
);

impl ListCommand {
    pub(crate) async fn run(&self, is_json: bool) -> Result<()> {
        let (address, service) = address_and_name(&self.sources, &self.address, &self.service);
        if let Some(address) = address.filter(|address| is_json_rpc(address) && self.sources.is_empty()) {
            return self.list_functions(address, is_json).await;
        }
        let schema = schema_of(&self.sources, &self.connect, &self.metadata, address, None).await?;
        let services: Vec<_> = match service {
            None => schema.services().iter().collect(),
            Some(name) => vec![schema.service(name).ok_or_else(|| no_service(&schema, name))?],
        };
        let style = OutputStyle::of_stdout();
        for service in services {
            let methods = service.methods();
            if is_json {
                let methods: Vec<_> = methods
                    .map(|method| {
                        json!({
                            "name": method.name(), "path": schema::path(&method),
                            "request": method.input().full_name(), "response": method.output().full_name(),
                            "request_stream": method.is_client_streaming(), "response_stream": method.is_server_streaming(),
                        })
                    })
                    .collect();
                print_json(json!({ "service": service.full_name(), "methods": methods }))?;
                continue;
            }
            print_line(style.bold(&printable_name(service.full_name())))?;
            for method in methods {
                let stream = |streams: bool| if streams { "stream " } else { "" };
                let (input, output) = (method.input(), method.output());
                let (asks, answers) = (stream(method.is_client_streaming()), stream(method.is_server_streaming()));
                let types = format!("({asks}{}) → {answers}{}", input.full_name(), output.full_name());
                let (name, types) = (printable_name(method.name()), printable_name(&types));
                print_line(format_args!("  {} {}", style.cyan(&name), style.dim(&types)))?;
            }
        }
        for name in schema.unknown_services().iter().filter(|_| service.is_none()) {
            match is_json {
                true => print_json(json!({ "service": name }))?,
                false => print_line(style.bold(&printable_name(name)))?,
            }
        }
        Ok(())
    }
}

impl ListCommand {
    async fn list_functions(&self, address: &str, is_json: bool) -> Result<()> {
        let channel = self.connect.connect(address, Format::Json).await?;
        let style = OutputStyle::of_stdout();
        for function in open_rpc::functions(&channel).await? {
            match is_json {
                true => print_json(&function.0)?,
                false => {
                    let (name, signature) = (printable_name(function.name()), printable_name(&function.signature()));
                    print_line(format_args!("{} {}", style.cyan(&name), style.dim(&signature)))?;
                }
            }
        }
        Ok(())
    }
}

/// With files there is no address, so the first argument is the name.
pub(super) fn address_and_name<'a>(
    sources: &SchemaSources,
    first: &'a Option<String>,
    second: &'a Option<String>,
) -> (Option<&'a str>, Option<&'a str>) {
    match (first.as_deref(), second.as_deref()) {
        (name, None) if !sources.is_empty() => (None, name),
        arguments => arguments,
    }
}

/// Returns the schema from files, or from the server. For a server, it contains at least the service of `needed`, or
/// all services.
pub(super) async fn schema_of(
    sources: &SchemaSources,
    connect: &ConnectOptions,
    metadata: &MetadataOptions,
    address: Option<&str>,
    needed: Option<&str>,
) -> Result<ServerSchema> {
    let address = match address {
        Some(address) => address,
        None if !sources.is_empty() => return sources.read(),
        None => {
            return Err(CommandError::new("neither an address nor files given")
                .with_try("an address such as tcp://localhost:7300, or --proto FILE"));
        }
    };
    if !sources.is_empty() {
        return sources.read();
    }
    // Twirp has no streams, as needed for reflection, so use Connect on the same port.
    let address = address.strip_prefix("twirp+").unwrap_or(address);
    let metadata = metadata.metadata()?;
    let channel = connect.connect(address, Format::Proto).await?;
    connect.format_of(&channel).await?;
    sources.schema(&channel, &metadata, needed).await.map_err(|error| match error {
        ReflectionError::Unsupported(why) => {
            CommandError::new(format!("the server does not describe its services: {why}"))
                .with_try("--proto FILE or --descriptor-set FILE")
                .with_try("`add_service(frpc_services::Reflection::v1())` in the server")
        }
        ReflectionError::Plain => {
            CommandError::new("the server does not describe its services: plain fRPC has no reflection")
                .with_try("--proto FILE or --descriptor-set FILE instead of the address")
        }
        ReflectionError::Failed(failure) => failure,
        ReflectionError::Call(status) => call_failure(status, None),
    })
}

pub(super) fn no_service(schema: &ServerSchema, name: &str) -> CommandError {
    let names: Vec<_> = schema.services().iter().map(|service| service.full_name()).collect();
    let failure = CommandError::new(format!("there is no service {name}"));
    match suggest::probably(name, names.iter().copied()) {
        Some(advice) => failure.with_try(advice),
        None => failure.with_try(format!("one of {}", names.join(", "))),
    }
}
