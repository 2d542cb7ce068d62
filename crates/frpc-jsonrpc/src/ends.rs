//! The end of a value that arrives in many pieces.

/// Finds the end of an object or a list by its brackets, and looks at each byte once.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    looked_at: usize,
    depth: usize,
    is_in_string: bool,
    is_escaped: bool,
}

impl Ends {
    /// Returns how many bytes were looked at: the length of the value, once it is found.
    pub(crate) fn looked_at(&self) -> usize {
        self.looked_at
    }

    /// Returns whether the value that these bytes begin with is whole. They have those of the last time in front.
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
