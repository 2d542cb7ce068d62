//! Files of an edition as text, rewritten for protox, which reads proto2 and proto3.
//!
//! The rewritten text is proto2: single fields get the label `optional`, reserved names get quotes, and words of edition
//! 2024 are blanked. No line is added or removed. [`EditionText::original`]
//! converts columns back. After compilation, the descriptors become those of the edition again.

use std::collections::HashMap;

use frpc_schema::location::Span;

/// The rewritten text of a file.
#[derive(Debug)]
pub(crate) struct EditionText {
    pub(crate) text: String,
    /// The edition as written, such as `2023`.
    pub(crate) edition: String,
    /// Statements of proto2 that protox would accept.
    pub(crate) mistakes: Vec<EditionMistake>,
    /// The changes of each line, in order.
    changes: HashMap<usize, Vec<LineChange>>,
}

/// A statement that no edition has.
#[derive(Debug)]
pub(crate) struct EditionMistake {
    pub(crate) message: String,
    pub(crate) span: Span,
    pub(crate) help: &'static str,
}

/// A replaced part of a line. Columns count bytes.
#[derive(Debug)]
struct LineChange {
    /// The column in the original line.
    column: usize,
    old_len: usize,
    new_len: usize,
}

impl EditionText {
    /// Rewrites a file. Returns `None` for files without an edition.
    pub(crate) fn of(source: &str) -> Option<Self> {
        let mut scan = StatementScan { tokens: tokens(source), at: 0, edits: Vec::new(), mistakes: Vec::new(), source };
        let [Token { text: "edition", .. }, Token { text: "=", .. }, edition, ..] = &scan.tokens[..] else {
            return None;
        };
        let edition = edition.text.trim_matches(['"', '\'']).to_owned();
        scan.replace(0, "syntax");
        scan.replace(2, "\"proto2\"");
        scan.at = 3;
        scan.skip_statement();
        scan.body(StatementScope::File, 0);

        let (mut text, mut changes, mut at) = (String::with_capacity(source.len() + 64), HashMap::new(), 0);
        scan.edits.sort_by_key(|edit| edit.start);
        for TextEdit { start, end, new } in &scan.edits {
            text += &source[at..*start];
            text += new;
            at = *end;
            let line = source[..*start].matches('\n').count();
            let column = start - source[..*start].rfind('\n').map_or(0, |newline| newline + 1);
            let change = LineChange { column, old_len: end - start, new_len: new.len() };
            changes.entry(line).or_insert_with(Vec::new).push(change);
        }
        text += &source[at..];
        Some(Self { text, edition, mistakes: scan.mistakes, changes })
    }

    /// Returns the column in the original text.
    pub(crate) fn original(&self, line: usize, column: usize) -> usize {
        let (mut new, mut old) = (0, 0);
        for change in self.changes.get(&line).into_iter().flatten() {
            let start = change.column + new - old;
            if column < start {
                break;
            }
            if column < start + change.new_len {
                return change.column;
            }
            new += change.new_len;
            old += change.old_len;
        }
        column + old - new
    }

    /// Returns the span in the original text.
    pub(crate) fn original_span(&self, span: Span) -> Span {
        let start = self.original(span.line, span.column);
        let end = self.original(span.line, span.column.saturating_add(span.len));
        Span::new(span.line, start, end.saturating_sub(start))
    }

    /// Converts the span of a location in a descriptor.
    pub(crate) fn convert(&self, span: &mut [i32]) {
        let convert = |line: i32, column: &mut i32| {
            let (Ok(line), Ok(at)) = (usize::try_from(line), usize::try_from(*column)) else { return };
            *column = i32::try_from(self.original(line, at)).unwrap_or(*column);
        };
        match span {
            [line, start, end] => {
                convert(*line, start);
                convert(*line, end);
            }
            [line, start, last, end] => {
                convert(*line, start);
                convert(*last, end);
            }
            _ => {}
        }
    }
}

/// A replaced part of the text.
struct TextEdit<'a> {
    start: usize,
    end: usize,
    new: std::borrow::Cow<'a, str>,
}

/// The declaration around a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StatementScope {
    File,
    Message,
    Extend,
    Oneof,
    Enum,
}

struct StatementScan<'a> {
    source: &'a str,
    tokens: Vec<Token<'a>>,
    at: usize,
    edits: Vec<TextEdit<'a>>,
    mistakes: Vec<EditionMistake>,
}

impl<'a> StatementScan<'a> {
    /// Reads statements up to the end of a declaration.
    fn body(&mut self, scope: StatementScope, depth: usize) {
        while let Some(word) = self.word(0) {
            if word == "}" {
                self.at += 1;
                return;
            }
            self.statement(scope, word, depth);
        }
    }

    fn statement(&mut self, scope: StatementScope, word: &'a str, depth: usize) {
        use StatementScope::{Enum, Extend, File, Message, Oneof};
        let has_types = matches!(scope, File | Message);
        if has_types && matches!(word, "export" | "local") && matches!(self.word(1), Some("message" | "enum")) {
            self.blank(self.at);
            self.at += 1;
            return;
        }
        let is_labelled = matches!(word, "optional" | "repeated" | "required");
        let is_group = self.is_group(usize::from(is_labelled));
        if is_group {
            let help = "declare a message, and a field of its type with `features.message_encoding = DELIMITED`";
            self.refuse("files of an edition have no groups".to_owned(), help);
            if !is_labelled && scope != Oneof {
                self.label();
            }
        }
        let inner = match word {
            _ if is_group => Some(Message),
            "message" if has_types => Some(Message),
            "enum" if has_types => Some(Enum),
            "extend" if has_types => Some(Extend),
            "oneof" if scope == Message => Some(Oneof),
            _ => None,
        };
        if let Some(inner) = inner.filter(|_| depth < DEPTH_MAX) {
            while self.word(0).is_some_and(|word| !matches!(word, "{" | ";" | "}")) {
                self.at += 1;
            }
            if self.word(0) == Some("{") {
                self.at += 1;
                self.body(inner, depth + 1);
            }
            return;
        }
        match word {
            "option" if self.word(1).is_some_and(|name| WITHOUT_EFFECT.contains(&name)) => {
                let start = self.at;
                self.skip_statement();
                return (start..self.at).for_each(|token| self.blank(token));
            }
            "import" if scope == File && self.word(1) == Some("option") => self.blank(self.at + 1),
            "reserved" if matches!(scope, Message | Enum) => return self.reserved(),
            "optional" | "required" if matches!(scope, Message | Extend) => {
                let help = "use `features.field_presence`: fields have presence by default";
                self.refuse(format!("files of an edition have no label `{word}`"), help);
            }
            "option" | "reserved" | "extensions" | "map" | "repeated" | ";" => {}
            _ if matches!(scope, Message | Extend) => {
                self.label();
            }
            _ => {}
        }
        self.skip_statement();
    }

    /// Returns `true` if a group starts at a token: `group`, a name, and a number.
    fn is_group(&self, ahead: usize) -> bool {
        self.word(ahead) == Some("group")
            && self.word(ahead + 2) == Some("=")
            && self.word(ahead + 1).is_some_and(|name| name.starts_with(|first: char| first.is_ascii_uppercase()))
    }

    /// Adds the label of a single field.
    fn label(&mut self) {
        let start = self.tokens[self.at].start;
        self.edits.push(TextEdit { start, end: start, new: "optional ".into() });
    }

    fn refuse(&mut self, message: String, help: &'static str) {
        let Token { start, text } = self.tokens[self.at];
        let line = self.source[..start].matches('\n').count();
        let column = start - self.source[..start].rfind('\n').map_or(0, |newline| newline + 1);
        self.mistakes.push(EditionMistake { message, span: Span::new(line, column, text.len()), help });
    }

    /// Puts reserved names into quotes.
    fn reserved(&mut self) {
        self.at += 1;
        while let Some(word) = self.word(0) {
            if matches!(word, ";" | "}") {
                break;
            }
            if word.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
                && !matches!(word, "to" | "max")
            {
                self.replace(self.at, format!("\"{word}\""));
            }
            self.at += 1;
        }
        self.skip_statement();
    }

    /// Skips the rest of a statement, with its blocks: up to a semicolon, or after a block that ends it.
    fn skip_statement(&mut self) {
        let (mut blocks, mut brackets) = (0_usize, 0_usize);
        while let Some(word) = self.word(0) {
            match word {
                ";" if blocks == 0 => {
                    self.at += 1;
                    return;
                }
                // The end of the declaration: the semicolon is missing.
                "}" if blocks == 0 => return,
                "[" => brackets += 1,
                "]" => brackets = brackets.saturating_sub(1),
                "{" => blocks += 1,
                "}" => {
                    blocks -= 1;
                    if blocks == 0 && brackets == 0 && self.word(1) != Some(";") {
                        self.at += 1;
                        return;
                    }
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    fn word(&self, ahead: usize) -> Option<&'a str> {
        self.tokens.get(self.at + ahead).map(|token| token.text)
    }

    fn blank(&mut self, token: usize) {
        // A text in quotes may have several lines.
        let blank = |byte| if byte == b'\n' { '\n' } else { ' ' };
        let blanks: String = self.tokens[token].text.bytes().map(blank).collect();
        self.replace(token, blanks);
    }

    fn replace(&mut self, token: usize, new: impl Into<std::borrow::Cow<'a, str>>) {
        let Token { start, text } = self.tokens[token];
        debug_assert_eq!(&self.source[start..start + text.len()], text);
        self.edits.push(TextEdit { start, end: start + text.len(), new: new.into() });
    }
}

/// A word, a text in quotes, or a sign.
#[derive(Clone, Copy, Debug)]
struct Token<'a> {
    start: usize,
    text: &'a str,
}

/// Returns the tokens of a file, without comments. Names keep their dots.
fn tokens(source: &str) -> Vec<Token<'_>> {
    let bytes = source.as_bytes();
    let (mut tokens, mut at) = (Vec::new(), 0);
    while let Some(&byte) = bytes.get(at) {
        let rest = &source.as_bytes()[at..];
        let len_while = |is_part: fn(&u8) -> bool| rest.iter().take_while(|byte| is_part(byte)).count();
        let len = match byte {
            _ if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            b'/' if rest.starts_with(b"//") => {
                at += len_while(|byte| *byte != b'\n');
                continue;
            }
            b'/' if rest.starts_with(b"/*") => {
                let end = rest[2..].windows(2).position(|end| end == b"*/");
                at += end.map_or(rest.len(), |end| end + 4);
                continue;
            }
            b'"' | b'\'' => quoted_len(rest, byte),
            _ if is_name(&byte) => len_while(is_name),
            // A sign, or a letter outside ASCII as a whole.
            _ => source[at..].chars().next().map_or(1, char::len_utf8),
        };
        tokens.push(Token { start: at, text: &source[at..at + len] });
        at += len;
    }
    tokens
}

/// Returns the length of a text in quotes, or of its line if the quote is missing.
fn quoted_len(text: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'\\' if text.get(at + 1).is_some_and(u8::is_ascii) => at += 2,
            b'\n' => return at,
            _ if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    at.min(text.len())
}

fn is_name(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.')
}

/// Features of edition 2024 that protox does not know. They do not change the code.
const WITHOUT_EFFECT: [&str; 2] = ["features.enforce_naming_style", "features.default_symbol_visibility"];

/// The maximum nesting of declarations, above the limit of protox.
const DEPTH_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(source: &str) -> String {
        EditionText::of(source).unwrap().text
    }

    #[test]
    fn fields_get_labels_and_names_get_quotes() {
        let source = "\
// A comment with edition = \"2024\";
edition = '2023'; package a.b;
import option \"x.proto\"; import \"y.proto\";
option (x) = { a: 1; b { c: \"}\" } };
option features.enforce_naming_style = A; option y = 1;
export message M {
  string a = 1; int32 b = 2 [default = 1, (o) = { x: [1, 2] }];
  repeated .a.M c = 3; map<string, M> d = 4;
  oneof e { string f = 5; option (p) = 1; M g = 6; }
  reserved old, 7 to max, older; reserved 'quoted';
  extensions 10 to 20 [declaration = { number: 10 }];
  local enum E { option x = 1; A = 0; reserved B, -1; }
  message message_ { option deprecated = true; }
  extend M { int32 h = 10; repeated E i = 11; };
}
service S { rpc R(M) returns (M) { option (q) = { get: \"/a\" }; } rpc Q(stream M) returns (M); }
local enum F { Z = 0; }
";
        let expected = "\
// A comment with edition = \"2024\";
syntax = \"proto2\"; package a.b;
import        \"x.proto\"; import \"y.proto\";
option (x) = { a: 1; b { c: \"}\" } };
                                          option y = 1;
       message M {
  optional string a = 1; optional int32 b = 2 [default = 1, (o) = { x: [1, 2] }];
  repeated .a.M c = 3; map<string, M> d = 4;
  oneof e { string f = 5; option (p) = 1; M g = 6; }
  reserved \"old\", 7 to max, \"older\"; reserved 'quoted';
  extensions 10 to 20 [declaration = { number: 10 }];
        enum E { option x = 1; A = 0; reserved \"B\", -1; }
  message message_ { option deprecated = true; }
  extend M { optional int32 h = 10; repeated E i = 11; };
}
service S { rpc R(M) returns (M) { option (q) = { get: \"/a\" }; } rpc Q(stream M) returns (M); }
      enum F { Z = 0; }
";
        assert_eq!(rewritten(source), expected);
        assert!(EditionText::of("syntax = \"proto3\";").is_none() && EditionText::of("").is_none());
    }

    #[test]
    fn columns_are_those_of_the_original() {
        let source = "edition = \"2023\"; message M {\n string a = 1; string b = 2; reserved c, d;\n}";
        let text = EditionText::of(source).unwrap();
        for (line, (old, new)) in source.lines().zip(text.text.lines()).enumerate() {
            for name in ["a =", "b =", "c", "d", "message", "M", "reserved"] {
                if let (Some(old), Some(new)) = (old.find(name), new.find(name)) {
                    // A quote belongs to its name.
                    assert!(text.original(line, new).abs_diff(old) <= 1, "{name}");
                }
            }
        }
        let mut span = [1, 1, 24];
        text.convert(&mut span);
        assert_eq!(span, [1, 1, 15]);
    }

    #[test]
    fn no_line_is_removed() {
        let source =
            "edition = \"2023\"; option features.enforce_naming_style = \"a\\\nb\"; message M { string a = 1; }";
        let text = rewritten(source);
        let (first, second) = text.split_once('\n').unwrap();
        assert_eq!((first.trim_end(), second), ("syntax = \"proto2\";", "    message M { optional string a = 1; }"));
    }

    #[test]
    fn broken_files_are_rewritten_without_a_panic() {
        let source = "edition = \"2023\"; message M { string ä = 1 [x = {\"a\\\n oneof a { } } } reserved 'a /* b";
        for end in (0..=source.len()).filter(|end| source.is_char_boundary(*end)) {
            let _ = EditionText::of(&source[..end]).map(|text| text.original(0, end));
        }
        let deep = format!("edition = \"2023\"; {}", "message M { string a = 1; ".repeat(100_000));
        rewritten(&deep);
        rewritten(&format!("edition = \"2023\"; message M {{ {} }}", "string a = 1 [x = {}]; ".repeat(10_000)));
    }
}
