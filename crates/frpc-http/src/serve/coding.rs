//! The compression that both sides of a call agree on: gzip or none.

use frpc::{Status, shown};
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
                let other = shown(other);
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
