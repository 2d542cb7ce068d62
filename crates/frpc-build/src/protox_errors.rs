//! Converts errors of protox to diagnostics, and finds a location in the sources where protox gives none.

use std::{fs, path::Path};

use frpc_schema::{
    Diagnostic,
    location::{SourceLocation, Span},
};
use miette::Diagnostic as _;

use crate::sources::IncludeDirs;

/// Returns the diagnostics of an error.
pub(crate) fn diagnostics(error: &protox::Error, sources: &IncludeDirs) -> Vec<Diagnostic> {
    let related = error.related().into_iter().flatten();
    let related = related.map(|related| diagnostic(related, error, sources));
    [diagnostic(error, error, sources)].into_iter().chain(related).collect()
}

/// Returns the diagnostic of a part of an error: the error itself, or a related one.
fn diagnostic(part: &dyn miette::Diagnostic, error: &protox::Error, sources: &IncludeDirs) -> Diagnostic {
    let mut message = part.to_string();
    let help = part.help().map(|help| help.to_string());
    // protox knows JSON names only for proto3, so the name in this message is empty.
    if message == "a field with JSON name '' is already defined" {
        message = "two fields have the same name in JSON".to_owned();
    }
    let mut diagnostic = Diagnostic::new(message);
    if let Some(file) = error.file() {
        for (place, remark) in labels(part, file, &diagnostic.message, sources) {
            diagnostic = diagnostic.labelled(place, remark);
        }
    }
    if error.is_file_not_found() {
        // The name of the file is only in the message.
        let missing = diagnostic.message.split('\'').nth(1).unwrap_or_default().to_owned();
        diagnostic = diagnostic.note(sources.searched(Path::new(&missing)));
    }
    match help {
        Some(help) => diagnostic.help(help),
        None => diagnostic,
    }
}

fn labels(
    part: &dyn miette::Diagnostic,
    file: &str,
    message: &str,
    sources: &IncludeDirs,
) -> Vec<(SourceLocation, String)> {
    if let Some((place, remark)) = unlabelled(file, message, sources) {
        return vec![(place, remark.to_owned())];
    }
    let edition = sources.edition(file);
    let source = edition.as_ref().map(|edition| edition.text.clone()).or_else(|| sources.text(file));
    let place = |offset, len| {
        let found = source.as_deref().and_then(|source| span(source, offset, len));
        SourceLocation::new(
            file,
            found.map(|span| edition.as_ref().map_or(span, |edition| edition.original_span(span))),
        )
    };
    let labels = part.labels().into_iter().flatten();
    let labels: Vec<_> = labels
        .map(|label| (place(label.offset(), label.len()), label.label().unwrap_or_default().to_owned()))
        .collect();
    match &source {
        _ if !labels.is_empty() => labels,
        source if message.ends_with("end of file") => {
            let end = source.as_deref().map_or(0, |source| source.trim_end().len());
            vec![(place(end, 1), String::new())]
        }
        Some(_) => vec![(SourceLocation::new(file, None), String::new())],
        None => labels,
    }
}

/// Finds the location of an error that has none, and a note for the user.
fn unlabelled(file: &str, message: &str, sources: &IncludeDirs) -> Option<(SourceLocation, &'static str)> {
    if message.ends_with("is not valid utf-8") {
        let bytes = fs::read(sources.path(file)).ok()?;
        let valid_len = std::str::from_utf8(&bytes).err()?.valid_up_to();
        let source = sources.text(file)?;
        let sign_len = char::REPLACEMENT_CHARACTER.len_utf8();
        let span = span(&source, valid_len, sign_len)?;
        return Some((SourceLocation::new(file, Some(span)), "not UTF-8 from here"));
    }
    let mut cycle = message.strip_prefix("import cycle detected: ")?.rsplit(" -> ");
    let (imported, importer) = (cycle.next()?, cycle.next()?);
    let source = sources.text(importer)?;
    let statement = ['"', '\''].map(|quote| format!("{quote}{imported}{quote}"));
    let at = statement.iter().find_map(|name| source.find(name))?;
    let span = span(&source, at, imported.len() + 2)?;
    Some((SourceLocation::new(importer, Some(span)), "imported here"))
}

/// Returns the span of a byte range, cut at the end of its first line.
fn span(source: &str, offset: usize, len: usize) -> Option<Span> {
    let before = source.get(..offset)?;
    let line = before.matches('\n').count();
    let column = before.len() - before.rfind('\n').map_or(0, |newline| newline + 1);
    let len = source[offset..].lines().next().map_or(1, |rest| rest.len().min(len));
    Some(Span::new(line, column, len))
}
