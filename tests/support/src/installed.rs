//! Programs that tests need and scripts install. Tests themselves install, build and download nothing.

use std::{
    env, fs,
    io::{self, Write as _},
    path::Path,
    time::SystemTime,
};

/// Returns `found`. Without the program, says which command installs it, and the test skips itself.
///
/// # Panics
///
/// Panics without the program where `CI` is set, which must not skip tests.
#[track_caller]
pub fn is_installed(found: bool, program: &str, command: &str) -> bool {
    if !found {
        let why = format!("missing or out of date: {program}; run `{command}`");
        assert!(env::var_os("CI").is_none(), "{why}; CI must not skip its tests");
        // Not `eprintln!`, which shows only in tests that fail.
        let _ = writeln!(io::stderr(), "skipped, {why}");
    }
    found
}

/// Returns `true` if a script has left this stamp after the last change of the sources, which are files and folders.
pub(crate) fn is_current(stamp: &Path, sources: &[&Path]) -> bool {
    let Some(built) = changed(stamp) else { return false };
    sources.iter().all(|source| is_older(source, built))
}

fn is_older(source: &Path, built: SystemTime) -> bool {
    match fs::read_dir(source) {
        // Entries come and go with the build, so the time of the folder itself says nothing.
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
    fn a_program_is_current_until_one_of_its_sources_changes() {
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
