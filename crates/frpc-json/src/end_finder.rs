/// Finds the end of an object or array received in pieces, by brackets alone. It looks at each byte once.
///
/// ```
/// let mut end = frpc_json::EndFinder::default();
/// assert!(!end.is_found(b"{\"a\": [1, "));
/// assert!(end.is_found(b"{\"a\": [1, 2]} {"));
/// assert_eq!(end.examined_len(), 13);
/// ```
#[derive(Clone, Debug, Default)]
pub struct EndFinder {
    examined_len: usize,
    depth: usize,
    is_in_string: bool,
    is_escaped: bool,
}

impl EndFinder {
    /// Returns the number of bytes examined so far. Once the end is found, this is the length of the value.
    pub fn examined_len(&self) -> usize {
        self.examined_len
    }

    /// Returns `true` if `bytes` contains the whole value. `bytes` must begin with the bytes of the previous call.
    pub fn is_found(&mut self, bytes: &[u8]) -> bool {
        for byte in &bytes[self.examined_len.min(bytes.len())..] {
            self.examined_len += 1;
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
