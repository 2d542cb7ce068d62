//! The list of worlds that have failed once. `cargo test` runs each of them again.
//!
//! A change of the simulation gives a seed another world, so each fix has a test of its own too.

use std::{fs, io, path::Path};

/// Adds a line to the list, unless it is there.
pub(crate) fn add(folder: &Path, line: &str, why: &str) -> io::Result<()> {
    let path = folder.join("regressions.txt");
    let mut text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => HEAD.to_owned(),
        text => text?,
    };
    if text.lines().any(|known| known.split('#').next().is_some_and(|known| known.trim() == line)) {
        return Ok(());
    }
    let why: String = why.chars().filter(|letter| !letter.is_control()).take(WHY_LEN_MAX).collect();
    text += &format!("{line} # {why}\n");
    fs::write(path, text)
}

const HEAD: &str =
    "# Worlds that have failed once: size, seed, and the first broken rule. `cargo test -p frpc-campaign` runs them.\n";
const WHY_LEN_MAX: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_added_once() {
        let folder = std::env::temp_dir().join(format!("frpc-regressions-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder for the test");
        for _ in 0..2 {
            add(&folder, "world full 7", "call 3\nexecuted twice").expect("the file");
        }
        add(&folder, "world full 77", "a leak").expect("the file");
        let text = fs::read_to_string(folder.join("regressions.txt")).expect("the list");
        assert_eq!(text, format!("{HEAD}world full 7 # call 3executed twice\nworld full 77 # a leak\n"));
        fs::remove_dir_all(folder).expect("the folder goes");
    }
}
