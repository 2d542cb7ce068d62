//! What is wrong with the proto files, and where: as plain text with the source line and a caret, because it is read
//! in the output of cargo.

use std::{
    collections::HashMap,
    error, fmt, fs, io,
    path::{self, Path, PathBuf},
};

use miette::Diagnostic as _;
use prost_types::{FileDescriptorProto, SourceCodeInfo, source_code_info::Location};

/// Why no code was generated. Prints with the place in the proto file and its source line.
pub struct Error(Box<Kind>);

enum Kind {
    Schema(String),
    Io { doing: &'static str, path: PathBuf, error: io::Error },
    Other(String),
}

impl Error {
    pub(crate) fn io(doing: &'static str, path: &Path, error: io::Error) -> Self {
        Self(Box::new(Kind::Io { doing, path: path.to_owned(), error }))
    }

    pub(crate) fn other(message: impl fmt::Display) -> Self {
        Self(Box::new(Kind::Other(message.to_string())))
    }

    pub(crate) fn schema(diagnostics: &[Diagnostic], sources: &Sources) -> Self {
        let texts: Vec<_> = diagnostics.iter().map(|diagnostic| diagnostic.render(sources)).collect();
        Self(Box::new(Kind::Schema(texts.join("\n\n"))))
    }

    pub(crate) fn protox(error: &protox::Error, sources: &Sources) -> Self {
        let mut diagnostics = vec![Diagnostic::of_protox(error, error, sources)];
        let related = error.related().into_iter().flatten();
        diagnostics.extend(related.map(|related| Diagnostic::of_protox(related, error, sources)));
        Self::schema(&diagnostics, sources)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Schema(text) | Kind::Other(text) => f.write_str(text),
            Kind::Io { doing, path, error } => write!(f, "cannot {doing} {}: {error}", path.display()),
        }
    }
}

/// As `Display`, since this is how `main` shows the error of a build script.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match &*self.0 {
            Kind::Schema(_) | Kind::Other(_) => None,
            Kind::Io { error, .. } => Some(error),
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::other(error)
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug)]
pub(crate) struct Diagnostic {
    message: String,
    marks: Vec<(Mark, String)>,
    notes: Vec<String>,
}

/// A place in a proto file.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    file: String,
    span: Option<Span>,
}

/// Counted from zero, columns in bytes.
#[derive(Clone, Copy, Debug)]
struct Span {
    line: usize,
    column: usize,
    /// On this line; at least 1.
    len: usize,
}

/// Where the declarations of a file stand, by their paths in the descriptor.
pub(crate) struct Locations<'a> {
    file: &'a str,
    by_path: HashMap<&'a [i32], &'a Location>,
}

/// Where the text of proto files is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    includes: Vec<PathBuf>,
}

impl Diagnostic {
    pub(crate) fn new(message: impl Into<String>, mark: Mark) -> Self {
        Self { message: message.into(), marks: vec![(mark, String::new())], notes: Vec::new() }
    }

    pub(crate) fn and(mut self, mark: Mark, label: impl Into<String>) -> Self {
        self.marks.push((mark, label.into()));
        self
    }

    pub(crate) fn note(mut self, note: impl fmt::Display) -> Self {
        self.notes.push(format!("note: {note}"));
        self
    }

    pub(crate) fn help(mut self, help: impl fmt::Display) -> Self {
        self.notes.push(format!("help: {help}"));
        self
    }

    /// `part` is the error itself, or one that came with it.
    fn of_protox(part: &dyn miette::Diagnostic, error: &protox::Error, sources: &Sources) -> Self {
        let mut message = part.to_string();
        let mut help = part.help().map(|help| help.to_string());
        let mut marks = Vec::new();
        // protox knows names in JSON only of proto3.
        if message == "a field with JSON name '' is already defined" {
            message = "two fields have the same name in JSON".to_owned();
        }
        if error.is_parse() && message.ends_with("found 'edition'") {
            message = "editions are not supported yet".to_owned();
            help = Some("write `syntax = \"proto3\";` instead, or \"proto2\"".to_owned());
        }
        if let Some(file) = error.file() {
            let source = sources.text(file);
            let mark = |offset, len| Mark {
                file: file.to_owned(),
                span: source.as_deref().and_then(|source| Span::of_bytes(source, offset, len)),
            };
            let labels = part.labels().into_iter().flatten();
            marks.extend(
                labels.map(|label| (mark(label.offset(), label.len()), label.label().unwrap_or_default().to_owned())),
            );
            if let Some((mark, text)) = sources.unlabelled(file, &message) {
                marks = vec![(mark, text.to_owned())];
            } else if marks.is_empty() && message.ends_with("end of file") {
                let end = source.as_deref().map_or(0, |source| source.trim_end().len());
                marks.push((mark(end, 1), String::new()));
            } else if marks.is_empty() && source.is_some() {
                marks.push((Mark::new(file, &[]), String::new()));
            }
        }
        let mut diagnostic = Self { message, marks, notes: Vec::new() };
        if error.is_file_not_found() {
            // The only place where the name stands.
            let missing = diagnostic.message.split('\'').nth(1).unwrap_or_default().to_owned();
            diagnostic = diagnostic.note(sources.searched(Path::new(&missing)));
        }
        match help {
            Some(help) => diagnostic.help(help),
            None => diagnostic,
        }
    }

    fn render(&self, sources: &Sources) -> String {
        let mut text = self.message.clone();
        let lines = self.marks.iter().filter_map(|(mark, _)| Some(mark.span?.line + 1));
        let margin = " ".repeat(lines.max().map_or(0, |line| line.to_string().len()));
        for (mark, label) in &self.marks {
            text += &mark.render(label, &margin, sources);
        }
        for note in &self.notes {
            text += &format!("\n{margin} = {note}");
        }
        text
    }
}

impl Mark {
    /// With the span of a location in a descriptor.
    pub(crate) fn new(file: &str, span: &[i32]) -> Self {
        let number = |index: usize| span.get(index).and_then(|&number| usize::try_from(number).ok());
        let span = || {
            let (line, column) = (number(0)?, number(1)?);
            let len = match (number(2)?, number(3)) {
                (end_column, None) => end_column.saturating_sub(column),
                (_, Some(_)) => usize::MAX,
            };
            Some(Span { line, column, len: len.max(1) })
        };
        Self { file: file.to_owned(), span: span() }
    }

    fn render(&self, label: &str, margin: &str, sources: &Sources) -> String {
        let path = sources.path(&self.file);
        let text = sources.text(&self.file);
        let found = self.span.and_then(|span| {
            let line = text.as_deref()?.lines().nth(span.line)?;
            Some((span, line, line.get(..span.column)?))
        });
        let Some((span, line, before)) = found else {
            return match self.span {
                Some(span) => format!("\n{margin}--> {}:{}:{}", path.display(), span.line + 1, span.column + 1),
                None => format!("\n{margin}--> {}", path.display()),
            };
        };
        let marked = line[before.len()..].trim_end();
        let marked = marked.get(..span.len.min(marked.len())).unwrap_or(marked);
        let number = span.line + 1;
        let head = format!("\n{margin}--> {}:{number}:{}", path.display(), before.chars().count() + 1);
        let before = expanded(before);
        // Of a line that no screen has room for, what stands around the mark is enough.
        let cut = before.chars().count().saturating_sub(LINE_LEN_MAX / 2);
        let shown: String = expanded(line).chars().skip(cut).take(LINE_LEN_MAX).collect();
        let indent = " ".repeat(before.chars().count() - cut);
        let carets = "^".repeat(marked.chars().count().clamp(1, LINE_LEN_MAX - indent.len()));
        let source = format!("\n{number:>width$} | {shown}", width = margin.len());
        let caret = format!("\n{margin} | {indent}{carets} {label}");
        format!("{head}\n{margin} |{source}{}", caret.trim_end())
    }
}

impl<'a> Locations<'a> {
    pub(crate) fn new(file: &'a FileDescriptorProto) -> Self {
        let locations = file.source_code_info.iter().flat_map(|SourceCodeInfo { location }| location);
        let by_path = locations.map(|location| (&location.path[..], location)).collect();
        Self { file: file.name(), by_path }
    }

    pub(crate) fn mark(&self, path: &[i32]) -> Mark {
        Mark::new(self.file, self.by_path.get(path).map_or(&[][..], |location| &location.span))
    }

    /// The comments in front of a declaration and behind it.
    pub(crate) fn comments(&self, path: &[i32]) -> (&'a str, &'a str) {
        self.by_path.get(path).map_or(("", ""), |location| (location.leading_comments(), location.trailing_comments()))
    }
}

impl Span {
    fn of_bytes(source: &str, offset: usize, len: usize) -> Option<Self> {
        let before = source.get(..offset)?;
        let line = before.matches('\n').count();
        let column = before.len() - before.rfind('\n').map_or(0, |newline| newline + 1);
        let len = source[offset..].lines().next().map_or(1, |rest| rest.len().min(len)).max(1);
        Some(Self { line, column, len })
    }
}

impl Sources {
    pub(crate) fn new(includes: &[impl AsRef<Path>]) -> Self {
        Self { includes: includes.iter().map(|include| include.as_ref().to_owned()).collect() }
    }

    pub(crate) fn includes(&self) -> &[PathBuf] {
        &self.includes
    }

    /// Where a file lies that proto files know by its name in an include directory.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        let mut paths = self.includes.iter().map(|include| include.join(file));
        paths.find(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(file))
    }

    /// The text of a file, with a sign in the place of what is no text, and without its byte order mark.
    fn text(&self, file: &str) -> Option<String> {
        let bytes = fs::read(self.path(file)).ok()?;
        Some(String::from_utf8_lossy(bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&bytes)).into_owned())
    }

    /// The text of a file that starts with a byte order mark, without it.
    pub(crate) fn marked_text(&self, file: &str) -> Option<String> {
        let bytes = fs::read(self.path(file)).ok()?;
        String::from_utf8(bytes.strip_prefix(BYTE_ORDER_MARK)?.to_owned()).ok()
    }

    /// What is wrong with the path of a proto file, if there is no file.
    pub(crate) fn missing(&self, proto: &Path) -> Option<String> {
        let is_somewhere = proto.is_file() || self.includes.iter().any(|include| include.join(proto).is_file());
        if is_somewhere {
            return None;
        }
        if proto.is_dir() {
            return Some(format!("'{}' is a directory, not a proto file", proto.display()));
        }
        let absolute = |path: &Path| path::absolute(Path::new(".").join(path));
        let is_inside = |include: &PathBuf| match (absolute(proto), absolute(include)) {
            (Ok(proto), Ok(include)) => proto.starts_with(include),
            _ => false,
        };
        let is_meant = proto.is_absolute() || self.includes.iter().any(is_inside);
        is_meant.then(|| format!("file '{}' does not exist", proto.display()))
    }

    /// The place of a mistake for which protox gives none.
    fn unlabelled(&self, file: &str, message: &str) -> Option<(Mark, &'static str)> {
        let mark = |file: &str, span| Mark { file: file.to_owned(), span: Some(span) };
        if message.ends_with("is not valid utf-8") {
            let bytes = fs::read(self.path(file)).ok()?;
            let valid_len = std::str::from_utf8(&bytes).err()?.valid_up_to();
            let source = self.text(file)?;
            let sign_len = char::REPLACEMENT_CHARACTER.len_utf8();
            return Some((mark(file, Span::of_bytes(&source, valid_len, sign_len)?), "this is no text"));
        }
        let mut cycle = message.strip_prefix("import cycle detected: ")?.rsplit(" -> ");
        let (imported, importer) = (cycle.next()?, cycle.next()?);
        let source = self.text(importer)?;
        let statement = ['"', '\''].map(|quote| format!("{quote}{imported}{quote}"));
        let at = statement.iter().find_map(|name| source.find(name))?;
        Some((mark(importer, Span::of_bytes(&source, at, imported.len() + 2)?), "imported here"))
    }

    fn searched(&self, missing: &Path) -> String {
        let joined = |paths: Vec<PathBuf>| {
            let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            paths.join(", ")
        };
        if missing.is_file() {
            return format!("include directories are {}", joined(self.includes.clone()));
        }
        match self.includes.is_empty() {
            true => "there are no include directories".to_owned(),
            false => format!("looked for {}", joined(self.includes.iter().map(|dir| dir.join(missing)).collect())),
        }
    }
}

/// As terminals with narrow tabs show it.
fn expanded(line: &str) -> String {
    line.replace('\t', "    ")
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
const LINE_LEN_MAX: usize = 160;
