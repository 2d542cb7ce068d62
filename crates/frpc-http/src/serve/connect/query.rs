//! GET requests of Connect: the parameters in the query of their URL.

use std::borrow::Cow;

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use bytes::Bytes;
use frpc::Status;

/// The query parameters of Connect. The first of several with the same name counts. Unknown parameters are ignored.
#[derive(Debug, Default)]
pub(crate) struct ConnectQuery<'a> {
    /// The format of the message.
    pub(crate) encoding: Option<Cow<'a, [u8]>>,
    /// The compression of the message.
    pub(crate) compression: Option<Cow<'a, [u8]>>,
    /// The protocol version.
    pub(crate) connect: Option<Cow<'a, [u8]>>,
    base64: Option<Cow<'a, [u8]>>,
    message: Option<Cow<'a, [u8]>>,
}

impl<'a> ConnectQuery<'a> {
    /// Parses the query of a URL, without the question mark.
    pub(crate) fn parse(query: &'a str) -> Self {
        let mut parsed = Self::default();
        for parameter in query.split('&') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let place = match name {
                "base64" => &mut parsed.base64,
                "compression" => &mut parsed.compression,
                "connect" => &mut parsed.connect,
                "encoding" => &mut parsed.encoding,
                "message" => &mut parsed.message,
                _ => continue,
            };
            place.get_or_insert_with(|| decode(value));
        }
        parsed
    }

    /// Returns the message, which may be compressed.
    ///
    /// # Errors
    ///
    /// If the message is missing or is not valid base64.
    pub(crate) fn message(&self) -> Result<Bytes, Status> {
        let message =
            self.message.as_deref().ok_or_else(|| Status::invalid_argument("the parameter 'message' is missing"))?;
        if self.base64.as_deref() != Some(b"1") {
            return Ok(Bytes::copy_from_slice(message));
        }
        let decoded = BASE64_URL.decode(message);
        let decoded =
            decoded.map_err(|_| Status::invalid_argument("the parameter 'message' is not URL-safe base64"))?;
        Ok(decoded.into())
    }
}

/// Percent-decodes a value. Keeps invalid escapes unchanged.
fn decode(value: &str) -> Cow<'_, [u8]> {
    if !value.contains(['%', '+']) {
        return value.as_bytes().into();
    }
    let mut decoded = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        match (first, behind) {
            (b'+', _) => decoded.push(b' '),
            (b'%', [high, low, behind @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                decoded.push(digit(*high) << 4 | digit(*low));
                rest = behind;
            }
            _ => decoded.push(*first),
        }
    }
    decoded.into()
}

fn digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        _ => (byte | 0x20) - b'a' + 10,
    }
}

/// Accepts padded and unpadded values.
const BASE64_URL: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn query_parameters_may_have_any_order() {
        let query =
            ConnectQuery::parse("x=1&message=%7B%22a%22%3A+1%7d&encoding=json&encoding=proto&connect=v1&utm&&=");
        assert_eq!(query.encoding.as_deref(), Some(&b"json"[..]));
        assert_eq!(query.connect.as_deref(), Some(&b"v1"[..]));
        assert_eq!(query.compression, None);
        assert_eq!(query.message().unwrap(), r#"{"a": 1}"#);
    }

    #[test]
    fn messages_in_urls_may_be_base64_with_or_without_padding() {
        for message in ["_-8", "_-8%3D", "_-8="] {
            assert_eq!(
                ConnectQuery::parse(&format!("base64=1&message={message}")).message().unwrap(),
                &[0xff, 0xef][..]
            );
        }
        assert_eq!(ConnectQuery::parse("message=&base64=1").message().unwrap(), "");
        assert_eq!(ConnectQuery::parse("message=AQ&base64=true").message().unwrap(), "AQ", "another value is ignored");
        for query in ["", "encoding=proto", "message=%3F&base64=1", "message=/w&base64=1"] {
            assert_eq!(
                ConnectQuery::parse(query).message().unwrap_err().code(),
                frpc::Code::InvalidArgument,
                "{query}"
            );
        }
    }

    #[test]
    fn invalid_escapes_are_kept() {
        assert_eq!(ConnectQuery::parse("message=%4&encoding=%zz%41%").message().unwrap(), "%4");
        assert_eq!(ConnectQuery::parse("encoding=%zz%41%").encoding.as_deref(), Some(&b"%zzA%"[..]));
    }

    proptest! {
        #[test]
        fn arbitrary_queries_are_parsed(query: String) {
            let _ = ConnectQuery::parse(&query).message();
        }
    }
}
