//! The server's response to a handshake.

use std::io;

use frpc::shown;
use http::StatusCode;

/// Reads the response at the beginning of `bytes` and returns its length, or `None` if it is incomplete.
///
/// # Errors
///
/// Returns an error if the server does not accept the handshake as requested.
pub(super) fn read(bytes: &[u8], accept: &str, subprotocol: Option<&str>) -> io::Result<Option<usize>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut answer = httparse::Response::new(&mut headers);
    let parsed = answer.parse(bytes).map_err(|error| invalid(format!("the server does not speak HTTP: {error}")))?;
    let httparse::Status::Complete(len) = parsed else {
        if bytes.len() >= HEAD_LEN_MAX {
            return Err(invalid(format!("the response head is longer than {HEAD_LEN_MAX} bytes")));
        }
        return Ok(None);
    };
    let values = |name: &'static str| {
        let found = answer.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
        found.flat_map(|header| header.value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
    };
    let status = answer.code.and_then(|code| StatusCode::from_u16(code).ok());
    if status != Some(StatusCode::SWITCHING_PROTOCOLS) {
        return Err(refusal(status, &bytes[len..]));
    }
    let has = |name, word: &[u8]| values(name).any(|value| value.eq_ignore_ascii_case(word));
    if !has("upgrade", b"websocket") || !has("connection", b"upgrade") {
        return Err(invalid("the server switched to something other than WebSocket".to_owned()));
    }
    if !values("sec-websocket-accept").eq([accept.as_bytes()]) {
        return Err(invalid("the response has a wrong sec-websocket-accept header".to_owned()));
    }
    if values("sec-websocket-extensions").next().is_some() {
        return Err(invalid("the server uses an extension that was not offered".to_owned()));
    }
    match (values("sec-websocket-protocol").next(), subprotocol) {
        (None, None) => {}
        (Some(chosen), Some(offered)) if chosen == offered.as_bytes() => {}
        (Some(chosen), _) => {
            let chosen = shown(chosen);
            return Err(invalid(format!("the server chose the subprotocol \"{chosen}\", which was not offered")));
        }
        (None, Some(offered)) => {
            return Err(invalid(format!("the server accepted the WebSocket, but not the subprotocol {offered}")));
        }
    }
    Ok(Some(len))
}

/// Returns the error for a refused handshake, with the first line of the response body.
fn refusal(status: Option<StatusCode>, body: &[u8]) -> io::Error {
    let status = status.unwrap_or_default();
    let line = body.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let words = shown(line.trim_ascii());
    let text = format!("the server refused the WebSocket: {status}{}{words}", if words.is_empty() { "" } else { ": " });
    // Only overload and server failures are worth a retry. Other errors have a final kind.
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        return io::Error::new(io::ErrorKind::ConnectionRefused, text);
    }
    invalid(text)
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// The maximum length of a response header.
pub(super) const HEAD_LEN_MAX: usize = 16 * 1024;

const HEADERS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n\
                          Sec-WebSocket-Accept: abc=\r\nSec-WebSocket-Protocol: frpc\r\n\r\n";

    #[test]
    fn a_response_is_read_when_complete() {
        for end in 0..ANSWER.len() {
            assert_eq!(read(&ANSWER.as_bytes()[..end], "abc=", Some("frpc")).unwrap(), None);
        }
        let more = format!("{ANSWER}more");
        assert_eq!(read(more.as_bytes(), "abc=", Some("frpc")).unwrap(), Some(ANSWER.len()));
    }

    #[test]
    fn an_invalid_response_says_why() {
        for (from, to, why) in [
            ("abc=", "abd=", "a wrong sec-websocket-accept"),
            ("WebSocket\r", "h2c\r", "something other than WebSocket"),
            ("Upgrade\r", "close\r", "something other than WebSocket"),
            ("l: frpc", "l: chat", "chose the subprotocol \"chat\""),
            ("l: frpc", "l: \u{9b}2J\u{202e}", "chose the subprotocol \"\\u{9b}2J\\u{202e}\""),
            ("Sec-WebSocket-Protocol: frpc\r\n", "", "not the subprotocol frpc"),
            ("-Protocol: frpc", "-Extensions: permessage-deflate", "an extension"),
            ("101 Switching Protocols", "403 Forbidden", "refused the WebSocket: 403 Forbidden: no entry"),
            ("HTTP/1.1 101", "SSH-2.0", "does not speak HTTP"),
        ] {
            let answer = format!("{}no entry\nat all", ANSWER.replace(from, to));
            let error = read(answer.as_bytes(), "abc=", Some("frpc")).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
        let refusal = |body: &[u8]| {
            let answer = [b"HTTP/1.1 403 No\r\n\r\n", body].concat();
            read(&answer, "", None).unwrap_err().to_string()
        };
        let escaped = refusal(b" \x1b[2J\0\xc2\x9b\xff\rnext");
        assert_eq!(escaped, "the server refused the WebSocket: 403 Forbidden: \\u{1b}[2J\\0\\u{9b}\u{fffd}");
        assert!(refusal(&[b'a'; 10_000]).len() < 300);
        let long = ANSWER.replace("l: frpc", &format!("l: {}", "a".repeat(10_000)));
        assert!(read(long.as_bytes(), "abc=", Some("frpc")).unwrap_err().to_string().len() < 300);
        let busy = ANSWER.replace("101", "503");
        assert_eq!(read(busy.as_bytes(), "", None).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let endless = format!("HTTP/1.1 101 a\r\na: {}", "b".repeat(HEAD_LEN_MAX));
        assert!(read(endless.as_bytes(), "", None).unwrap_err().to_string().contains("longer than"));
    }
}
