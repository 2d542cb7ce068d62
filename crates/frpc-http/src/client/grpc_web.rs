//! Trailers of gRPC-Web, sent in the body.

use frpc::{Status, shown};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Parses the trailers at the end of a body: lines of a name, a colon and a value.
pub(super) fn trailers(text: &[u8]) -> Result<HeaderMap, Status> {
    let mut trailers = HeaderMap::new();
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        let pair =
            line.iter().position(|byte| *byte == b':').map(|colon| (&line[..colon], line[colon + 1..].trim_ascii()));
        let pair = pair.and_then(|(name, value)| {
            // Names are converted to lower case.
            Some((HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?))
        });
        let Some((name, value)) = pair else {
            return Err(Status::internal(format!("the server sent an invalid trailer: '{}'", shown(line))));
        };
        if trailers.try_append(name, value).is_err() {
            return Err(Status::internal("the response has too many trailers"));
        }
    }
    Ok(trailers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_are_parsed_as_header_lines() {
        let read = trailers(b"grpc-status: 9\r\nX-Trailer:a: b\nx-trailer: c\r\n").unwrap();
        assert_eq!(read["grpc-status"], "9");
        assert_eq!(read.get_all("x-trailer").iter().collect::<Vec<_>>(), ["a: b", "c"]);
        assert!(trailers(b"").unwrap().is_empty());
    }

    #[test]
    fn an_invalid_trailer_is_quoted_in_part() {
        let status = trailers(&[b"\x1b[2J".to_vec(), vec![b'a'; 10_000]].concat()).unwrap_err();
        assert!(status.message().starts_with("the server sent an invalid trailer: '\\u{1b}[2Jaaa"), "{status}");
        assert!(status.message().len() < 300);
    }

    #[test]
    fn an_invalid_trailer_line_is_an_error() {
        for text in [&b"grpc-status"[..], b"a b: c", b": c", b"a: \x01"] {
            assert!(trailers(text).is_err(), "{text:?}");
        }
    }
}
