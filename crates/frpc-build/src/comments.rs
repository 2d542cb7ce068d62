//! Proto comments converted to Markdown without effects in rustdoc.
//!
//! Authors of proto files did not write for rustdoc. Indented or fenced lines become text blocks and are never
//! compiled, URLs become links, and `<`, `[` and unmatched backquotes are escaped. Lists keep their structure, with the
//! indentation required by Markdown.

use frpc_schema::Comment;

/// Returns the lines of documentation: the comment before a declaration, then the comment after it.
pub(crate) fn rustdoc(comment: &Comment) -> Vec<String> {
    let (mut lines, behind) = (block(&comment.leading), block(&comment.trailing));
    if !lines.is_empty() && !behind.is_empty() {
        lines.push(String::new());
    }
    lines.extend(behind);
    lines
}

/// Returns the lines of one comment.
fn block(comment: &str) -> Vec<String> {
    let lines: Vec<_> = comment.lines().map(plain).collect();
    let first = lines.iter().position(|line| !line.is_empty()).unwrap_or(lines.len());
    let last = lines.iter().rposition(|line| !line.is_empty()).map_or(first, |last| last + 1);
    let mut writer = MarkdownWriter::default();
    for line in &lines[first..last] {
        writer.line(line);
    }
    writer.close();
    writer.lines
}

/// Returns a line without control characters, and without the space after the comment slashes.
fn plain(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    for char in line.strip_prefix(' ').unwrap_or(line).chars() {
        match char {
            '\t' => plain.push_str("    "),
            // rustc refuses characters that change the text direction.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            control if control.is_control() => {}
            char => plain.push(char),
        }
    }
    plain.truncate(plain.trim_end().len());
    plain
}

/// Writes Markdown line by line. Tracks the open lists and the current code block.
#[derive(Default)]
struct MarkdownWriter {
    lines: Vec<String>,
    /// The open list items, outermost first.
    items: Vec<ListItem>,
    code: Option<CodeBlock>,
    is_after_text: bool,
}

/// A list item.
struct ListItem {
    /// The column of its text in the comment.
    from: usize,
    /// The column of its text in the output.
    to: usize,
}

/// A code block.
struct CodeBlock {
    end: CodeEnd,
    /// The column of its lines in the comment.
    from: usize,
    lines: Vec<String>,
}

#[derive(Clone, Copy)]
enum CodeEnd {
    /// A fence of this character, with at least this length.
    Fence(char, usize),
    /// A line with less indentation.
    Indent,
}

impl MarkdownWriter {
    fn line(&mut self, line: &str) {
        // As in Markdown, other white space, such as the wide space of Japanese text, is text.
        let text = line.trim_start_matches(' ');
        let indent = line.len() - text.len();
        if let Some(code) = &mut self.code {
            let is_end = match code.end {
                CodeEnd::Fence(mark, len) => {
                    fence(text).is_some_and(|(char, count, info)| char == mark && count >= len && info.is_empty())
                }
                CodeEnd::Indent => !text.is_empty() && indent < code.from,
            };
            if !is_end {
                code.lines.push(line[indent.min(code.from)..].to_owned());
                return;
            }
            let is_fence = matches!(code.end, CodeEnd::Fence(..));
            self.close();
            if is_fence {
                return;
            }
        }
        if text.is_empty() {
            self.is_after_text = false;
            return self.push(0, "");
        }
        let items_before = self.items.len();
        if !self.is_after_text || item(text).is_some() {
            self.leave_items(indent);
        }
        if let Some((mark, len, _)) = fence(text) {
            self.code = Some(CodeBlock { end: CodeEnd::Fence(mark, len), from: indent, lines: Vec::new() });
            return;
        }
        let from = self.items.last().map_or(0, |item| item.from) + 4;
        if !self.is_after_text && indent >= from {
            self.code = Some(CodeBlock { end: CodeEnd::Indent, from, lines: vec![line[from..].to_owned()] });
            return;
        }
        // Inside a paragraph, a numbered item starts a list only with the number 1.
        let is_in_paragraph = self.is_after_text && self.items.len() == items_before;
        let is_item = |mark: &str| !is_in_paragraph || mark.len() == 1 || mark[..mark.len() - 1] == *"1";
        match item(text).filter(|(mark, _)| is_item(mark)) {
            Some((mark, rest)) => {
                let (at, rest_text) = (self.written_indent(), rest.trim_start_matches(' '));
                let gap = (rest.len() - rest_text.len()).min(4);
                self.items.push(ListItem { from: indent + mark.len() + gap, to: at + mark.len() + 1 });
                self.push(at, &format!("{mark} {}", inline(rest_text)));
            }
            None => self.push(self.written_indent(), &inline(text)),
        }
        self.is_after_text = true;
    }

    /// Closes list items whose text is indented further than `indent`.
    fn leave_items(&mut self, indent: usize) {
        while self.items.last().is_some_and(|item| indent < item.from) {
            self.items.pop();
        }
    }

    fn written_indent(&self) -> usize {
        self.items.last().map_or(0, |item| item.to)
    }

    /// Writes the finished code block between fences longer than any backquote run at the start of its lines.
    fn close(&mut self) {
        let Some(CodeBlock { mut lines, .. }) = self.code.take() else { return };
        let text_len = lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
        let blank = lines.split_off(text_len);
        let ticks = lines.iter().map(|line| line.len() - line.trim_start_matches('`').len());
        let fence = "`".repeat(ticks.max().unwrap_or(0).max(2) + 1);
        let indent = self.written_indent();
        self.push(indent, &format!("{fence}text"));
        lines.iter().for_each(|line| self.push(indent, line));
        self.push(indent, &fence);
        self.lines.extend(blank);
        self.is_after_text = false;
    }

    fn push(&mut self, indent: usize, text: &str) {
        let line = if text.is_empty() { String::new() } else { " ".repeat(indent) + text };
        self.lines.push(line);
    }
}

/// Returns the character and length of a fence, and the text after it.
fn fence(text: &str) -> Option<(char, usize, &str)> {
    let mark = text.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let rest = text.trim_start_matches(mark);
    let len = text.len() - rest.len();
    (len >= 3 && !(mark == '`' && rest.contains('`'))).then_some((mark, len, rest.trim()))
}

/// Returns the marker of a list item, and the text after it.
fn item(text: &str) -> Option<(&str, &str)> {
    let digits = text.len() - text.trim_start_matches(|char: char| char.is_ascii_digit()).len();
    let mark = match text[digits..].chars().next()? {
        '-' | '*' | '+' if digits == 0 => 1,
        '.' | ')' if (1..=9).contains(&digits) => digits + 1,
        _ => return None,
    };
    let (mark, rest) = text.split_at(mark);
    (rest.starts_with(' ') && !is_rule(text)).then_some((mark, rest))
}

/// Returns `true` if the line could become a horizontal rule, a heading underline, or a table.
fn is_rule(text: &str) -> bool {
    text.chars().all(|char| matches!(char, '-' | '*' | '_' | '=' | ':' | '|' | ' '))
}

/// Returns a line with links for URLs, and with all other rustdoc syntax escaped.
fn inline(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    // The start of a line could form a quotation, a rule, a table, or a nested list item.
    let sign = item(rest).map_or(0, |(mark, _)| mark.len() - 1);
    if sign > 0 || rest.starts_with(['>', '|']) || is_rule(rest) || item(rest).is_some() {
        out.push_str(&rest[..sign]);
        out.push('\\');
        out.push_str(&rest[sign..=sign]);
        rest = &rest[sign + 1..];
    }
    while let Some(char) = rest.chars().next() {
        let taken = match char {
            '\\' => {
                let next = rest[1..].chars().next().filter(char::is_ascii_punctuation);
                out.push_str(if next.is_some() { &rest[..2] } else { r"\\" });
                1 + next.map_or(0, char::len_utf8)
            }
            '`' => match code_span(rest) {
                Some(len) => {
                    out.push_str(&rest[..len]);
                    len
                }
                None => {
                    let len = rest.len() - rest.trim_start_matches('`').len();
                    out.push_str(&r"\`".repeat(len));
                    len
                }
            },
            '<' => match url(&rest[1..]) {
                Some(len) if rest[1 + len..].starts_with('>') => {
                    out.push_str(&rest[..len + 2]);
                    len + 2
                }
                _ => {
                    out.push_str(r"\<");
                    1
                }
            },
            '[' => match link(rest) {
                Some(len) => {
                    out.push_str(&rest[..len]);
                    len
                }
                None => {
                    out.push_str(r"\[");
                    1
                }
            },
            ']' => {
                out.push_str(r"\]");
                1
            }
            ' ' => {
                out.push(' ');
                rest.len() - rest.trim_start_matches(' ').len()
            }
            _ => match url(rest) {
                Some(len) => {
                    out.extend(["<", &rest[..len], ">"]);
                    len
                }
                None => {
                    out.push(char);
                    char.len_utf8()
                }
            },
        };
        rest = &rest[taken..];
    }
    out
}

/// Returns the length of the code span at the start of the text. `None` if no closing backquotes match.
fn code_span(text: &str) -> Option<usize> {
    let ticks = text.len() - text.trim_start_matches('`').len();
    let mut at = ticks;
    while at < text.len() {
        at += text[at..].find('`')?;
        let len = text[at..].len() - text[at..].trim_start_matches('`').len();
        at += len;
        if len == ticks {
            return Some(at);
        }
    }
    None
}

/// Returns the length of the URL at the start of the text, without the punctuation of the surrounding sentence.
fn url(text: &str) -> Option<usize> {
    let rest = text.strip_prefix("http").map(|rest| rest.strip_prefix('s').unwrap_or(rest))?.strip_prefix("://")?;
    let head = text.len() - rest.len();
    let is_end = |char: char| char.is_whitespace() || matches!(char, '<' | '>' | '"' | '`' | '\\');
    let mut end = rest.find(is_end).unwrap_or(rest.len());
    while let Some(last) = rest[..end].chars().next_back() {
        let count = |sign| rest[..end].matches(sign).count();
        match last {
            '.' | ',' | ';' | ':' | '!' | '?' | '\'' | '*' | '_' | '|' => {}
            ')' if count(')') > count('(') => {}
            ']' if count(']') > count('[') => {}
            _ => break,
        }
        end -= last.len_utf8();
    }
    (end > 0).then_some(head + end)
}

/// Returns the length of the link at the start of the text, if it has a plain label and a URL.
fn link(text: &str) -> Option<usize> {
    let label = text[1..].find(['[', ']', '<', '`', '\\']).filter(|&end| text[1 + end..].starts_with("]("))?;
    let target = &text[label + 3..];
    let len = target.find([')', '(', ' ', '<', '>']).filter(|&end| target[end..].starts_with(')'))?;
    let is_address = url(target).is_some() && !text[1..=label].contains("://");
    (label > 0 && is_address).then_some(label + 3 + len + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indented_text_never_becomes_a_doctest() {
        let comment = " Use it so:\n\n     let x = call();\n\n     x + 1\n\n and then stop.";
        let expected = "Use it so:\n\n```text\nlet x = call();\n\nx + 1\n```\n\nand then stop.";
        check(comment, expected);
        check("     let x = 1;", "```text\nlet x = 1;\n```");
        check("\tlet x = 1;", "```text\nlet x = 1;\n```");
        check(" text\n      that goes on", "text\nthat goes on");
    }

    #[test]
    fn fences_hold_text_and_are_closed() {
        check(" ```rust\n panic!();\n ```\n Done.", "```text\npanic!();\n```\nDone.");
        check(" ~~~\n a ``` b\n ~~~", "```text\na ``` b\n```");
        check(" ```\n never closed", "```text\nnever closed\n```");
        check(" ````\n ```\n ````", "````text\n```\n````");
    }

    #[test]
    fn lists_have_the_indentation_of_markdown() {
        check(" - one\n that goes on\n   - deeper\n\n - two", "- one\n  that goes on\n  - deeper\n\n- two");
        check(" 1. one\n     far in\n 2) two", "1. one\n   far in\n2) two");
        check(" -     code?", "- code?");
        check(" - - - x", r"- \- - x");
        check(" it was\n 1984. And 1.\n 1. one", "it was\n1984\\. And 1.\n1. one");
        check(" - one\n\n       code", "- one\n\n  ```text\n  code\n  ```");
        check(" - one\n\n after", "- one\n\nafter");
    }

    #[test]
    fn addresses_become_links() {
        check(" See https://a.b/c.", "See <https://a.b/c>.");
        check(" (http://a.b/c_(d)) <https://e.f>", "(<http://a.b/c_(d)>) <https://e.f>");
        check(" [here](https://a.b/c), [x](y)", r"[here](https://a.b/c), \[x\](y)");
        check(" `https://a.b`", "`https://a.b`");
    }

    #[test]
    fn special_characters_are_escaped() {
        check(" A List<T> of [T], `Vec<[T]>` & <b>", r"A List\<T> of \[T\], `Vec<[T]>` & \<b>");
        check(" a ` b `` c", r"a \` b \`\` c");
        check(r" a \[b\] \ c", r"a \[b\] \\ c");
        check(" > quoted\n # head\n ---\n ===", "\\> quoted\n# head\n\\---\n\\===");
        check(" a\u{202e}b\u{7}c\r", "abc");
        check("  \n \n", "");
    }

    #[test]
    fn wide_spaces_are_text_instead_of_indentation() {
        check(" \u{3000}段落\n\u{3000}続き", "\u{3000}段落\n\u{3000}続き");
        check(
            "\u{3000}\u{3000}\u{3000}段落\n\n\u{a0}\u{a0}\u{a0}\u{a0}text",
            "\u{3000}\u{3000}\u{3000}段落\n\n\u{a0}\u{a0}\u{a0}\u{a0}text",
        );
        check(" ```\n \u{3000}a\n ```", "```text\n\u{3000}a\n```");
        check("   ```\n \u{3000}a\n   ```", "```text\n\u{3000}a\n```");
        check("     code\n\n  \u{3000}  text", "```text\ncode\n```\n\n\u{3000} text");
        check(
            " -\u{3000}a\n - \u{3000}b\n\n       \u{3000}c",
            "-\u{3000}a\n- \u{3000}b\n\n  ```text\n  \u{3000}c\n  ```",
        );
    }

    #[test]
    fn no_comment_panics() {
        let signs = [
            " ", "  ", "\u{3000}", "\u{a0}", "\u{2003}", "\t", "\n", "\n", "-", "1.", "`", "```", "~~~", ">", "|", "<",
            "[", "](", "\\", "é", "http://", "a",
        ];
        let mut random = 1_u64;
        for _ in 0..20_000 {
            let mut comment = String::new();
            for _ in 0..12 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                comment += signs[usize::try_from(random >> 33).unwrap() % signs.len()];
            }
            block(&comment);
        }
    }

    #[test]
    fn leading_and_trailing_comments_are_two_paragraphs() {
        let rustdoc = |leading: &str, trailing: &str| {
            let mut comment = Comment::default();
            (comment.leading, comment.trailing) = (leading.to_owned(), trailing.to_owned());
            super::rustdoc(&comment)
        };
        assert_eq!(rustdoc(" a\n", " b\n"), ["a", "", "b"]);
        assert_eq!(rustdoc("", " b\n"), ["b"]);
        assert!(rustdoc(" \n", "").is_empty());
    }

    fn check(comment: &str, expected: &str) {
        assert_eq!(block(comment).join("\n"), expected, "{comment}");
    }
}
