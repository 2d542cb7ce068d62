//! The text format of the lock file: one line per method, field and value.

use std::{fmt, str::FromStr};

use frpc_schema::MethodKind;
use prost_types::field_descriptor_proto::Type as Scalar;

use super::layout::{FieldLabel, LockedField, LockedLayout, LockedMethod, LockedType, LockedValue};

/// An invalid line in a lock file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MalformedLine {
    /// The line number, starting at 0.
    pub(super) line: usize,
    pub(super) reason: &'static str,
}

impl fmt::Display for LockedLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}{VERSION}")?;
        for (file, methods) in &self.files {
            writeln!(f, "\nfile {file}")?;
            for (operation, LockedMethod { kind, path, input, output }) in methods {
                writeln!(f, "  {operation} {} {path} {input} -> {output}", name_of(*kind))?;
            }
        }
        for (message, fields) in &self.messages {
            writeln!(f, "\nmessage {message}")?;
            for LockedField { number, name, label, of } in fields {
                writeln!(f, "  {number} {label}{of} {name}")?;
            }
        }
        for (declared, values) in &self.enums {
            writeln!(f, "\nenum {declared}")?;
            values.iter().try_for_each(|LockedValue { number, name }| writeln!(f, "  {number} {name}"))?;
        }
        Ok(())
    }
}

impl fmt::Display for FieldLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => Ok(()),
            Self::Optional => f.write_str("optional "),
            Self::Repeated => f.write_str("repeated "),
            Self::Member(oneof) => write!(f, "oneof {oneof} "),
            Self::Map(key) => write!(f, "map {} ", scalar_name(*key)),
        }
    }
}

impl fmt::Display for LockedType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scalar(of) => f.write_str(&scalar_name(*of)),
            Self::Enum(of) => write!(f, "enum {of}"),
            Self::Message(of) => write!(f, "message {of}"),
            Self::Group(of) => write!(f, "group {of}"),
        }
    }
}

impl FromStr for LockedLayout {
    type Err = MalformedLine;

    fn from_str(text: &str) -> Result<Self, MalformedLine> {
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
        match lines.next() {
            Some((_, line)) if line.trim_end() == VERSION => {}
            Some((line, version)) if version.starts_with("version ") => {
                return Err(MalformedLine {
                    line,
                    reason: "unknown version of the lock file; a newer frisbee-rpc-build may have written it",
                });
            }
            found => {
                let line = found.map_or(0, |(line, _)| line);
                return Err(MalformedLine { line, reason: "a lock file starts with its version" });
            }
        }
        let mut layout = Self::default();
        let mut block = LockBlock::None;
        for (line, text) in lines {
            let malformed = |reason| MalformedLine { line, reason };
            if text.starts_with(' ') {
                layout.add(&block, text).ok_or(malformed("this is not a line of a lock file"))?;
                continue;
            }
            let Some((kind, name)) = text.trim_end().split_once(' ') else {
                return Err(malformed("this is not a line of a lock file"));
            };
            let name = name.to_owned();
            let is_new = match kind {
                "file" => layout.files.insert(name.clone(), Default::default()).is_none(),
                "message" => layout.messages.insert(name.clone(), Vec::new()).is_none(),
                "enum" => layout.enums.insert(name.clone(), Vec::new()).is_none(),
                _ => return Err(malformed("this is not a line of a lock file")),
            };
            if !is_new {
                return Err(malformed("this entry is a duplicate"));
            }
            block = match kind {
                "file" => LockBlock::File(name),
                "message" => LockBlock::Message(name),
                _ => LockBlock::Enum(name),
            };
        }
        Ok(layout)
    }
}

/// The block of a line.
enum LockBlock {
    None,
    File(String),
    Message(String),
    Enum(String),
}

impl LockedLayout {
    /// Adds a line to a block. Returns `None` if the line is malformed.
    fn add(&mut self, block: &LockBlock, line: &str) -> Option<()> {
        let mut words = line.split_whitespace();
        let number = words.next()?;
        match block {
            LockBlock::None => return None,
            LockBlock::File(name) => {
                let (kind, path, input) = (words.next().and_then(kind_of)?, words.next()?, words.next()?);
                let output = words.next().filter(|arrow| *arrow == "->").and_then(|_| words.next())?;
                let [path, input, output] = [path, input, output].map(str::to_owned);
                let method = LockedMethod { kind, path, input, output };
                let before = self.files.get_mut(name)?.insert(number.parse().ok()?, method);
                before.is_none().then_some(())?;
            }
            LockBlock::Message(name) => {
                let field = field(number.parse().ok()?, &mut words)?;
                self.messages.get_mut(name)?.push(field);
            }
            LockBlock::Enum(name) => {
                let value = LockedValue { number: number.parse().ok()?, name: words.next()?.to_owned() };
                self.enums.get_mut(name)?.push(value);
            }
        }
        words.next().is_none().then_some(())
    }
}

fn field<'a>(number: i32, words: &mut impl Iterator<Item = &'a str>) -> Option<LockedField> {
    let mut word = words.next()?;
    let label = match word {
        "optional" => FieldLabel::Optional,
        "repeated" => FieldLabel::Repeated,
        "oneof" => FieldLabel::Member(words.next()?.to_owned()),
        "map" => FieldLabel::Map(words.next().and_then(scalar)?),
        _ => FieldLabel::Always,
    };
    if label != FieldLabel::Always {
        word = words.next()?;
    }
    let of = match word {
        "enum" => LockedType::Enum(words.next()?.to_owned()),
        "message" => LockedType::Message(words.next()?.to_owned()),
        "group" => LockedType::Group(words.next()?.to_owned()),
        word => LockedType::Scalar(scalar(word)?),
    };
    Some(LockedField { number, name: words.next()?.to_owned(), label, of })
}

/// Returns the name of a scalar type in proto files.
fn scalar_name(of: Scalar) -> String {
    of.as_str_name().trim_start_matches("TYPE_").to_lowercase()
}

fn scalar(name: &str) -> Option<Scalar> {
    let of = Scalar::from_str_name(&format!("TYPE_{}", name.to_uppercase()))?;
    (!matches!(of, Scalar::Enum | Scalar::Message | Scalar::Group) && scalar_name(of) == name).then_some(of)
}

fn name_of(kind: MethodKind) -> &'static str {
    match kind {
        MethodKind::Unary => "unary",
        MethodKind::ServerStreaming => "server_streaming",
        MethodKind::ClientStreaming => "client_streaming",
        MethodKind::Bidirectional => "bidirectional",
    }
}

fn kind_of(name: &str) -> Option<MethodKind> {
    use MethodKind::{Bidirectional, ClientStreaming, ServerStreaming, Unary};
    [Unary, ServerStreaming, ClientStreaming, Bidirectional].into_iter().find(|kind| name_of(*kind) == name)
}

const HEAD: &str = "\
# The layout of everything that methods send, written by frisbee-rpc-build. Commit this file and review its changes.
# A change that breaks peers fails the build. To accept it, delete the lines that the error names, and build again.
";
const VERSION: &str = "version 1";
