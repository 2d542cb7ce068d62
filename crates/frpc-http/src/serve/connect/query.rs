//! GET requests of Connect: the parameters in the query of their URL.

use std::borrow::Cow;

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use bytes::Bytes;
use frpc::Status;

use crate::headers::percent;

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
    percent::decode_bytes(value.replace('+', " ").as_bytes()).into()
}

/// Accepts padded and unpadded values.
const BASE64_URL: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
