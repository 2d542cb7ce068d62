//! `frpc call`: makes a call.

use std::{
    io::{self, IsTerminal},
    sync::{Arc, OnceLock},
    time::Instant,
};

use bytes::Bytes;
use frpc::{Answer, Body, Metadata, Status, Streaming};
use serde_json::Value;

use crate::{
    arguments::{CallArguments, metadata_text},
    connect::addresses,
    failure::{CommandError, Result},
    invocation::{CallOptions, PreparedCall},
    messages::{DynamicCodec, JsonOptions},
    paint,
    terminal::{OutputStyle, print_bytes, print_error, print_line, print_note, printable_json, printable_name},
};

/// Calls a method and prints the answer as JSON.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CallCommand {
    #[command(flatten)]
    options: CallOptions,
    /// Prints fields with default values too.
    #[arg(long, short = 'e', visible_alias = "emit-defaults", help_heading = "Output")]
    defaults: bool,
    /// Prints the field names of the proto file.
    #[arg(long, help_heading = "Output")]
    proto_names: bool,
    /// Prints the answer in protobuf format, or in JSON if the server sent JSON.
    #[arg(long, help_heading = "Output")]
    raw: bool,
    /// Prints metadata and timings to standard error.
    #[arg(long, short = 'v', help_heading = "Output")]
    verbose: bool,
}

const EXAMPLES: &str = addresses!(
    "Messages:
  name=text          converted to the type of the field
  name:=JSON         'tags:=[\"a\", \"b\"]'
  name=@FILE         text from a file; name:=@FILE for JSON, name@FILE for bytes
  a.b=1, list[]=1    a nested field, a new list element
  7 text             without names: the fields in order
  name:value         metadata, as with -H

Examples:
  frpc call :7300 Say text=hello number=7
  frpc call :7300 shop.Orders/Create customer=7 'items[0].sku=A1' 'items[0].count=2'
  frpc call grpc://localhost:7300 Create -f order.json -H 'authorization: Bearer …' -t 2s
  frpc call http://localhost:7300 Chat -d @- < messages.json
  frpc call :7300 Greet text=hello --proto greeter.proto   (without reflection, as in Go)

Exit codes:
  0 for success, 1 for local errors, 2 for an invalid command line; otherwise 64
  plus the status code of the call: 69 is not_found, 78 is unavailable"
);

impl CallCommand {
    pub(crate) async fn run(&self, is_json: bool) -> Result<()> {
        let (address, method, arguments) = self.options.target()?;
        if self.raw && io::stdout().is_terminal() {
            return Err(CommandError::new("raw output could send control sequences to the terminal")
                .with_try("`… --raw > FILE`, or a program that reads them"));
        }
        let invocation = PreparedCall::prepare(&self.options, address, method, &arguments, is_json).await?;
        let has_messages = self.options.gives_messages() || !arguments.is_empty();
        if invocation.method.kind.has_request_stream() && !has_messages && !is_json {
            print_note(
                "the method takes a stream of messages, but none was given: use -d JSON, or -d @- for standard input",
            );
        }
        let failed_input = Arc::new(OnceLock::new());
        let body = self.body(&invocation, &arguments, &failed_input)?;
        if self.verbose {
            let PreparedCall { method, request, .. } = &invocation;
            let kind = format!("{:?}", method.kind);
            let (side, method) = (OutputStyle::of_stderr().dim(">"), printable_name(&method.to_string()));
            print_error(format_args!("{side} {method} · {} · {}", kind.to_lowercase(), request.format));
            self.tell('>', "", invocation.metadata());
        }
        let start = Instant::now();
        let outcome = match invocation.channel.call(invocation.call(body)).await {
            Ok(answer) => self.print(answer, &invocation.response, is_json).await,
            Err(status) => Err(OutputEnd::Status(status)),
        };
        if self.verbose {
            print_error(format_args!("{} {:?}", OutputStyle::of_stderr().dim("<"), start.elapsed()));
        }
        match outcome {
            Ok(()) => Ok(()),
            Err(OutputEnd::Failed(failure)) => Err(failure),
            Err(OutputEnd::Status(status)) => {
                // The call failed because of invalid input, the more useful error.
                if let Some(what) = failed_input.get() {
                    return Err(CommandError::new(what));
                }
                if self.verbose {
                    self.tell('<', "trailer ", status.metadata());
                }
                Err(invocation.failure(status))
            }
        }
    }

    fn body(
        &self,
        invocation: &PreparedCall,
        arguments: &CallArguments,
        failed: &Arc<OnceLock<String>>,
    ) -> Result<Body> {
        let options = &self.options;
        let from_input = matches!(options.data.as_deref(), Some("@" | "@-")) || options.file.as_deref() == Some("-");
        if invocation.method.kind.has_request_stream() && from_input && arguments.is_empty() {
            return Ok(Body::Many(input(invocation.request.clone(), failed.clone())));
        }
        let mut messages = invocation.messages(options, arguments)?;
        match (invocation.method.kind.has_request_stream(), messages.pop()) {
            (false, Some(message)) => Ok(Body::from(message)),
            (_, last) => {
                messages.extend(last);
                Ok(Body::Many(Streaming::from_iter(messages)))
            }
        }
    }

    /// Prints the answer, or all messages of a stream.
    async fn print(&self, answer: Answer, codec: &DynamicCodec, is_json: bool) -> std::result::Result<(), OutputEnd> {
        if self.verbose {
            self.tell('<', "", answer.metadata());
        }
        let trailers = answer.trailers().clone();
        match answer.into_body() {
            Body::One(message) => {
                self.print_message(&message.into_bytes(), codec, is_json)?;
                if self.verbose {
                    self.tell('<', "trailer ", &trailers);
                }
            }
            Body::Many(mut messages) => {
                let mut is_told = false;
                while let Some(message) = messages.message().await.map_err(OutputEnd::Status)? {
                    if let Some(metadata) = messages.metadata().filter(|_| self.verbose && !is_told) {
                        self.tell('<', "", metadata);
                        is_told = true;
                    }
                    self.print_message(&message, codec, is_json)?;
                }
                if let Some(trailers) = messages.trailers().await.ok().flatten().filter(|_| self.verbose) {
                    self.tell('<', "trailer ", &trailers);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn print_message(
        &self,
        message: &Bytes,
        codec: &DynamicCodec,
        is_json: bool,
    ) -> std::result::Result<(), OutputEnd> {
        let written = if self.raw {
            print_bytes(&codec.decode_binary(message).map_err(OutputEnd::Failed)?)
        } else {
            let writing =
                JsonOptions { is_compact: is_json, with_defaults: self.defaults, proto_names: self.proto_names };
            let text = codec.decode(message, writing).map_err(OutputEnd::Failed)?;
            let text = printable_json(&text);
            let text = if io::stdout().is_terminal() { paint::json(&text, OutputStyle::of_stdout()) } else { text };
            print_line(text)
        };
        written.map_err(|error| OutputEnd::Failed(error.into()))
    }

    fn tell(&self, side: char, what: &str, metadata: &Metadata) {
        let style = OutputStyle::of_stderr();
        let side = style.dim(&side.to_string());
        for (name, value) in metadata.iter() {
            let value = metadata_text(value);
            print_error(format_args!("{side} {what}{}: {}", style.cyan(&printable_name(name)), printable_name(&value)));
        }
    }
}

/// The reason for the end of the output.
enum OutputEnd {
    Status(Status),
    Failed(CommandError),
}

/// Returns the messages on standard input as a stream, each as soon as it is complete.
fn input(codec: DynamicCodec, failed: Arc<OnceLock<String>>) -> Streaming<Bytes> {
    let (sender, messages) = Streaming::channel(16);
    let runtime = tokio::runtime::Handle::current();
    // Reading standard input cannot be cancelled, so it runs on its own detached thread.
    std::thread::spawn(move || {
        let values = serde_json::Deserializer::from_reader(io::stdin().lock()).into_iter::<Value>();
        for value in values {
            let value = value.map_err(|error| CommandError::new(format!("standard input: not valid JSON: {error}")));
            match value.and_then(|value| codec.encode(&value)) {
                Ok(message) => {
                    if runtime.block_on(sender.send(message)).is_err() {
                        return;
                    }
                }
                Err(failure) => {
                    let CommandError::Own { what, .. } = failure else { return };
                    // Only the first failure is reported.
                    let _ = failed.set(what.clone());
                    runtime.block_on(sender.fail(Status::invalid_argument(what)));
                    return;
                }
            }
        }
    });
    messages
}
