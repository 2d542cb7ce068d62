//! Differences between gRPC-Web and gRPC: trailers as a frame of the body, and bodies in base64.
//!
//! A base64 body consists of consecutive pieces, each encoded separately and with padding.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use frpc::Status;
use http::HeaderMap;

use crate::message::envelope::{self, TRAILERS};

/// Returns trailers as the last frame of a body.
///
/// # Errors
///
/// If the trailers are too long for a frame.
pub(crate) fn trailers_frame(trailers: &HeaderMap) -> Result<Bytes, Status> {
    let mut lines = Vec::new();
    for (name, value) in trailers {
        lines.extend_from_slice(name.as_ref());
        lines.extend_from_slice(b": ");
        lines.extend_from_slice(value.as_bytes());
        lines.extend_from_slice(b"\r\n");
    }
    envelope::frame(TRAILERS, &lines)
}

/// Decodes a base64 body received in chunks.
#[derive(Debug, Default)]
pub(crate) struct TextDecoder {
    /// An incomplete group of four characters.
    rest: BytesMut,
}

impl TextDecoder {
    /// Adds a chunk and decodes all complete groups.
    pub(crate) fn decode(&mut self, chunk: &[u8]) -> Result<Bytes, Status> {
        self.rest.extend_from_slice(chunk);
        let groups = self.rest.split_to(self.rest.len() / GROUP_LEN * GROUP_LEN);
        let mut decoded = Vec::with_capacity(groups.len() / GROUP_LEN * 3);
        // Padding may occur only at the end of a piece.
        let mut groups = &groups[..];
        while !groups.is_empty() {
            let is_last = |group: &[u8]| group[GROUP_LEN - 1] == b'=';
            let count =
                groups.chunks_exact(GROUP_LEN).position(is_last).map_or(groups.len() / GROUP_LEN, |last| last + 1);
            let (piece, behind) = groups.split_at(count * GROUP_LEN);
            let read = STANDARD.decode_vec(piece, &mut decoded);
            read.map_err(|_| Status::invalid_argument("the body is not valid base64"))?;
            groups = behind;
        }
        Ok(decoded.into())
    }

    /// Returns `true` if the body ends within a group so far.
    pub(crate) fn is_partial(&self) -> bool {
        !self.rest.is_empty()
    }
}

/// Encodes one piece of a body.
pub(crate) fn encode(piece: &[u8]) -> Bytes {
    STANDARD.encode(piece).into()
}

const GROUP_LEN: usize = 4;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_body_with_invalid_base64_is_rejected() {
        for body in ["====", "AQ=A", "A\n==", "\u{e9}\u{e9}"] {
            assert!(TextDecoder::default().decode(body.as_bytes()).is_err(), "{body}");
        }
        let mut decoder = TextDecoder::default();
        assert_eq!(decoder.decode(b"AQI").unwrap(), "");
        assert!(decoder.is_partial());
    }

    proptest! {
        #[test]
        fn base64_decodes_for_any_split(
            pieces: Vec<Vec<u8>>,
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let text: Vec<u8> = pieces.iter().flat_map(|piece| encode(piece)).collect();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let mut decoder = TextDecoder::default();
            let came: Vec<u8> = cuts.windows(2).flat_map(|cut| decoder.decode(&text[cut[0]..cut[1]]).unwrap()).collect();
            prop_assert_eq!(came, pieces.concat());
            prop_assert!(!decoder.is_partial());
        }
    }
}
