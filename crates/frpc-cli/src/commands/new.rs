//! `frpc new`: makes a project from a template.

use std::{
    fs, io,
    path::{self, Path, PathBuf},
};

use serde_json::json;

use crate::{
    failure::{CommandError, Result},
    terminal::{OutputStyle, print_json, print_line},
};

/// Creates a project with a service, a server, a client and tests.
///
/// The folder gets the name of the project. `cargo test` passes in it, and `cargo run --bin server` serves fRPC, gRPC,
/// Connect and WebSocket on one port.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct NewCommand {
    /// The folder to create. Its last part is the name of the package.
    #[arg(value_name = "NAME")]
    folder: PathBuf,
    /// Takes the libraries from a checkout of the repository instead of the registry.
    #[arg(long, value_name = "CHECKOUT", conflicts_with = "git")]
    path: Option<PathBuf>,
    /// Takes the libraries from a git repository instead of the registry.
    #[arg(long, value_name = "URL")]
    git: Option<String>,
}

const EXAMPLES: &str = "Examples:
  frpc new hello
  frpc new services/hello --path ../frisbee
  frpc new hello --git https://example.org/frisbee.git";

/// The files of a project. `cargo package` leaves out folders with a `Cargo.toml`, so the manifest has another name here.
const TEMPLATE: [(&str, &str); 9] = [
    (".gitignore", include_str!("../../template/gitignore")),
    ("Cargo.toml", include_str!("../../template/manifest.toml")),
    ("README.md", include_str!("../../template/README.md")),
    ("build.rs", include_str!("../../template/build.rs")),
    ("proto/greeter.proto", include_str!("../../template/proto/greeter.proto")),
    ("src/bin/client.rs", include_str!("../../template/src/bin/client.rs")),
    ("src/bin/server.rs", include_str!("../../template/src/bin/server.rs")),
    ("src/lib.rs", include_str!("../../template/src/lib.rs")),
    ("tests/greeter.rs", include_str!("../../template/tests/greeter.rs")),
];

/// The source of the libraries.
enum LibrarySource {
    Registry,
    /// The absolute path of a checkout.
    Checkout(String),
    Git(String),
}

impl NewCommand {
    pub(crate) fn run(&self, is_json: bool) -> Result<()> {
        let name = package_name(&self.folder)?;
        let source = self.source()?;
        let files = TEMPLATE.map(|(path, text)| (path, filled_in(text, name, &source)));
        self.create(&files)?;
        let shown = self.folder.display();
        if is_json {
            print_json(json!({ "created": self.folder, "files": files.map(|(path, _)| path) }))?;
            return Ok(());
        }
        let bold = |text: &str| OutputStyle::of_stdout().bold(text);
        let [enter, test, serve] = [&format!("cd {shown}"), "cargo test", "cargo run --bin server"].map(bold);
        print_line(format_args!(
            "{shown}: a service with a server, a client and tests\n\n  {enter}\n  {test}\n  {serve}"
        ))?;
        Ok(())
    }

    fn source(&self) -> Result<LibrarySource> {
        match (&self.path, &self.git) {
            (Some(checkout), _) => {
                if !checkout.join("crates/frpc/Cargo.toml").is_file() {
                    let what =
                        format!("{} is no checkout of the repository: it has no crates/frpc", checkout.display());
                    return Err(CommandError::new(what).with_try("--path with the folder that contains `crates`"));
                }
                let absolute = path::absolute(checkout).map_err(|error| named(checkout, &error))?;
                let text =
                    absolute.to_str().ok_or_else(|| CommandError::new("the path of the checkout is not UTF-8"))?;
                Ok(LibrarySource::Checkout(text.to_owned()))
            }
            (None, Some(url)) => Ok(LibrarySource::Git(url.clone())),
            (None, None) => Ok(LibrarySource::Registry),
        }
    }

    /// Writes all files or none.
    fn create(&self, files: &[(&str, String)]) -> Result<()> {
        if let Some(parent) = self.folder.parent() {
            fs::create_dir_all(parent).map_err(|error| named(parent, &error))?;
        }
        fs::create_dir(&self.folder).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => CommandError::new(format!("{} exists already", self.folder.display()))
                .with_try("another name, or remove it first"),
            _ => named(&self.folder, &error),
        })?;
        let written = files.iter().try_for_each(|(path, text)| {
            let path = self.folder.join(path);
            let write = || {
                path.parent().map_or(Ok(()), fs::create_dir_all)?;
                fs::write(&path, text)
            };
            write().map_err(|error| named(&path, &error))
        });
        if written.is_err() {
            // The first error is the one to report.
            let _ = fs::remove_dir_all(&self.folder);
        }
        written
    }
}

fn named(path: &Path, error: &io::Error) -> CommandError {
    CommandError::new(format!("{}: {error}", path.display()))
}

/// Returns the name of the package in a folder. It has to work as a package of cargo, a crate and a folder.
fn package_name(folder: &Path) -> Result<&str> {
    let invalid = |name: &str, why: &str| {
        let what = format!("`{name}` cannot be the name of a package: {why}");
        Err(CommandError::new(what).with_try("letters, digits, `-` and `_`, such as `frpc new hello-world`"))
    };
    let Some(name) = folder.file_name().and_then(|name| name.to_str()) else {
        return invalid(&folder.display().to_string(), "it has no last part in UTF-8");
    };
    if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return invalid(name, "it has to begin with a letter");
    }
    if let Some(other) = name.chars().find(|char| !(char.is_ascii_alphanumeric() || matches!(char, '-' | '_'))) {
        return invalid(name, &format!("it contains {other:?}"));
    }
    if name.len() > NAME_LEN_MAX {
        return invalid(name, &format!("it is longer than {NAME_LEN_MAX} characters"));
    }
    let krate = crate_name(name);
    if RESERVED.contains(&&*krate) {
        return invalid(name, "it is a word of Rust");
    }
    if dependencies().any(|(key, _)| crate_name(key) == krate || crate_name(&folder_of(key)) == krate) {
        return invalid(name, "a library of the project has this name");
    }
    Ok(name)
}

/// The limit of crates.io.
const NAME_LEN_MAX: usize = 64;

/// Keywords, and names of crates that belong to Rust.
const RESERVED: [&str; 58] = [
    "Self",
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "const",
    "continue",
    "core",
    "crate",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc_macro",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "union",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
];

fn crate_name(package: &str) -> String {
    package.replace('-', "_")
}

/// Returns the dependencies in the manifest as written there.
fn dependencies() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = include_str!("../../template/manifest.toml").lines();
    lines.skip_while(|line| *line != "[dependencies]").filter_map(|line| line.split_once(" = "))
}

/// Returns the folder of one of our packages, which has the name of its library.
fn folder_of(package: &str) -> String {
    package.replacen("frisbee-rpc", "frpc", 1)
}

/// Returns a file of the template with the names of the project and its libraries.
fn filled_in(text: &str, name: &str, source: &LibrarySource) -> String {
    let mut text = text.replace("NAME", name).replace("CRATE", &crate_name(name));
    for (library, _) in dependencies().filter(|(_, version)| *version == VERSION) {
        let dependency = match source {
            LibrarySource::Registry => format!("\"{}\"", env!("CARGO_PKG_VERSION")),
            LibrarySource::Checkout(checkout) => {
                format!("{{ path = {} }}", toml(&format!("{checkout}/crates/{}", folder_of(library))))
            }
            LibrarySource::Git(url) => format!("{{ git = {} }}", toml(url)),
        };
        text = text.replace(&format!("\n{library} = {VERSION}"), &format!("\n{library} = {dependency}"));
    }
    text
}

/// The place of the source of a library in the manifest.
const VERSION: &str = "\"VERSION\"";

/// Returns a string of TOML. JSON has the same escapes.
fn toml(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
