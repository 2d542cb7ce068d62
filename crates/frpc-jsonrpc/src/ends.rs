//! A search for the end of a value received in many pieces.

/// A scanner for the end of an object or array, by brackets alone. It looks at each byte once.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    looked_at: usize,
    depth: usize,
    is_in_string: bool,
    is_escaped: bool,
}

impl Ends {
    /// Returns the number of bytes examined so far. Once the end is found, this is the length of the value.
    pub(crate) fn looked_at(&self) -> usize {
        self.looked_at
    }

    /// Returns `true` if `bytes` contains the whole value. `bytes` must begin with the bytes of the previous call.
    pub(crate) fn is_found(&mut self, bytes: &[u8]) -> bool {
        for byte in &bytes[self.looked_at.min(bytes.len())..] {
            self.looked_at += 1;
            if self.is_escaped {
                self.is_escaped = false;
                continue;
            }
            match byte {
                b'\\' if self.is_in_string => self.is_escaped = true,
                b'"' => self.is_in_string = !self.is_in_string,
                _ if self.is_in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return true;
                    }
                }
                _ => {}
            }
        }
        false
    }
}
