//! Checks that no test runs a program to install, build or download something.

use crate::{code, offences};

#[test]
fn tests_install_nothing() {
    // The campaign starts cargo for its user.
    let is_checked = |path: &str| path.ends_with(".rs") && !path.starts_with("campaign/src/");
    let places = offences(is_checked, commands);
    assert!(places.is_empty(), "scripts install things, not Rust code:\n{}", places.join("\n"));
}

#[test]
fn every_installing_command_is_detected() {
    for program in INSTALLERS {
        let planted = format!("fn planted() {{\n    {NEW}\n        {program},\n    )\n}}");
        assert_eq!(commands(&planted), [(2, (*program).to_owned())], "{planted}");
    }
    let script = format!("#[cfg(test)]\nmod tests {{\n    process::{NEW}Path::new(NATS).join(\"build.sh\"))\n}}");
    assert_eq!(commands(&script), [(3, ".sh\"".to_owned())]);
}

#[test]
fn other_programs_are_not_reported() {
    let allowed = format!("// {NEW}\"go\")\n{NEW}\"node\").arg(\"go\"); {NEW}env!(\"CARGO_BIN_EXE_frpc\"))");
    assert_eq!(commands(&allowed), []);
}

/// Returns the commands that install something, with their first line. Arguments may span several lines.
fn commands(text: &str) -> Vec<(usize, String)> {
    // `code` stops at unit tests, but this check includes them.
    let lines = code(&text.replace("#[cfg(test)]", ""));
    let mut found = Vec::new();
    for (index, (number, line)) in lines.iter().enumerate() {
        for (at, _) in line.match_indices(NEW) {
            let rest: Vec<_> = lines[index..].iter().take(LINES_MAX).map(|(_, line)| line.as_str()).collect();
            let argument = argument(&rest.join("\n")[at + NEW.len()..]).to_owned();
            found.extend(
                INSTALLERS.iter().find(|program| argument.contains(**program)).map(|it| (*number, (*it).to_owned())),
            );
        }
    }
    found
}

/// Returns the text before the closing parenthesis.
fn argument(text: &str) -> &str {
    let mut depth = 1;
    let end = text.find(|letter| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        depth == 0
    });
    &text[..end.unwrap_or(text.len())]
}

/// Program names as they appear in a command. Assembled from parts, so this file does not match.
const INSTALLERS: &[&str] = &[
    "\"apt\"",
    "\"apt-get\"",
    "\"bash\"",
    "\"cargo\"",
    "\"curl\"",
    "\"docker\"",
    "\"go\"",
    "\"make\"",
    "\"npm\"",
    "\"npx\"",
    "\"pip\"",
    "\"pip3\"",
    "\"rustup\"",
    "\"sh\"",
    "\"wget\"",
    "\"CARGO\"",
    ".sh\"",
];
const NEW: &str = concat!("Command::", "new(");
/// Maximum number of lines from the start of a command to its program.
const LINES_MAX: usize = 8;
