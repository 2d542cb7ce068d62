//! Runs the suites on our programs. No case of connectconformance is excluded as a known failure.

use std::{
    env, fs,
    path::Path,
    process::{self, Command},
};

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

/// The suite fails if the list of failures is wrong in either direction.
#[test]
fn messages_pass_the_protobuf_conformance_suite() {
    let Some(suite) = foreign_program("conformance_test_runner") else { return };
    let failures = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/protobuf_failures.txt");
    let listed = fs::read_to_string(&failures).unwrap();
    let listed = listed.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
    let out_dir = env::temp_dir().join(format!("protobuf-conformance-{}", process::id()));
    fs::create_dir_all(&out_dir).unwrap();
    let mut suite = Command::new(suite);
    suite.args(["--enforce_recommended", "--maximum_edition", "2024", "--failure_list"]).arg(failures);
    let output = suite.arg("--output_dir").arg(&out_dir).arg(env!("CARGO_BIN_EXE_conformance_protobuf")).output();
    let output = output.expect("the suite runs");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    fs::remove_dir_all(&out_dir).unwrap();
    let figures = format!("5550 successes, 0 skipped, {listed} expected failures, 0 unexpected failures.");
    assert!(output.status.success() && said.contains(&figures), "{said}");
}
