//! Runs of the current program under callgrind.

use std::{env, fs, io, path::Path, process::Command};

/// Returns the first of these programs that is not installed.
pub fn missing_tool(tools: &[&'static str]) -> Option<&'static str> {
    tools.iter().copied().find(|tool| {
        let found = Command::new(tool).arg("--version").output();
        found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    })
}

/// Runs this program with these arguments under callgrind, and returns what it has written to this file: the counts of
/// the instructions executed inside functions with `counted` in their names.
pub fn dump(file: &Path, counted: &str, options: &[&str], arguments: &[&str]) -> String {
    let program = env::current_exe().expect("this runs");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .arg(format!("--toggle-collect=*{counted}*"))
        .arg(format!("--callgrind-out-file={}", file.display()))
        .args(options)
        .arg(program)
        .args(arguments)
        .output()
        .expect("valgrind is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read_to_string(file).expect("valgrind wrote it")
}

/// Returns the number of instructions in a dump.
pub fn total(dump: &str) -> u64 {
    let total = dump.lines().find_map(|line| line.strip_prefix("totals: "));
    total.and_then(|total| total.trim().parse().ok()).expect("every dump has a sum")
}
