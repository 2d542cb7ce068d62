//! The compression that both sides of a call agree on: gzip or none.

use frpc::Status;
use http::HeaderValue;

use crate::{message::compression::GZIP, settings::HttpSettings};

/// The compression of the messages of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallCompression {
    pub(super) of_requests: bool,
    /// The minimum length of compressed responses. `None` if responses are not compressed.
    pub(super) of_answers: Option<usize>,
}

impl CallCompression {
    /// Negotiates the compression of a call. Without a list of accepted encodings, the caller accepts the encoding of
    /// its requests.
    ///
    /// # Errors
    ///
    /// If the compression of the requests is not supported.
    pub(super) fn negotiate(
        sent: Option<&[u8]>,
        accepted: Option<&HeaderValue>,
        settings: &HttpSettings,
    ) -> Result<Self, Status> {
        let of_requests = match sent {
            None | Some(b"" | b"identity") => false,
            Some(sent) if sent == GZIP.as_bytes() => true,
            Some(other) => {
                let other = other.escape_ascii();
                return Err(Status::unimplemented(format!(
                    "the compression \"{other}\" is not supported: use gzip or identity"
                )));
            }
        };
        let is_accepted =
            accepted.map_or(of_requests, |names| names.as_bytes().split(|byte| *byte == b',').any(is_gzip));
        let is_wanted = of_requests || settings.send_compressed;
        Ok(Self { of_requests, of_answers: (is_wanted && is_accepted).then_some(settings.compression_len_min) })
    }
}

/// Returns `true` if this list element accepts gzip. A weight of zero refuses it.
fn is_gzip(element: &[u8]) -> bool {
    let mut parts = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let is_named = parts.next() == Some(GZIP.as_bytes());
    is_named
        && !parts.any(|weight| weight.starts_with(b"q=0") && !weight.iter().any(|byte| matches!(byte, b'1'..=b'9')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(sent: Option<&str>, accepted: Option<&'static str>, send_compressed: bool) -> CallCompression {
        let settings = HttpSettings { send_compressed, compression_len_min: 7, ..HttpSettings::default() };
        let accepted = accepted.map(HeaderValue::from_static);
        CallCompression::negotiate(sent.map(str::as_bytes), accepted.as_ref(), &settings).unwrap()
    }

    #[test]
    fn response_compression_is_negotiated() {
        let of_answers = |sent, accepted, always| agreed(sent, accepted, always).of_answers;
        assert_eq!(of_answers(None, Some("gzip"), false), None);
        assert_eq!(of_answers(None, Some("br, gzip"), true), Some(7));
        assert_eq!(of_answers(None, Some("gzip;q=0.5"), true), Some(7));
        assert_eq!(of_answers(None, Some("gzip;q=0.0, gzipped"), true), None);
        assert_eq!(of_answers(None, None, true), None);
        assert_eq!(of_answers(Some("gzip"), None, false), Some(7));
        assert_eq!(of_answers(Some("gzip"), Some("identity"), false), None);
    }

    #[test]
    fn an_unknown_compression_is_rejected_with_the_known_ones() {
        assert!(agreed(Some("gzip"), None, false).of_requests);
        assert!(!agreed(Some("identity"), None, false).of_requests && !agreed(None, None, false).of_requests);
        let refused = CallCompression::negotiate(Some(b"br"), None, &HttpSettings::default()).unwrap_err();
        assert_eq!(refused.code(), frpc::Code::Unimplemented);
        assert_eq!(refused.message(), "the compression \"br\" is not supported: use gzip or identity");
    }
}
