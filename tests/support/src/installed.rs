//! Programs needed by tests and installed by scripts. Tests themselves install, build and download nothing.

use std::{
    env, fs,
    io::{self, Write as _},
    path::Path,
    time::SystemTime,
};

/// Returns `found`. If it is `false`, prints the command to install the program, and the caller skips its test.
///
/// # Panics
///
/// Panics if the program is missing and `CI` is set, because CI must not skip tests.
#[track_caller]
pub fn is_installed(found: bool, program: &str, command: &str) -> bool {
    if !found {
        let why = format!("missing or out of date: {program}; run `{command}`");
        assert!(env::var_os("CI").is_none(), "{why}; CI must not skip its tests");
        // `eprintln!` output is shown only for failed tests.
        let _ = writeln!(io::stderr(), "skipped, {why}");
    }
    found
}

/// Returns `true` if a stamp is newer than all sources, given as files and folders.
pub(crate) fn is_current(stamp: &Path, sources: &[&Path]) -> bool {
    let Some(built) = changed(stamp) else { return false };
    sources.iter().all(|source| is_older(source, built))
}

fn is_older(source: &Path, built: SystemTime) -> bool {
    match fs::read_dir(source) {
        // Builds add and remove entries, so ignore the folder's own modification time.
        Ok(mut entries) => entries.all(|entry| entry.is_ok_and(|entry| is_older(&entry.path(), built))),
        Err(_) => changed(source).is_some_and(|changed| changed <= built),
    }
}

fn changed(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).ok()?.modified().ok()
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        path::Path,
        time::{Duration, SystemTime},
    };

    use super::is_current;
    use crate::Directory;

    #[test]
    fn a_program_is_current_until_a_source_changes() {
        let directory = Directory::new("installed");
        let [stamp, folder] = ["stamp", "sources"].map(|name| directory.path().join(name));
        let inner = folder.join("inner");
        fs::create_dir_all(&inner).unwrap();
        let source = inner.join("main.go");
        let write = |file: &Path, seconds| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            File::create(file).unwrap().set_modified(time).unwrap();
        };
        write(&source, 1);
        assert!(!is_current(&stamp, &[&folder]), "nothing was built");
        write(&stamp, 2);
        assert!(is_current(&stamp, &[&folder]));
        assert!(is_current(&stamp, &[&folder, &source]));
        assert!(!is_current(&stamp, &[&folder, &directory.path().join("gone")]), "a source is missing");
        write(&source, 3);
        assert!(!is_current(&stamp, &[&folder]));
    }
}
