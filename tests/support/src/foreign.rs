//! Third-party programs to check our protocols, as installed by `tests/foreign/build.sh`.

use std::{
    env, fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process,
};

use crate::installed::{is_current, is_installed};

/// Returns the path of a Go program, or `None` if it is not installed. The test is skipped then, see [`is_installed`].
pub fn foreign_program(name: &str) -> Option<PathBuf> {
    let installed =
        env::var_os("FOREIGN_BIN").map(|folder| Path::new(&folder).join(name)).filter(|program| program.is_file());
    // The programs in this repository are only there.
    let program = installed.unwrap_or_else(|| Path::new(FOREIGN).join("bin").join(name));
    is_there(program.is_file(), name).then_some(program)
}

/// Returns the folder of npm packages for our checks, or `None` as [`foreign_program`] does.
pub fn foreign_packages() -> Option<PathBuf> {
    let folder = PathBuf::from(FOREIGN);
    let is_current = has_packages(&folder.join("node_modules/.installed"), "package-lock.json");
    (has_node() && is_there(is_current, "npm's packages")).then_some(folder)
}

/// Returns the folder of our TypeScript client, compiled with its tests, or `None` as [`foreign_program`] does.
pub fn typescript_client() -> Option<PathBuf> {
    let folder = PathBuf::from(FOREIGN).join("../../clients/typescript");
    let sources = ["src", "test", "package-lock.json"].map(|name| folder.join(name));
    let is_built = is_current(&folder.join("build/.built"), &sources.each_ref().map(PathBuf::as_path));
    (has_node() && is_there(is_built, "the client in TypeScript")).then_some(folder)
}

/// Returns the path of `deno` or `bun`, as installed by npm, or `None` as [`foreign_program`] does.
pub fn foreign_runtime(name: &str) -> Option<PathBuf> {
    let program = Path::new(FOREIGN).join("node_modules/.bin").join(name);
    // If npm did not run the packages' scripts, the programs are placeholders that fail.
    let version = process::Command::new(&program).arg("--version").output();
    is_there(version.is_ok_and(|version| version.status.success()), name).then_some(program)
}

/// Returns the path of Chromium, from Debian's package or from the variable `CHROMIUM`, or `None` as
/// [`foreign_program`] does.
pub fn foreign_browser() -> Option<PathBuf> {
    let program =
        env::var_os("CHROMIUM").map_or_else(|| PathBuf::from("/usr/bin/chromium-headless-shell"), PathBuf::from);
    is_there(program.is_file(), "chromium-headless-shell").then_some(program)
}

/// Returns `true` if a WebAssembly module of ours is built. Unlike [`is_installed`], it may be missing in CI: the script
/// leaves it out where Rust has no such target.
pub fn has_wasm(module: &Path) -> bool {
    let found = module.is_file();
    if !found {
        // `eprintln!` output is shown only for failed tests.
        let _ = writeln!(io::stderr(), "skipped, missing: {}; run `tests/foreign/build.sh wasm`", module.display());
    }
    found && has_node()
}

fn has_node() -> bool {
    let version = process::Command::new("node").arg("--version").output();
    is_there(version.is_ok_and(|version| version.status.success()), "node")
}

/// Returns the folder of Python with the packages for our checks, or `None` as [`foreign_program`] does.
pub fn foreign_python() -> Option<PathBuf> {
    let folder = Path::new(FOREIGN).join("venv");
    let is_current = has_packages(&folder.join(".installed"), "python/requirements.txt");
    is_there(is_current, "PyPI's packages").then(|| folder.join("bin"))
}

/// Returns `true` if the packages of a list are installed. The stamp is a copy of the list.
fn has_packages(stamp: &Path, list: &str) -> bool {
    let installed = fs::read(stamp);
    installed.is_ok_and(|installed| fs::read(Path::new(FOREIGN).join(list)).is_ok_and(|list| installed == list))
}

fn is_there(found: bool, name: &str) -> bool {
    is_installed(found, name, "tests/foreign/build.sh")
}

const FOREIGN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../foreign");
