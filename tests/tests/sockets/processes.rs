//! Further processes of this program, for tests across processes.

use std::{env, process::Stdio};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStdout, Command},
};

/// Runs one test of this program in another process with these variables. The process is killed on drop.
pub(crate) fn run_test(name: &str, variables: &[(&str, &str)]) -> (Child, BufReader<ChildStdout>) {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "--nocapture", name]).kill_on_drop(true).envs(variables.iter().copied());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    (child, said)
}

/// Returns the rest of the first line containing this text.
pub(crate) async fn line_after(said: &mut BufReader<ChildStdout>, begin: &str) -> Option<String> {
    let mut lines = said.lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        if let Some((_, rest)) = line.split_once(begin) {
            return Some(rest.to_owned());
        }
    }
    None
}
