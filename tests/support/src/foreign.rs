//! Programs of others that judge our wires, as `tests/foreign/build.sh` installs them.

use std::{
    env,
    path::{Path, PathBuf},
    process,
};

use crate::installed::{is_current, is_installed};

/// Returns where a program of Go is. `None` if it is not installed: the test is skipped, see [`is_installed`].
pub fn foreign_program(name: &str) -> Option<PathBuf> {
    let installed =
        env::var_os("FOREIGN_BIN").map(|folder| Path::new(&folder).join(name)).filter(|program| program.is_file());
    // Those of ours are only there.
    let program = installed.unwrap_or_else(|| Path::new(FOREIGN).join("bin").join(name));
    is_there(program.is_file(), name).then_some(program)
}

/// Returns the folder where programs of node find the packages that judge us, or `None` as [`foreign_program`] does.
pub fn foreign_packages() -> Option<PathBuf> {
    let folder = PathBuf::from(FOREIGN);
    let has_packages = folder.join("node_modules/.installed").is_file();
    (has_node() && is_there(has_packages, "npm's packages")).then_some(folder)
}

/// Returns the folder of our client in TypeScript, compiled with its tests, or `None` as [`foreign_program`] does.
pub fn typescript_client() -> Option<PathBuf> {
    let folder = PathBuf::from(FOREIGN).join("../../clients/typescript");
    let sources = ["src", "test", "package-lock.json"].map(|name| folder.join(name));
    let is_built = is_current(&folder.join("build/.built"), &sources.each_ref().map(PathBuf::as_path));
    (has_node() && is_there(is_built, "the client in TypeScript")).then_some(folder)
}

/// Returns a runtime of JavaScript that npm installs, `deno` or `bun`, or `None` as [`foreign_program`] does.
pub fn foreign_runtime(name: &str) -> Option<PathBuf> {
    let program = Path::new(FOREIGN).join("node_modules/.bin").join(name);
    // Without the scripts of npm's packages there are only files that say so.
    let version = process::Command::new(&program).arg("--version").output();
    is_there(version.is_ok_and(|version| version.status.success()), name).then_some(program)
}

/// Returns where Chromium is, a package of Debian or what `CHROMIUM` names, or `None` as [`foreign_program`] does.
pub fn foreign_browser() -> Option<PathBuf> {
    let program =
        env::var_os("CHROMIUM").map_or_else(|| PathBuf::from("/usr/bin/chromium-headless-shell"), PathBuf::from);
    is_there(program.is_file(), "chromium-headless-shell").then_some(program)
}

fn has_node() -> bool {
    let version = process::Command::new("node").arg("--version").output();
    is_there(version.is_ok_and(|version| version.status.success()), "node")
}

/// Returns the folder with Python and the packages that judge us, or `None` as [`foreign_program`] does.
pub fn foreign_python() -> Option<PathBuf> {
    let folder = Path::new(FOREIGN).join("venv");
    is_there(folder.join(".installed").is_file(), "PyPI's packages").then(|| folder.join("bin"))
}

fn is_there(found: bool, name: &str) -> bool {
    is_installed(found, name, "tests/foreign/build.sh")
}

const FOREIGN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../foreign");
