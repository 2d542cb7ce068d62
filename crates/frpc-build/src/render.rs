//! Diagnostics as plain text with the source line and carets, because cargo prints the output as plain text.

use frpc_schema::{Diagnostic, Label, location::SourceLocation};

use crate::sources::IncludeDirs;

/// Returns the text of diagnostics, separated by empty lines.
pub(crate) fn all(diagnostics: &[Diagnostic], sources: &IncludeDirs) -> String {
    let texts: Vec<_> = diagnostics.iter().map(|diagnostic| one(diagnostic, sources)).collect();
    texts.join("\n\n")
}

fn one(diagnostic: &Diagnostic, sources: &IncludeDirs) -> String {
    let lines = diagnostic.labels.iter().filter_map(|label| Some(label.place.span?.line + 1));
    let margin = " ".repeat(lines.max().map_or(0, |line| line.to_string().len()));
    let mut text = diagnostic.message.clone();
    for Label { place, text: remark, .. } in &diagnostic.labels {
        text += &label(place, remark, &margin, sources);
    }
    for note in &diagnostic.notes {
        text += &format!("\n{margin} = {note}");
    }
    text
}

fn label(place: &SourceLocation, remark: &str, margin: &str, sources: &IncludeDirs) -> String {
    let path = sources.path(&place.file);
    let path = path.display();
    let text = sources.text(&place.file);
    let found = place.span.and_then(|span| {
        let line = text.as_deref()?.lines().nth(span.line)?;
        Some((span, line, line.get(..span.column)?))
    });
    let Some((span, line, before)) = found else {
        return match place.span {
            Some(span) => format!("\n{margin}--> {path}:{}:{}", span.line + 1, span.column + 1),
            None => format!("\n{margin}--> {path}"),
        };
    };
    let marked = line[before.len()..].trim_end();
    let marked = marked.get(..span.len.min(marked.len())).unwrap_or(marked);
    let number = span.line + 1;
    let head = format!("\n{margin}--> {path}:{number}:{}", before.chars().count() + 1);
    let before = expanded(before);
    // A very long line is cut to the part around the place.
    let cut = before.chars().count().saturating_sub(LINE_LEN_MAX / 2);
    let shown: String = expanded(line).chars().skip(cut).take(LINE_LEN_MAX).collect();
    let indent = " ".repeat(before.chars().count() - cut);
    let carets = "^".repeat(marked.chars().count().clamp(1, LINE_LEN_MAX - indent.len()));
    let source = format!("\n{number:>width$} | {shown}", width = margin.len());
    let caret = format!("\n{margin} | {indent}{carets} {remark}");
    format!("{head}\n{margin} |{source}{}", caret.trim_end())
}

/// Returns a line with tabs replaced by four spaces.
fn expanded(line: &str) -> String {
    line.replace('\t', "    ")
}

const LINE_LEN_MAX: usize = 160;
