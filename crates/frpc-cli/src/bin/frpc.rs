//! The command `frpc`.

use std::process::ExitCode;

fn main() -> ExitCode {
    frpc_cli::main()
}
