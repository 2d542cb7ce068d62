//! The `date` header of responses.

use std::{
    cell::RefCell,
    time::{Duration, SystemTime},
};

/// The current date in the format of HTTP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DateText([u8; LEN]);

const LEN: usize = "Sun, 06 Nov 1994 08:49:37 GMT".len();

impl DateText {
    /// Returns the current date. It is formatted once per second and cached.
    pub(crate) fn now() -> Self {
        thread_local! {
            static DATE: RefCell<(u64, DateText)> = const { RefCell::new((0, DateText([b' '; LEN]))) };
        }
        let now = SystemTime::now();
        let seconds = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        DATE.with_borrow_mut(|(at, text)| {
            if *at != seconds {
                let whole = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
                // Years above 9999 have a longer text.
                if let Ok(formatted) = httpdate::fmt_http_date(whole).as_bytes().try_into() {
                    (*at, *text) = (seconds, Self(formatted));
                }
            }
            *text
        })
    }

    pub(crate) fn as_str(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_have_the_format_of_http() {
        let (first, second) = (DateText::now(), DateText::now());
        let date = httpdate::parse_http_date(first.as_str()).unwrap();
        assert!(SystemTime::now().duration_since(date).unwrap() < Duration::from_secs(60));
        assert_eq!(second.as_str().len(), LEN);
    }
}
