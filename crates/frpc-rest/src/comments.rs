//! Comments of proto files as plain text.

use frpc_schema::Comment;

/// Returns the text of a comment, without the spaces after its slashes.
pub(crate) fn text(comment: &Comment) -> String {
    let parts = [&comment.leading, &comment.trailing].map(|part| {
        let lines: Vec<_> = part.lines().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end()).collect();
        lines.join("\n").trim().to_owned()
    });
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("\n\n")
}
