//! Runs the suite on our programs. No case is excluded as a known failure.

use std::{path::Path, process::Command};

use support::foreign_program;

/// Runs the suite on a program in a mode, with a configuration in `config/`. Asserts that exactly this number of cases
/// exists and that all pass.
fn judge(mode: &str, config: &str, program: &str, cases: usize) {
    let Some(suite) = foreign_program("connectconformance") else { return };
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(config);
    let output = Command::new(suite).args(["--mode", mode, "--conf"]).arg(config).args(["--", program]).output();
    let output = output.expect("the suite runs");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.contains(&format!("\n{cases} passed, 0 failed")), "{said}");
}

#[test]
fn the_server_passes_the_connect_conformance_suite() {
    judge("server", "everything.yaml", env!("CARGO_BIN_EXE_conformance_server"), 3820);
}

#[test]
fn the_client_passes_the_connect_conformance_suite() {
    judge("client", "everything.yaml", env!("CARGO_BIN_EXE_conformance_client"), 4862);
}
