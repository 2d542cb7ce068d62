//! Requests, borrowed from the text of their message.
use frpc_json::{Scanner, SyntaxError, text::unescape};

use std::borrow::Cow;

use frpc::Code;

/// A message: a single item or a batch.
#[derive(Debug, PartialEq)]
pub(crate) enum ParsedMessage<'a> {
    One(ParsedItem<'a>),
    Batch(Vec<ParsedItem<'a>>),
    /// A batch with more requests than the limit.
    TooMany,
}

impl ParsedMessage<'_> {
    /// Returns an upper bound for the number of calls started by the message.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Batch(items) => items.len(),
            Self::One(_) | Self::TooMany => 1,
        }
    }
}

/// An element of a message, expected to be a request.
#[derive(Debug, PartialEq)]
pub(crate) enum ParsedItem<'a> {
    Request(ParsedRequest<'a>),
    /// A value other than a valid request, with the reason.
    Invalid {
        id: Option<&'a str>,
        why: &'static str,
    },
    /// An answer. The server sends no requests, so it expects none.
    Answer,
}

/// A request as written by its caller.
#[derive(Debug, PartialEq)]
pub(crate) struct ParsedRequest<'a> {
    /// The JSON text of the id, or `None` for a notification.
    pub(crate) id: Option<&'a str>,
    pub(crate) method: Cow<'a, str>,
    /// The JSON text of an array or an object.
    pub(crate) params: Option<&'a str>,
}

/// Limits on received messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageLimits {
    pub(crate) depth_max: u32,
    pub(crate) batch_len_max: usize,
    pub(crate) message_len_max: usize,
}

/// Reads the message at the beginning of `text`. Returns the message and its length, including leading white space.
#[inline]
pub(crate) fn read(text: &str, limits: MessageLimits) -> Result<(ParsedMessage<'_>, usize), (SyntaxError, usize)> {
    let mut scanner = Scanner::new(text, limits.depth_max);
    let message = read_message(&mut scanner, limits.batch_len_max);
    let at = scanner.position();
    message.map(|message| (message, at)).map_err(|fault| (fault, at))
}

/// The reason for rejecting bytes as a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MessageError {
    pub(crate) why: String,
    pub(crate) code: Code,
}

impl<T: Into<String>> From<T> for MessageError {
    fn from(why: T) -> Self {
        Self { why: why.into(), code: Code::InvalidArgument }
    }
}

/// Reads exactly one message from `bytes`.
///
/// # Errors
///
/// Returns the reason if `bytes` is not a message, is too long, or contains more than one.
pub(crate) fn read_whole(bytes: &[u8], limits: MessageLimits) -> Result<ParsedMessage<'_>, MessageError> {
    if bytes.len() > limits.message_len_max {
        return Err(too_long(limits));
    }
    let text = str::from_utf8(bytes).map_err(|error| format!("not UTF-8 at byte {}", error.valid_up_to()))?;
    match read(text, limits) {
        Ok((_, end)) if !text[end..].trim_ascii().is_empty() => {
            Err(format!("expected nothing after byte {end}").into())
        }
        Ok((message, _)) => Ok(message),
        Err((fault, position)) => Err(format!("{fault} at byte {position}").into()),
    }
}

/// Returns the error for a message above the length limit.
pub(crate) fn too_long(limits: MessageLimits) -> MessageError {
    let why = format!("the message exceeds the limit of {} bytes", limits.message_len_max);
    MessageError { why, code: Code::ResourceExhausted }
}

fn read_message<'a>(scanner: &mut Scanner<'a>, batch_len_max: usize) -> Result<ParsedMessage<'a>, SyntaxError> {
    if scanner.peek() != Some(b'[') {
        return read_item(scanner).map(ParsedMessage::One);
    }
    let mut items = Vec::new();
    let mut is_more = scanner.enter(b']')?;
    if !is_more {
        return Ok(ParsedMessage::One(ParsedItem::Invalid { id: None, why: "a batch must have at least one request" }));
    }
    while is_more {
        // Check the rest as well: if the input is cut off or malformed there, it is not a batch but a parse error.
        let item = read_item(scanner)?;
        if items.len() <= batch_len_max {
            items.push(item);
        }
        is_more = scanner.is_more(b']')?;
    }
    Ok(if items.len() > batch_len_max { ParsedMessage::TooMany } else { ParsedMessage::Batch(items) })
}

/// The members of a request.
#[derive(Default)]
struct RequestMembers<'a> {
    version: Option<&'a str>,
    id: Option<&'a str>,
    method: Option<&'a str>,
    params: Option<&'a str>,
    is_twice: bool,
    is_answer: bool,
}

#[inline]
fn read_item<'a>(scanner: &mut Scanner<'a>) -> Result<ParsedItem<'a>, SyntaxError> {
    if scanner.peek() != Some(b'{') {
        scanner.value()?;
        return Ok(ParsedItem::Invalid { id: None, why: "a request must be an object" });
    }
    let mut members = RequestMembers::default();
    let mut is_more = scanner.enter(b'}')?;
    while is_more {
        let name = scanner.name()?;
        let value = scanner.value()?;
        members.add(name, value);
        is_more = scanner.is_more(b'}')?;
    }
    Ok(members.into_item())
}

impl<'a> RequestMembers<'a> {
    #[inline]
    fn add(&mut self, name: &'a str, value: &'a str) {
        let place = match name {
            "jsonrpc" => &mut self.version,
            "id" => &mut self.id,
            "method" => &mut self.method,
            "params" => &mut self.params,
            "result" | "error" => return self.is_answer = true,
            name if name.contains('\\') => return self.add_escaped(name, value),
            _ => return,
        };
        self.is_twice |= place.replace(value).is_some();
    }

    #[cold]
    fn add_escaped(&mut self, name: &'a str, value: &'a str) {
        match unescape(name).as_deref() {
            Some("jsonrpc") => self.add("jsonrpc", value),
            Some("id") => self.add("id", value),
            Some("method") => self.add("method", value),
            Some("params") => self.add("params", value),
            _ => {}
        }
    }

    #[inline]
    fn into_item(self) -> ParsedItem<'a> {
        let Self { version, id, method, params, is_twice, is_answer } = self;
        let id_is_wrong = id.is_some_and(|id| id.starts_with(['{', '[', 't', 'f']));
        // For a duplicate id, it is unknown which one the caller means, so the error has none.
        let answered = id.filter(|_| !is_twice && !id_is_wrong);
        let invalid = |why| ParsedItem::Invalid { id: answered, why };
        let Some(method) = method else {
            return if is_answer { ParsedItem::Answer } else { invalid("\"method\" is missing") };
        };
        if is_twice {
            return invalid("the request has a duplicate member");
        }
        if id_is_wrong {
            return invalid("\"id\" must be a string, a number or null");
        }
        if version != Some("\"2.0\"") {
            return invalid("\"jsonrpc\" must be \"2.0\"");
        }
        let Some(method) = quoted(method).and_then(unescape) else {
            return invalid("\"method\" must be a string");
        };
        let params = match params {
            Some(params) if params.starts_with(['[', '{']) => Some(params),
            Some("null") | None => None,
            Some(_) => return invalid("\"params\" must be an array or an object"),
        };
        ParsedItem::Request(ParsedRequest { id, method, params })
    }
}

/// Returns the text between the quotes of a JSON string.
#[inline]
fn quoted(value: &str) -> Option<&str> {
    value.strip_prefix('"')?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: MessageLimits = MessageLimits { depth_max: 100, batch_len_max: 2, message_len_max: 1000 };

    fn one(text: &str) -> ParsedItem<'_> {
        match read(text, LIMITS) {
            Ok((ParsedMessage::One(item), _)) => item,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn members_of_a_request_may_have_any_order() {
        let expected = ParsedRequest { id: Some("7"), method: "sum".into(), params: Some("[1, 2]") };
        for text in [
            r#"{"jsonrpc":"2.0","id":7,"method":"sum","params":[1, 2]}"#,
            r#" { "params" : [1, 2] , "method" : "sum" , "id" : 7 , "jsonrpc" : "2.0" } "#,
            r#"{"jsonrpc":"2.0","id":7,"extra":{"id":[8]},"method":"s\u0075m","p\u0061rams":[1, 2]}"#,
        ] {
            let ParsedItem::Request(request) = one(text) else { panic!("{text}") };
            assert_eq!(request, expected);
        }
    }

    #[test]
    fn an_invalid_request_has_a_reason_and_keeps_its_id() {
        let invalid = |text| match one(text) {
            ParsedItem::Invalid { id, why } => (id, why),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(invalid("1"), (None, "a request must be an object"));
        assert_eq!(invalid("[]"), (None, "a batch must have at least one request"));
        let why = |text, id, part| {
            let (found, why) = invalid(text);
            assert!(found == id && why.contains(part), "{text}: {found:?} {why}");
        };
        why(r#"{"id":1}"#, Some("1"), "\"method\"");
        why(r#"{"jsonrpc":"2.0","method":1,"id":2}"#, Some("2"), "method");
        why(r#"{"method":"m","id":1}"#, Some("1"), "jsonrpc");
        why(r#"{"jsonrpc":2.0,"method":"m","id":1}"#, Some("1"), "jsonrpc");
        why(r#"{"jsonrpc":"2.0","method":"m","id":1,"params":5}"#, Some("1"), "params");
        why(r#"{"jsonrpc":"2.0","method":"m","id":{}}"#, None, "id");
        why(r#"{"jsonrpc":"2.0","method":"m","id":1,"id":2}"#, None, "duplicate");
        why(r#"{"jsonrpc":"2.0","method":"m","method":"n","id":1}"#, None, "duplicate");
        why(r#"{"jsonrpc":"2.0","method":"m","m\u0065thod":"n","id":1}"#, None, "duplicate");
        assert_eq!(one(r#"{"jsonrpc":"2.0","result":5,"id":1}"#), ParsedItem::Answer);
    }

    #[test]
    fn batches_are_limited_and_read_completely() {
        let request = r#"{"jsonrpc":"2.0","method":"m"}"#;
        let batch = |requests: &[&str]| format!("[{}]", requests.join(", "));
        let text = batch(&[request, "5"]);
        let Ok((ParsedMessage::Batch(items), end)) = read(&text, LIMITS) else { panic!("{text}") };
        assert!(matches!(&items[..], [ParsedItem::Request(_), ParsedItem::Invalid { .. }]));
        assert_eq!(end, text.len());
        assert_eq!(read(&batch(&[request; 3]), LIMITS).unwrap().0, ParsedMessage::TooMany);
        assert_eq!(read(&text[..text.len() - 1], LIMITS).unwrap_err().0, SyntaxError::Truncated);
        assert!(matches!(read("[1, 2, 3, x]", LIMITS).unwrap_err().0, SyntaxError::Expected(_)));
    }
}
