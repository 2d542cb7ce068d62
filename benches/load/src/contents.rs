use std::sync::Arc;

/// Contents that differ by connection and request id: slices of one ASCII pattern, each shifted by one byte.
#[derive(Clone, Debug)]
pub struct Contents {
    pattern: Arc<str>,
    first_shift: usize,
    len: usize,
}

impl Contents {
    /// Creates contents of this length.
    pub fn new(len: usize) -> Self {
        let mut state = 0x9e37_79b9_u32;
        let next_char = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            char::from(state.to_le_bytes()[0] & 0x7f)
        };
        let pattern: String = std::iter::repeat_with(next_char).take(len + SHIFTS).collect();
        Self { pattern: pattern.into(), first_shift: 0, len }
    }

    /// Returns the contents of a connection, with this shift for its first request.
    #[must_use]
    pub fn starting_at(&self, first_shift: usize) -> Self {
        Self { first_shift, ..self.clone() }
    }

    /// Returns the content of the request with this id.
    pub fn of(&self, id: u16) -> &[u8] {
        self.text(id).as_bytes()
    }

    /// Returns the same content as text.
    pub fn text(&self, id: u16) -> &str {
        let shift = (self.first_shift + usize::from(id)) % SHIFTS;
        &self.pattern[shift..shift + self.len]
    }
}

const SHIFTS: usize = 4096;
