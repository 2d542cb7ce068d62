//! Worlds of the simulation, and the proofs that its checker finds defects and repeats seeds exactly.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn campaign(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_frpc-campaign")).args(arguments).output().unwrap()
}

/// Returns the report of one world.
fn report(arguments: &[&str]) -> serde_json::Value {
    let output = campaign(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn violations(report: &serde_json::Value) -> Vec<&str> {
    report["violations"].as_array().unwrap().iter().map(|violation| violation.as_str().unwrap()).collect()
}

#[test]
fn worlds_break_no_rule() {
    let output = campaign(&["simulate", "0..16", "short"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn weeks_break_no_rule() {
    // The cheapest of the first worlds: 22 days.
    let output = campaign(&["simulate", "9..10", "long"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn failures_of_the_campaign_stay_fixed() {
    let list = fs::read_to_string(folder().join("regressions.txt")).unwrap();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let world = line.split('#').next().unwrap();
        let ["world", size, seed] = *world.split_whitespace().collect::<Vec<_>>() else { panic!("{line}") };
        let report = report(&["seed", seed, size]);
        assert!(violations(&report).is_empty(), "{line}: {report:#}");
    }
}

#[test]
fn a_seed_repeats_exactly() {
    let mut counts = [0, 0];
    // The last one has TLS, whose keys differ in each run.
    for seed in ["3", "4", "16", "10"] {
        let [first, second] = [(); 2].map(|()| report(&["seed", seed, "short"]));
        assert_eq!((&first["digest"], &first["counts"]), (&second["digest"], &second["counts"]), "seed {seed}");
        counts[0] += first["counts"]["worlds with TLS"].as_u64().unwrap();
        counts[1] += first["counts"]["batches"].as_u64().unwrap_or_default();
    }
    assert!(counts.iter().all(|&count| count > 0), "worlds with TLS and batches: {counts:?}");
    assert_ne!(report(&["seed", "3", "short"])["digest"], report(&["seed", "4", "short"])["digest"]);
}

/// Each defect, and words of the rule that it breaks.
const DEFECTS: [(&str, &[&str]); 10] = [
    ("duplicates-writes", &["executed 2 times", "after Some("]),
    ("swallows-writes", &["request", "answer", "ends well", "waits longer", "uncertain"]),
    ("claims-not-sent", &["reported as safe to repeat"]),
    ("hangs", &["does not end within"]),
    ("repeats-calls", &["executed 2 times"]),
    ("crosses-answers", &["answer 0 to call"]),
    ("leaks-tasks", &["tasks are left"]),
    ("leaks-memory", &["has left"]),
    ("loses-messages", &["delivered and"]),
    ("repeats-messages", &["after Some("]),
];

#[test]
fn the_checker_finds_each_deliberate_defect() {
    for (defect, rules) in DEFECTS {
        // Every sixteenth seed has a check of memory.
        let seeds = [0, 1, 2, 3, 16, 32].map(|seed: u64| seed.to_string());
        let finds = |seed: &String| {
            let report = report(&["seed", seed, "short", defect]);
            violations(&report).iter().any(|violation| rules.iter().any(|rule| violation.contains(rule)))
        };
        assert!(seeds.iter().any(finds), "{defect} stays hidden in the worlds {seeds:?}");
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}
