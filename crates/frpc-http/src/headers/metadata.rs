//! Conversion between metadata and headers or trailers.
//!
//! Values of names with the suffix `-bin` are base64, with or without padding. A header may contain several values,
//! separated by commas.

use std::borrow::Cow;

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use frpc::{Metadata, MetadataValue, Status, shown};
use http::{HeaderMap, HeaderName, HeaderValue, header::CONTENT_LENGTH};

/// Writes without padding, as the protocols recommend, and reads both forms.
pub(crate) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_encode_padding(false).with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Reads metadata from headers or trailers.
///
/// Leaves out names used by the protocols, and values that are not printable ASCII.
///
/// # Errors
///
/// If a value of a `-bin` name is not base64.
pub(crate) fn from_headers(headers: &HeaderMap) -> Result<Metadata, Status> {
    from_headers_except(headers, &CONTENT_LENGTH)
}

/// Reads metadata from headers or trailers, leaving out one more name.
///
/// # Errors
///
/// If a value of a `-bin` name is not base64.
pub(crate) fn from_headers_except(headers: &HeaderMap, left_out: &HeaderName) -> Result<Metadata, Status> {
    let mut metadata = Metadata::new();
    for (name, value) in headers {
        if name != left_out && !is_reserved(name.as_str()) {
            append(&mut metadata, name.as_str(), value.as_bytes())?;
        }
    }
    Ok(metadata)
}

/// Adds the values of one header, except values that metadata cannot hold.
///
/// # Errors
///
/// If a value of a `-bin` name is not base64.
pub(crate) fn append(metadata: &mut Metadata, name: &str, value: &[u8]) -> Result<(), Status> {
    if !name.ends_with("-bin") {
        // Handlers must not see names used by HTTP itself, nor values that gRPC forbids.
        let _ = metadata.append_received(name.as_bytes(), without_blanks(value));
        return Ok(());
    }
    for part in value.split(|byte| *byte == b',') {
        let decoded = BASE64.decode(part.trim_ascii());
        let decoded =
            decoded.map_err(|_| Status::invalid_argument(format!("the value of {} is not base64", shown(name))))?;
        let _ = metadata.append_bin(name, decoded);
    }
    Ok(())
}

fn without_blanks(mut value: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] | [rest @ .., b' '] = value {
        value = rest;
    }
    value
}

/// Adds metadata to headers or trailers, with a prefix before each name. Leaves out names used by the protocols.
pub(crate) fn extend(headers: &mut HeaderMap, metadata: &Metadata, prefix: &str) {
    for (name, value) in metadata.iter() {
        if is_reserved(name) {
            continue;
        }
        let name = if prefix.is_empty() {
            HeaderName::from_bytes(name.as_bytes())
        } else {
            HeaderName::try_from(format!("{prefix}{name}"))
        };
        let value = match value {
            MetadataValue::Ascii(text) => HeaderValue::from_str(text),
            MetadataValue::Binary(bytes) => HeaderValue::try_from(BASE64.encode(bytes)),
        };
        // Metadata has stricter rules for names and values than HTTP. Only the limit of 32,768 headers can fail here.
        if let (Ok(name), Ok(value)) = (name, value)
            && headers.try_append(name, value).is_err()
        {
            return;
        }
    }
}

/// Returns the values of a name as text. Binary values are base64, as in headers.
pub(crate) fn texts<'a>(metadata: &'a Metadata, name: &str) -> Vec<Cow<'a, str>> {
    let values = metadata.iter().filter(|(key, _)| *key == name).map(|(_, value)| match value {
        MetadataValue::Ascii(text) => text.into(),
        MetadataValue::Binary(bytes) => BASE64.encode(bytes).into(),
    });
    values.collect()
}

/// Returns `true` if the protocols use this name themselves. [`Metadata`] also refuses names reserved by gRPC and HTTP.
pub(crate) fn is_reserved(name: &str) -> bool {
    name.starts_with("grpc-") && !Metadata::OF_RETRIES.contains(&name)
        || matches!(
            name,
            "accept-encoding"
                | "connect-accept-encoding"
                | "connect-content-encoding"
                | "connect-protocol-version"
                | "connect-timeout-ms"
                | "content-encoding"
                | "content-length"
                | "content-type"
                | "host"
                | "te"
        )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(pairs: &[(&'static str, &[u8])]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &[u8])| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn protocol_headers_are_no_metadata() {
        let mut all = headers(&[
            ("grpc-timeout", b"1S"),
            ("content-type", b"application/grpc"),
            ("te", b"trailers"),
            ("host", b"there"),
            ("connect-timeout-ms", b"1"),
            ("accept-encoding", b"gzip"),
            ("x-text", b"caf\xc3\xa9"),
            ("user-agent", b"curl"),
            ("x-request-id", b"7, 8"),
        ]);
        let read = from_headers(&all).unwrap();
        assert_eq!(read.keys().collect::<Vec<_>>(), ["user-agent", "x-request-id"]);
        assert_eq!(read.get("x-request-id"), Some("7, 8"));

        all.clear();
        extend(&mut all, &read, "trailer-");
        assert_eq!(all, headers(&[("trailer-user-agent", b"curl"), ("trailer-x-request-id", b"7, 8")]));
    }

    proptest! {
        #[test]
        fn metadata_round_trips(
            texts in prop::collection::vec(("[a-z][a-z0-9_.]{0,8}", "[!-~]([ -~]{0,8}[!-~])?"), 0..5),
            binaries in prop::collection::vec(("[a-z]{1,8}-bin", any::<Vec<u8>>()), 0..5),
        ) {
            let mut metadata = Metadata::new();
            for (name, value) in texts {
                let _ = metadata.append(name, value);
            }
            for (name, value) in binaries {
                let _ = metadata.append_bin(name, value);
            }
            let mut headers = HeaderMap::new();
            extend(&mut headers, &metadata, "");
            let read = from_headers(&headers).unwrap();
            for name in metadata.keys().filter(|name| !is_reserved(name)) {
                let values = |metadata: &Metadata| match name.ends_with("-bin") {
                    true => metadata.get_all_bin(name).map(<[u8]>::to_vec).collect::<Vec<_>>(),
                    false => metadata.get_all(name).map(|value| value.as_bytes().to_vec()).collect(),
                };
                prop_assert_eq!(values(&metadata), values(&read));
            }
        }
    }
}
