//! The command `frpc`.

#![forbid(unsafe_code)]

mod arguments;
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
mod polyglot;
mod schema;
mod suggest;
mod terminal;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use commands::{
    bench::BenchCommand, call::CallCommand, describe::DescribeCommand, list::ListCommand, lock::LockCommand,
    serve::ServeCommand,
};

use crate::failure::{Failure, Result};

/// Calls, lists, describes and loads services on every wire that frpc speaks.
#[derive(Parser, Debug)]
#[command(name = "frpc", version, max_term_width = 120)]
struct Frpc {
    /// Prints JSON, one value on each line, for programs. Failures too, on standard error.
    #[arg(long, global = true, help_heading = "Output")]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Call(Box<CallCommand>),
    List(Box<ListCommand>),
    Describe(Box<DescribeCommand>),
    Bench(Box<BenchCommand>),
    Serve(ServeCommand),
    Lock(LockCommand),
    /// Prints the completions for a shell: `frpc completions bash > /etc/bash_completion.d/frpc`.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    let Frpc { json, command } = Frpc::parse();
    frpc_http::register();
    frpc_websocket::register();
    frpc_jsonrpc::register();
    match run(command, json) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report(json);
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(command: Command, json: bool) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new().map_err(Failure::new)?;
    let outcome = match command {
        Command::Call(call) => runtime.block_on(call.run(json)),
        Command::List(list) => runtime.block_on(list.run(json)),
        Command::Describe(describe) => runtime.block_on(describe.run(json)),
        Command::Bench(bench) => runtime.block_on(bench.run(json)),
        Command::Serve(serve) => runtime.block_on(serve.run(json)),
        Command::Lock(lock) => lock.run(json),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Frpc::command(), "frpc", &mut std::io::stdout());
            Ok(())
        }
    };
    // Connections and the reader of standard input have nothing left to say.
    runtime.shutdown_background();
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_makes_sense() {
        Frpc::command().debug_assert();
    }
}
