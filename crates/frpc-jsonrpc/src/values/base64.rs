//! Bytes as text, in either alphabet.

use std::fmt::Display;

use base64::{
    Engine, alphabet,
    display::Base64Display,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

/// Returns the text of bytes.
pub(super) fn encoded(bytes: &[u8]) -> impl Display {
    Base64Display::new(bytes, &STANDARD)
}

/// Reads text into exactly these bytes. `None` if it is no such text, or one of another length.
pub(super) fn decode_exactly(text: &str, into: &mut [u8]) -> Option<()> {
    let len = engine(text).decode_slice(text, into).ok()?;
    (len == into.len()).then_some(())
}

/// Reads text.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    engine(text).decode(text).ok()
}

/// Returns how many bytes a text stands for, if it is one.
pub(super) fn decoded_len(text: &str) -> usize {
    let letters = text.trim_end_matches('=').len();
    letters / 4 * 3 + letters % 4 * 3 / 4
}

/// Returns the alphabet of a text, as far as its letters tell.
fn engine(text: &str) -> &'static GeneralPurpose {
    if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD }
}

const CONFIG: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
static STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, CONFIG);
static URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, CONFIG);
