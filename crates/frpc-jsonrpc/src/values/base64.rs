//! Base64 with the standard and the URL-safe alphabet.

use std::fmt::Display;

use base64::{
    Engine, alphabet,
    display::Base64Display,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

/// Returns `bytes` in base64.
pub(super) fn encoded(bytes: &[u8]) -> impl Display {
    Base64Display::new(bytes, &STANDARD)
}

/// Decodes `text` into exactly `into.len()` bytes. Returns `None` if it is not base64 or has another length.
pub(super) fn decode_exactly(text: &str, into: &mut [u8]) -> Option<()> {
    let len = engine(text).decode_slice(text, into).ok()?;
    (len == into.len()).then_some(())
}

/// Decodes `text`, or returns `None` if it is not base64.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    engine(text).decode(text).ok()
}

/// Returns the decoded length of `text`, assuming valid base64.
pub(super) fn decoded_len(text: &str) -> usize {
    let letters = text.trim_end_matches('=').len();
    letters / 4 * 3 + letters % 4 * 3 / 4
}

/// Returns the engine for the alphabet of `text`. The standard one is used if its characters fit both.
fn engine(text: &str) -> &'static GeneralPurpose {
    if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD }
}

const CONFIG: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
static STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, CONFIG);
static URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, CONFIG);
