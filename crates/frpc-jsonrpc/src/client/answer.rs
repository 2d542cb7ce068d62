//! Messages of a server: answers and notifications.

use frpc::{Status, shown};
use frpc_json::{DEPTH_MAX, Scanner, SyntaxError};

use crate::failure::read_status;

/// A message of a server, borrowed from its text.
#[derive(Debug, Default)]
pub(super) struct ServerMessage<'a> {
    /// The JSON text of the id, or `None` for a notification.
    pub(super) id: Option<&'a str>,
    pub(super) result: Option<&'a str>,
    pub(super) error: Option<&'a str>,
    pub(super) params: Option<&'a str>,
    /// `true` for requests and notifications of the server.
    has_method: bool,
}

/// Reads an object and passes the name and value of each member to `tell`.
pub(super) fn members<'a>(text: &'a str, mut tell: impl FnMut(&'a str, &'a str)) -> Result<(), SyntaxError> {
    let mut scanner = Scanner::new(text, DEPTH_MAX);
    if scanner.peek() != Some(b'{') {
        return Err(SyntaxError::Expected("an object"));
    }
    let mut is_more = scanner.enter(b'}')?;
    while is_more {
        let name = scanner.name()?;
        tell(name, scanner.value()?);
        is_more = scanner.is_more(b'}')?;
    }
    Ok(())
}

impl<'a> ServerMessage<'a> {
    pub(super) fn read(text: &'a str) -> Result<Self, SyntaxError> {
        let mut answer = Self::default();
        members(text, |name, value| match name {
            "id" => answer.id = Some(value),
            "result" => answer.result = Some(value),
            "error" => answer.error = Some(value).filter(|error| *error != "null"),
            "params" => answer.params = Some(value),
            "method" => answer.has_method = true,
            _ => {}
        })?;
        Ok(answer)
    }

    /// Returns the error of an answer without an id. The server could not read some request.
    pub(super) fn refusal(&self) -> Option<Status> {
        match (self.id, self.error) {
            (Some("null") | None, Some(error)) => Some(read_status(error)),
            _ => None,
        }
    }

    /// Returns `true` for an answer to a call, also for one without an outcome.
    pub(super) fn is_answer(&self) -> bool {
        self.result.is_some() || self.error.is_some() || self.id.is_some() && !self.has_method
    }

    /// Returns the id of the answered call, if calls have the ids from 1 to `last`.
    ///
    /// Some servers return the number as text. It means the same call, because no id of ours is text.
    ///
    /// # Errors
    ///
    /// No call has this id, so the answer to some call is lost.
    pub(super) fn call_id(&self, last: u64) -> Result<u64, String> {
        let number = self.id.map(|id| id.strip_prefix('"').and_then(|id| id.strip_suffix('"')).unwrap_or(id));
        let id = number.and_then(|number| number.parse().ok()).filter(|id| (1..=last).contains(id));
        id.ok_or_else(|| match self.id {
            None => "an answer has no id".to_owned(),
            Some(id) => format!("an answer has the id {}, which no call has", shown(id)),
        })
    }

    /// Returns the JSON text of the result, or the error as a status.
    pub(super) fn outcome(&self) -> Result<&'a str, Status> {
        match (self.error, self.result) {
            (Some(error), _) => Err(read_status(error)),
            (None, Some(result)) => Ok(result),
            (None, None) => Err(Status::internal("the server answered with neither a result nor an error")),
        }
    }
}

/// Encodes the request for a call with `message` as its params. An empty message omits the params.
///
/// # Errors
///
/// Returns [`Unimplemented`](frpc::Code::Unimplemented) if `message` is neither a JSON object nor an array, as for
/// wrapper types and timestamps, and [`InvalidArgument`](frpc::Code::InvalidArgument) if it is not valid JSON. Invalid
/// messages are not sent: the error of the server would have no id, so it would match no call.
pub(super) fn request(id: u64, method: &frpc::Method, message: &[u8]) -> Result<Vec<u8>, Status> {
    if !matches!(message.first(), None | Some(b'{' | b'[')) {
        let why = format!(
            "{method} takes a message that is neither an object nor an array in JSON; JSON-RPC cannot carry it"
        );
        return Err(Status::unimplemented(why));
    }
    check(message)
        .map_err(|why| Status::invalid_argument(format!("the message for {method} is not valid JSON: {why}")))?;
    let mut text = Vec::with_capacity(message.len() + REQUEST_LEN);
    text.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":");
    if method.service.is_empty() {
        // The name of a function may contain any characters, so it needs escaping.
        serde_json::to_writer(&mut text, method.name).map_err(|error| Status::internal(error.to_string()))?;
    } else {
        text.push(b'"');
        text.extend_from_slice(method.service.as_bytes());
        text.push(b'/');
        text.extend_from_slice(method.name.as_bytes());
        text.push(b'"');
    }
    if !message.is_empty() {
        text.extend_from_slice(b",\"params\":");
        text.extend_from_slice(message);
    }
    text.extend_from_slice(b",\"id\":");
    text.extend_from_slice(id.to_string().as_bytes());
    text.push(b'}');
    Ok(text)
}

/// Checks that `message` is exactly one JSON value, or empty.
fn check(message: &[u8]) -> Result<(), String> {
    let text = str::from_utf8(message).map_err(|error| error.to_string())?;
    // The request object adds a level.
    let mut scanner = Scanner::new(text, DEPTH_MAX - 1);
    if !text.is_empty() {
        scanner.value().map_err(|fault| fault.to_string())?;
    }
    match text[scanner.position()..].trim_ascii() {
        "" => Ok(()),
        _ => Err("expected nothing after the value".to_owned()),
    }
}

/// The usual length of a request without its message.
const REQUEST_LEN: usize = 120;

#[cfg(test)]
mod tests {
    use frpc::Method;

    use super::*;

    #[test]
    fn an_answer_names_a_call_by_its_number() {
        let id = |id: &str| ServerMessage { id: Some(id), ..ServerMessage::default() }.call_id(12).ok();
        for (text, found) in [("1", 1), ("12", 12), ("\"1\"", 1), ("\"12\"", 12)] {
            assert_eq!(id(text), Some(found), "{text}");
        }
        for text in
            ["0", "13", "-1", "1.5", "null", "true", "\"\"", "\"", "\"a\"", "\"\"1\"\"", "[1]", "99999999999999999999"]
        {
            assert_eq!(id(text), None, "{text}");
        }
        assert_eq!(ServerMessage::default().call_id(12), Err("an answer has no id".to_owned()));
    }

    #[test]
    fn a_method_without_a_service_has_a_bare_name() {
        let text = |method: Method| String::from_utf8(request(1, &method, b"[]").unwrap()).unwrap();
        let rest = r#","params":[],"id":1}"#;
        for (method, name) in [
            (Method::unary("a.A", "Do", 0), r#""a.A/Do""#),
            (Method::unary("", "rpc.discover", 0), r#""rpc.discover""#),
            (Method::unary("", "\"odd\"", 0), r#""\"odd\"""#),
        ] {
            assert_eq!(text(method), format!(r#"{{"jsonrpc":"2.0","method":{name}{rest}"#));
        }
    }
}
