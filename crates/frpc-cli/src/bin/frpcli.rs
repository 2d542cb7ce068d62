//! The command `frpc` under a second name: the client of the reverse proxy frp is another `frpc`.

use std::process::ExitCode;

fn main() -> ExitCode {
    frpc_cli::main()
}
