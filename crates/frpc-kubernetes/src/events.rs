//! The lines of a watch.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use frpc::shown;
use serde::{Deserialize, de::DeserializeOwned};

use crate::slices::ApiObject;

/// An event of a watch.
#[derive(Debug, Deserialize)]
pub(crate) struct WatchEvent {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) object: ApiObject,
}

/// Splits the bytes of a watch into events, one a line.
#[derive(Debug)]
pub(crate) struct EventLines {
    buffer: BytesMut,
    /// The length of the part without the end of a line.
    searched: usize,
    len_max: usize,
    objects_max: usize,
}

impl EventLines {
    pub(crate) fn new(len_max: usize, objects_max: usize) -> Self {
        Self { buffer: BytesMut::new(), searched: 0, len_max, objects_max }
    }

    pub(crate) fn push(&mut self, bytes: &Bytes) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next event, or `None` if its line is not complete yet.
    pub(crate) fn next_event(&mut self) -> io::Result<Option<WatchEvent>> {
        loop {
            let end = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
            let len = end.map_or(self.buffer.len(), |end| self.searched + end);
            if len > self.len_max {
                return Err(invalid(format!("an event of the watch is longer than {} bytes", self.len_max)));
            }
            if end.is_none() {
                self.searched = len;
                return Ok(None);
            }
            let line = self.buffer.split_to(len);
            self.buffer.advance(1);
            self.searched = 0;
            if !line.trim_ascii().is_empty() {
                return parse("an event of the watch", &line, self.objects_max).map(Some);
            }
        }
    }
}

/// Parses JSON with a limited number of objects. Errors of the parser may quote the text of the server, so they are escaped.
pub(crate) fn parse<T: DeserializeOwned>(what: &str, json: &[u8], objects_max: usize) -> io::Result<T> {
    // An empty object takes two bytes of text, and many more in memory.
    if json.iter().filter(|byte| **byte == b'{').count() > objects_max {
        return Err(invalid(format!("{what} has more than {objects_max} objects")));
    }
    serde_json::from_slice(json).map_err(|error| invalid(format!("{what} is not valid: {}", shown(error.to_string()))))
}

pub(crate) fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_limited() {
        let parse = |len| {
            let list = format!("{{\"endpoints\":[{}]}}", vec!["{}"; len].join(","));
            parse::<ApiObject>("it", list.as_bytes(), 10)
        };
        assert!(parse(9).is_ok());
        let error = parse(10).unwrap_err();
        assert!(error.to_string().contains("more than 10 objects"), "{error}");
    }

    #[test]
    fn events_are_split_at_lines_wherever_their_bytes_arrive() {
        let text =
            "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}\n\r\n{\"type\":\"BOOKMARK\"}\n{\"ty";
        for len in 1..text.len() {
            let mut lines = EventLines::new(100, 10);
            let mut kinds = Vec::new();
            for part in text.as_bytes().chunks(len) {
                lines.push(&Bytes::copy_from_slice(part));
                while let Some(event) = lines.next_event().unwrap() {
                    kinds.push(event.kind + &event.object.metadata.name);
                }
            }
            assert_eq!(kinds, ["ADDEDa", "BOOKMARK"]);
        }
    }

    #[test]
    fn long_and_malformed_lines_are_errors() {
        let mut lines = EventLines::new(8, 10);
        lines.push(&Bytes::from_static(b"12345678"));
        assert!(lines.next_event().unwrap().is_none());
        lines.push(&Bytes::from_static(b"9"));
        assert!(lines.next_event().unwrap_err().to_string().contains("longer than 8 bytes"));
        let mut lines = EventLines::new(100, 10);
        for line in ["{}\n", "[1]\n", "\"\n", "{\"type\":1}\n", "{\"type\":\"ADDED\",\"object\":{\"endpoints\":7}}\n"] {
            lines.push(&Bytes::copy_from_slice(line.as_bytes()));
            assert!(lines.next_event().is_err(), "{line}");
        }
    }
}
