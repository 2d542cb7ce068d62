//! Detection of other protocols by their first bytes, for clear error messages.

use super::header::HeaderFormat;
use crate::error::ForeignProtocol;

impl ForeignProtocol {
    /// Detects another protocol from the first bytes of a connection. No known frisbee peer starts with these
    /// bytes.
    ///
    /// If a magic number is expected, two bytes are enough for a guess.
    pub(crate) fn recognize(format: Option<HeaderFormat>, first: &[u8]) -> Option<Self> {
        match first {
            // A handshake record with a ClientHello, and an alert record of two bytes.
            [0x16, 3, 0..=4, _, _, 1, ..] => Some(Self::TlsClient),
            [0x15, 3, 0..=4, 0, 2, ..] => Some(Self::TlsServer),
            _ if first.starts_with(b"PRI ") => Some(Self::Http2Client),
            _ if first.starts_with(b"HTTP") => Some(Self::Http1Server),
            _ if REQUESTS.iter().any(|begin| first.starts_with(begin)) => Some(Self::Http1Client),
            [a, b, ..] if format == Some(HeaderFormat::Magic10) => Self::guess([*a, *b]),
            _ => None,
        }
    }

    fn guess(first: [u8; 2]) -> Option<Self> {
        match &first {
            [0x16, 3] => Some(Self::TlsClient),
            [0x15, 3] => Some(Self::TlsServer),
            // The length of a SETTINGS or GOAWAY frame below 65,536.
            [0, 0] => Some(Self::Http2Server),
            b"PR" => Some(Self::Http2Client),
            b"HT" => Some(Self::Http1Server),
            _ if REQUESTS.iter().any(|begin| begin.starts_with(&first)) => Some(Self::Http1Client),
            _ => None,
        }
    }
}

/// The first bytes of HTTP requests.
const REQUESTS: [&[u8]; 9] = [b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC"];

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLES: [(&[u8], ForeignProtocol); 6] = [
        (&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3], ForeignProtocol::TlsClient),
        (&[0x15, 3, 3, 0, 2, 2, 0x46], ForeignProtocol::TlsServer),
        (b"POST /hello.Greeter/SayHello HTTP/1.1\r\n", ForeignProtocol::Http1Client),
        (b"HTTP/1.1 400 Bad Request\r\n", ForeignProtocol::Http1Server),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ForeignProtocol::Http2Client),
        (&[0, 0, 18, 4, 0, 0, 0, 0, 0], ForeignProtocol::Http2Server),
    ];

    #[test]
    fn two_bytes_identify_foreign_protocols_with_magic() {
        let recognize = |bytes| ForeignProtocol::recognize(Some(HeaderFormat::Magic10), bytes);
        for (bytes, expected) in SAMPLES {
            assert_eq!(recognize(&bytes[..1]), None, "{bytes:?}");
            for len in 2..=bytes.len() {
                assert_eq!(recognize(&bytes[..len]), Some(expected), "{:?}", &bytes[..len]);
            }
        }
        assert_eq!(recognize(&[0, 0x0f]), None);
        assert_eq!(recognize(&[0, 1]), None);
    }

    #[test]
    fn a_header_identifies_foreign_protocols_without_magic() {
        for format in [None, Some(HeaderFormat::Plain8)] {
            for (bytes, expected) in SAMPLES {
                let front = &bytes[..bytes.len().min(8)];
                // A packet without a magic number may start like an HTTP/2 frame.
                let expected = Some(expected).filter(|foreign| *foreign != ForeignProtocol::Http2Server);
                assert_eq!(ForeignProtocol::recognize(format, front), expected, "{front:?}");
            }
        }
    }
}
