//! Incremental validation of UTF-8.

use simdutf8::compat::from_utf8;

/// A UTF-8 validator for text received in parts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Utf8Validator {
    /// The first bytes of a character continued in the next part.
    begun: [u8; 4],
    begun_len: usize,
}

impl Utf8Validator {
    /// Validates the next part. Returns `false` if the text is already invalid.
    pub(crate) fn push(&mut self, mut part: &[u8]) -> bool {
        while self.begun_len > 0 {
            let Some((byte, rest)) = part.split_first() else { return true };
            self.begun[self.begun_len] = *byte;
            self.begun_len += 1;
            part = rest;
            match std::str::from_utf8(&self.begun[..self.begun_len]) {
                Ok(_) => self.begun_len = 0,
                Err(error) if error.error_len().is_some() => return false,
                Err(_) => {}
            }
        }
        let Err(error) = from_utf8(part) else { return true };
        if error.error_len().is_some() {
            return false;
        }
        let begun = &part[error.valid_up_to()..];
        self.begun[..begun.len()].copy_from_slice(begun);
        self.begun_len = begun.len();
        true
    }

    /// Returns `true` if the text may end here.
    pub(crate) fn is_whole(&self) -> bool {
        self.begun_len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_validated_for_any_split() {
        let text = "aé€😀 κόσμε, and more than sixty-four bytes so that the wide way is taken".as_bytes();
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let mut utf8 = Utf8Validator::default();
                for part in [&text[..first], &text[first..second], &text[second..]] {
                    assert!(utf8.push(part), "{first} {second}");
                }
                assert!(utf8.is_whole());
            }
        }
    }
}
