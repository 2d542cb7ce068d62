//! Decoding of messages from a byte stream with one of two framings.

use bytes::{Buf, BytesMut};
use frpc_json::{EndFinder, SyntaxError};

use crate::{
    outbox::MessageFraming,
    request::{MessageError, MessageLimits, ParsedMessage, read, read_whole, too_long},
};

/// Received bytes, and the state of their decoding.
#[derive(Debug)]
pub(super) struct InputDecoder {
    pub(super) buffer: BytesMut,
    /// Known once a byte other than white space has arrived.
    framing: Option<MessageFraming>,
    lines: LineFraming,
    /// `true` while discarding the rest of a line with an invalid message.
    is_skipping: bool,
    /// The search for the end of a long, incomplete value.
    ends: Option<EndFinder>,
    /// The length of the next body, after its headers were read.
    body_len: Option<usize>,
    limits: MessageLimits,
}

/// The line format of the peer. With one value per line, reading can continue after an invalid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineFraming {
    Unknown,
    /// The byte after the first value decides.
    AfterFirst,
    Yes,
    No,
}

/// The reason for [`InputDecoder::read`] to return.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    /// All complete messages were read.
    More,
    /// The caller did not take the message. It remains in the buffer.
    NotTaken,
    /// The following bytes are not a message.
    Refused {
        why: MessageError,
        /// `true` if the start of the next message cannot be found.
        is_last: bool,
    },
}

impl InputDecoder {
    pub(super) fn new(limits: MessageLimits) -> Self {
        Self {
            buffer: BytesMut::new(),
            framing: None,
            lines: LineFraming::Unknown,
            is_skipping: false,
            ends: None,
            body_len: None,
            limits,
        }
    }

    /// Returns the framing, recognized by the first byte.
    pub(super) fn framing(&mut self) -> Option<MessageFraming> {
        if self.framing.is_none() {
            let first = self.buffer.iter().find(|byte| !byte.is_ascii_whitespace());
            self.framing = first.map(|byte| match byte {
                b'C' | b'c' => MessageFraming::Headers,
                _ => MessageFraming::Values,
            });
        }
        self.framing
    }

    /// Returns `true` if part of a message has arrived.
    pub(super) fn is_partial(&self) -> bool {
        self.body_len.is_some() || !self.buffer.is_empty() && !self.is_skipping
    }

    /// Passes each complete message and its length to `take`, until `take` returns `false`.
    pub(super) fn read(&mut self, take: impl FnMut(ParsedMessage<'_>, usize) -> bool) -> ReadOutcome {
        match self.framing() {
            None => {
                self.buffer.clear();
                ReadOutcome::More
            }
            Some(MessageFraming::Headers) => self.read_bodies(take),
            Some(_) => self.read_values(take),
        }
    }

    fn read_values(&mut self, mut take: impl FnMut(ParsedMessage<'_>, usize) -> bool) -> ReadOutcome {
        if self.is_skipping {
            let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') else {
                self.buffer.clear();
                return ReadOutcome::More;
            };
            self.buffer.advance(end);
            self.is_skipping = false;
        }
        if let Some(ends) = &mut self.ends {
            if !ends.is_found(&self.buffer) {
                return self.unless_too_long();
            }
            self.ends = None;
        }
        let mut window = WINDOW_LEN;
        loop {
            let len = self.buffer.len().min(window);
            let is_all = len == self.buffer.len();
            match self.read_window(len, &mut take) {
                Ok(_) if is_all => break,
                // No value ends within the window, so examine all of the input.
                Ok(0) => window = usize::MAX,
                Ok(_) => window = WINDOW_LEN,
                Err(stop) => return stop,
            }
        }
        if self.buffer.len() > REREAD_LEN_MAX {
            self.ends.get_or_insert_default().is_found(&self.buffer);
        }
        self.unless_too_long()
    }

    /// Reads the complete values in the first `len` bytes and returns their length. Later bytes are not examined: while
    /// messages wait for room, each call would validate all of them again.
    fn read_window(
        &mut self,
        len: usize,
        take: &mut impl FnMut(ParsedMessage<'_>, usize) -> bool,
    ) -> Result<usize, ReadOutcome> {
        let (text, is_broken) = match str::from_utf8(&self.buffer[..len]) {
            Ok(text) => (text, false),
            Err(error) => {
                let valid = str::from_utf8(&self.buffer[..error.valid_up_to()]).unwrap_or_default();
                (valid, error.error_len().is_some())
            }
        };
        let mut at = 0;
        let fault = loop {
            let blank = text[at..].bytes().position(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(text.len() - at);
            if let (LineFraming::AfterFirst, Some(byte)) = (self.lines, text.as_bytes().get(at + blank)) {
                self.lines = if matches!(byte, b'\n' | b'\r') { LineFraming::Yes } else { LineFraming::No };
            }
            at += text[at..].bytes().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(text.len() - at);
            let rest = &text[at..];
            match rest.as_bytes().first() {
                None if is_broken => break Some((text.len(), "not UTF-8".to_owned())),
                None => break None,
                Some(b'{' | b'[') => {}
                Some(_) => break Some((at, "expected an object or an array".to_owned())),
            }
            match read(rest, self.limits) {
                Ok((_, len)) if len > self.limits.message_len_max => break None,
                Ok((message, len)) => {
                    if !take(message, len) {
                        self.buffer.advance(at);
                        return Err(ReadOutcome::NotTaken);
                    }
                    if self.lines == LineFraming::Unknown {
                        self.lines = if rest[..len].contains('\n') { LineFraming::No } else { LineFraming::AfterFirst };
                    }
                    at += len;
                }
                Err((SyntaxError::Truncated, _)) if is_broken => break Some((text.len(), "not UTF-8".to_owned())),
                Err((SyntaxError::Truncated, _)) => break None,
                Err((fault, position)) => break Some((at + position, format!("{fault} at byte {position}"))),
            }
        };
        let Some((position, why)) = fault else {
            self.buffer.advance(at);
            return Ok(at);
        };
        self.buffer.advance(position);
        let is_last = self.lines != LineFraming::Yes;
        self.is_skipping = !is_last;
        Err(ReadOutcome::Refused { why: why.into(), is_last })
    }

    fn unless_too_long(&self) -> ReadOutcome {
        if self.buffer.len() <= self.limits.message_len_max {
            return ReadOutcome::More;
        }
        ReadOutcome::Refused { why: too_long(self.limits), is_last: true }
    }

    fn read_bodies(&mut self, mut take: impl FnMut(ParsedMessage<'_>, usize) -> bool) -> ReadOutcome {
        loop {
            let len = match self.body_len {
                Some(len) => len,
                None => match self.read_head() {
                    Ok(Some(len)) => len,
                    Ok(None) => return ReadOutcome::More,
                    Err(why) => return ReadOutcome::Refused { why, is_last: true },
                },
            };
            self.body_len = Some(len);
            let Some(body) = self.buffer.get(..len) else { return ReadOutcome::More };
            let why = match read_whole(body, self.limits) {
                Ok(message) => {
                    if !take(message, len) {
                        return ReadOutcome::NotTaken;
                    }
                    None
                }
                Err(why) => Some(why),
            };
            self.buffer.advance(len);
            self.body_len = None;
            if let Some(why) = why {
                return ReadOutcome::Refused { why, is_last: false };
            }
        }
    }

    /// Reads the headers of a message and returns its length.
    fn read_head(&mut self) -> Result<Option<usize>, MessageError> {
        let blank = self.buffer.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(self.buffer.len());
        self.buffer.advance(blank);
        let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n" || pair == b"\n\r") else {
            return if self.buffer.len() > HEAD_LEN_MAX {
                Err("the headers of a message are too long".into())
            } else {
                Ok(None)
            };
        };
        let end_len = if self.buffer[end + 1] == b'\r' { 3 } else { 2 };
        if self.buffer.len() < end + end_len {
            return Ok(None);
        }
        let head = self.buffer.split_to(end + end_len);
        let lines = head[..].split(|byte| *byte == b'\n');
        let mut lengths = lines.filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            line[..colon].trim_ascii().eq_ignore_ascii_case(b"content-length").then(|| line[colon + 1..].trim_ascii())
        });
        let digits = lengths.next().ok_or("the header Content-Length is missing")?;
        let is_number = !digits.is_empty() && digits.len() <= 19 && digits.iter().all(u8::is_ascii_digit);
        let len = str::from_utf8(digits).ok().filter(|_| is_number && lengths.next().is_none());
        let len = len.and_then(|digits| digits.parse().ok()).ok_or("Content-Length must be a single number")?;
        if len > self.limits.message_len_max { Err(too_long(self.limits)) } else { Ok(Some(len)) }
    }
}

/// The maximum length for reparsing an incomplete value each time bytes arrive. Reparsing finds errors as early as
/// possible.
const REREAD_LEN_MAX: usize = 16 << 10;

/// The number of bytes examined at a time, except for longer values.
const WINDOW_LEN: usize = 32 << 10;

/// The maximum length of the headers of a message.
const HEAD_LEN_MAX: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::request::ParsedItem;

    fn input() -> InputDecoder {
        InputDecoder::new(MessageLimits { depth_max: 10, batch_len_max: 10, message_len_max: 100_000 })
    }

    /// Feeds bytes in pieces with these ends, and returns the decoded messages.
    fn fed(input: &mut InputDecoder, bytes: &[u8], ends: &[usize]) -> Vec<String> {
        let (mut seen, mut start) = (Vec::new(), 0);
        for end in ends.iter().copied().chain([bytes.len()]) {
            input.buffer.extend_from_slice(&bytes[start..end]);
            start = end;
            loop {
                let stop = input.read(|message, _| {
                    seen.push(match message {
                        ParsedMessage::One(ParsedItem::Request(request)) => request.method.into_owned(),
                        ParsedMessage::One(ParsedItem::Invalid { .. }) => "invalid".to_owned(),
                        other => format!("{other:?}"),
                    });
                    true
                });
                match stop {
                    ReadOutcome::Refused { is_last: true, .. } => {
                        seen.push("last".to_owned());
                        return seen;
                    }
                    ReadOutcome::Refused { is_last: false, .. } => seen.push("refused".to_owned()),
                    _ => break,
                }
            }
        }
        seen
    }

    fn request(name: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","method":"{name}"}}"#)
    }

    fn headers(body: &str) -> String {
        format!("Content-Length: {}\r\n\r\n{body}", body.len())
    }

    #[test]
    fn every_framing_is_read_for_any_split() {
        let (a, b, c) = (request("ä"), request("b"), request("c"));
        let cases = [
            (format!("{a}{b} {c}"), "ä b c"),
            (format!("\r\n {a}\n{b}\r\n{c}\n"), "ä b c"),
            (format!("{a}\nbroken {{}} \n{b}{c}"), "ä refused b c"),
            (format!("{a}\n{{\"x\"; {c}\n{b}\n"), "ä refused b"),
            (format!("{a} {{\"x\"; {c}\n{b}\n"), "ä last"),
            (format!("{{\"x\"; {c}\n{b}\n"), "last"),
            (format!("{a}\n{{}}\n{b}"), "ä invalid b"),
            (format!("{}{}{}", headers(&a), headers(&b), headers(&c)), "ä b c"),
            (format!("content-type: x\r\nCONTENT-LENGTH:{}\r\n\r\n{a}{}", a.len(), headers(&b)), "ä b"),
            (format!("Content-Length: {}\n\n{a}{}", a.len(), headers("{\"x\"")), "ä refused"),
            (format!("{}{}", headers("{} {}"), headers(&a)), "refused ä"),
            (format!("{}Content-Type: x\r\n\r\n{b}", headers(&a)), "ä last"),
            ("Content-Length: -1\r\n\r\n".to_owned(), "last"),
            ("Content-Length: 100001\r\n\r\n".to_owned(), "last"),
        ];
        for (text, expected) in cases {
            for at in 0..=text.len() {
                assert_eq!(fed(&mut input(), text.as_bytes(), &[at]).join(" "), expected, "{text} cut at {at}");
            }
            let each: Vec<usize> = (1..text.len()).collect();
            assert_eq!(fed(&mut input(), text.as_bytes(), &each).join(" "), expected, "{text} byte by byte");
        }
    }

    #[test]
    fn invalid_utf8_is_rejected() {
        let bad = |bytes: &[u8]| [&b"{\"jsonrpc\":\"2.0\",\"method\":\""[..], bytes, b"\"}"].concat();
        let first = request("a") + "\n";
        for bytes in [&b"\xff"[..], b"\xc3\x28", b"\xed\xa0\x80", b"\xf8\x88\x80\x80"] {
            let lines = [first.as_bytes(), &bad(bytes), b"\n", request("b").as_bytes()].concat();
            for at in 0..lines.len() {
                assert_eq!(fed(&mut input(), &lines, &[at]), ["a", "refused", "b"], "cut at {at}");
            }
            let body = [format!("Content-Length: {}\r\n\r\n", bad(bytes).len()).as_bytes(), &bad(bytes)].concat();
            assert_eq!(fed(&mut input(), &body, &[]), ["refused"]);
        }
    }

    #[test]
    fn a_long_value_is_scanned_in_linear_time() {
        let long = format!(r#"{{"jsonrpc":"2.0","params":["{}\"]}}"],"method":"long"}}"#, "x{[\\\\".repeat(10_000));
        let text = long.clone() + &request("b");
        let pieces: Vec<usize> = (1..text.len()).step_by(100).collect();
        assert_eq!(fed(&mut input(), text.as_bytes(), &pieces), ["long", "b"]);
        let too_long = long.replace("long", &"l".repeat(50_000));
        let pieces: Vec<usize> = (1..too_long.len()).step_by(1000).collect();
        assert_eq!(fed(&mut input(), too_long.as_bytes(), &pieces), ["last"]);
        assert_eq!(fed(&mut input(), too_long.as_bytes(), &[]), ["last"]);
    }

    #[test]
    fn values_are_read_across_window_boundaries() {
        let one = request("ä");
        for pad in 0..one.len() {
            let text = " ".repeat(pad) + &one.repeat(2500);
            let read = fed(&mut input(), text.as_bytes(), &[]);
            assert!(read.len() == 2500 && read.iter().all(|name| name == "ä"), "{} values", read.len());
            let blank = " ".repeat(WINDOW_LEN - pad) + &one;
            assert_eq!(fed(&mut input(), blank.as_bytes(), &[]), ["ä"]);
        }
        let wrong = one.repeat(2500) + "{]" + &one;
        assert_eq!(fed(&mut input(), wrong.as_bytes(), &[]).last().unwrap(), "last");
    }

    #[test]
    fn an_untaken_message_stays_in_the_buffer() {
        for text in [request("a") + &request("b"), headers(&request("a")) + &headers(&request("b"))] {
            let mut input = input();
            input.buffer.extend_from_slice(text.as_bytes());
            let mut count = 0;
            let stop = input.read(|_, _| {
                count += 1;
                count < 2
            });
            assert_eq!((stop, count), (ReadOutcome::NotTaken, 2));
            assert_eq!(fed(&mut input, b"", &[]), ["b"]);
        }
    }

    proptest! {
        #[test]
        fn any_split_of_the_input_reads_the_same(
            pieces in prop::collection::vec("(\\{\"jsonrpc\":\"2.0\",\"method\":\"m\"|\\}|\\[|\\]|,|1|tru|e|\"|\\\\|\n| |Content-Length: 3\r\n\r\n|ü)", 0..20),
            cuts in prop::collection::vec(0_usize..400, 0..6),
        ) {
            let text = pieces.concat();
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut <= text.len()).collect();
            cuts.sort_unstable();
            prop_assert_eq!(fed(&mut input(), text.as_bytes(), &cuts), fed(&mut input(), text.as_bytes(), &[]));
        }
    }
}
