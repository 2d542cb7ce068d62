//! The command `frpc`, which is also installed as `frpcli`. Not a library for other programs.

#![forbid(unsafe_code)]

mod arguments;
#[cfg(feature = "pubsub")]
mod broker;
mod commands;
mod connect;
mod declarations;
mod failure;
mod fields;
mod invocation;
mod load;
mod messages;
mod open_rpc;
mod paint;
mod paths;
mod replay;
mod schema;
mod suggest;
mod terminal;
mod tls;

use std::{env, path::Path, process::ExitCode};

use clap::{CommandFactory, Parser};
use commands::{
    bench::BenchCommand, call::CallCommand, describe::DescribeCommand, list::ListCommand, lock::LockCommand,
    new::NewCommand, openapi::OpenapiCommand, replay::ReplayCommand, serve::ServeCommand, top::TopCommand,
};
#[cfg(feature = "pubsub")]
use commands::{publish::PublishCommand, subscribe::SubscribeCommand};

use crate::{
    connect::addresses,
    failure::{CommandError, Result},
    terminal::print_bytes,
};

/// Calls, lists, describes, load-tests and replays services over fRPC, gRPC, gRPC-Web, Connect, Twirp and JSON-RPC,
/// publishes and subscribes to messages, and makes new projects.
#[derive(Parser, Debug)]
#[command(name = "frpc", version, max_term_width = 120, after_help = EXAMPLES)]
struct CommandLine {
    /// Prints JSON for programs, one value per line. Errors are JSON too, on standard error.
    #[arg(long, global = true, help_heading = "Output")]
    json: bool,
    #[command(subcommand)]
    command: CliCommand,
}

const EXAMPLES: &str = addresses!(
    "Examples:
  frpc new hello                            makes a project with a service and tests
  frpc serve --echo                         starts a test server on :7300
  frpc list :7300                           lists its services and methods
  frpc describe :7300 Say                   shows a method and its messages
  frpc call :7300 Say text=hello number=7   calls a method
  frpc bench :7300 Say text=hello           measures many calls
  frpc replay calls.frec --to :7300         sends recorded calls again
  frpc sub :7300 'orders.>'                 prints messages with these subjects
  frpc pub :7300 orders.eu 'one for Ada'    publishes a message
  frpc top :7300                            shows a process live

`frpc call --help` explains how to write messages."
);

#[derive(clap::Subcommand, Debug)]
enum CliCommand {
    New(NewCommand),
    Call(Box<CallCommand>),
    List(Box<ListCommand>),
    Describe(Box<DescribeCommand>),
    Bench(Box<BenchCommand>),
    Replay(Box<ReplayCommand>),
    #[cfg(feature = "pubsub")]
    #[command(alias = "publish")]
    Pub(Box<PublishCommand>),
    #[cfg(feature = "pubsub")]
    #[command(alias = "subscribe")]
    Sub(Box<SubscribeCommand>),
    Top(Box<TopCommand>),
    Serve(ServeCommand),
    Lock(LockCommand),
    Openapi(OpenapiCommand),
    /// Prints a completion script for a shell.
    #[command(after_help = "Examples:\n  frpc completions bash > /etc/bash_completion.d/frpc")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let CommandLine { json, command } = CommandLine::parse();
    frpc_http::register();
    frpc_websocket::register();
    #[cfg(feature = "jsonrpc")]
    frpc_jsonrpc::register();
    match run(command, json) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report(json);
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(command: CliCommand, json: bool) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new().map_err(CommandError::new)?;
    let outcome = match command {
        CliCommand::New(new) => new.run(json),
        CliCommand::Call(call) => runtime.block_on(call.run(json)),
        CliCommand::List(list) => runtime.block_on(list.run(json)),
        CliCommand::Describe(describe) => runtime.block_on(describe.run(json)),
        CliCommand::Bench(bench) => runtime.block_on(bench.run(json)),
        CliCommand::Replay(replay) => runtime.block_on(replay.run(json)),
        #[cfg(feature = "pubsub")]
        CliCommand::Pub(publish) => runtime.block_on(publish.run(json)),
        #[cfg(feature = "pubsub")]
        CliCommand::Sub(subscribe) => runtime.block_on(subscribe.run(json)),
        CliCommand::Top(top) => runtime.block_on(top.run(json)),
        CliCommand::Serve(serve) => runtime.block_on(serve.run(json)),
        CliCommand::Lock(lock) => lock.run(json),
        CliCommand::Openapi(openapi) => openapi.run(),
        CliCommand::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut CommandLine::command(), program_name(), &mut script);
            print_bytes(&script).map_err(CommandError::from)
        }
    };
    // Do not wait for connections or for the thread reading standard input, which may block.
    runtime.shutdown_background();
    outcome
}

/// Returns the name under which this program was started: `frpc` or `frpcli`.
fn program_name() -> String {
    let path = env::args_os().next().unwrap_or_default();
    Path::new(&path).file_stem().map_or("frpc".to_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_definition_is_valid() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn examples_in_the_help_are_command_lines() {
        let mut all = vec![CommandLine::command()];
        all.extend(CommandLine::command().get_subcommands().cloned());
        for command in all {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples: Vec<_> = help.lines().filter(|line| line.starts_with("  frpc ")).collect();
            assert!(!examples.is_empty(), "{} has none", command.get_name());
            for example in examples {
                let parsed = CommandLine::try_parse_from(words(example));
                assert!(parsed.is_ok(), "{example}: {parsed:?}");
            }
        }
    }

    #[test]
    fn help_fits_into_narrow_terminals() {
        for command in CommandLine::command().get_subcommands() {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(about.len() <= 80 && !about.is_empty(), "{}: {about}", command.get_name());
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines() {
                assert!(line.chars().count() <= 100, "{}: {line}", command.get_name());
            }
        }
    }

    /// Returns the words of an example, up to a shell redirection or the explanation.
    fn words(example: &str) -> Vec<String> {
        let (mut words, mut quoted) = (vec![String::new()], false);
        for letter in example.split("  ").find(|part| !part.is_empty()).unwrap_or_default().chars() {
            match letter {
                '\'' => quoted = !quoted,
                ' ' if !quoted => words.push(String::new()),
                letter => words.last_mut().unwrap().push(letter),
            }
        }
        let end = words.iter().position(|word| matches!(&**word, "<" | ">")).unwrap_or(words.len());
        words.truncate(end);
        words
    }
}
