//! The first bytes of a connection of HTTP/2: the preface and the settings of the peer.

use std::{future::poll_fn, io, pin::Pin, time::Duration};

use bytes::{Buf, BytesMut};
use frpc::{Drain, Raw};
use tokio::time::sleep;
use tokio_util::io::poll_read_buf;

use crate::standstill::Standstill;

/// What a peer says of itself before its first request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Preface {
    /// The size of the headers that it takes (`SETTINGS_MAX_HEADER_LIST_SIZE`), if it says so.
    pub(crate) head_len_max: Option<usize>,
}

/// Reads the preface of a connection and leaves it there to be read again. `None` if it is not there in time, or when the server shuts
/// down: then nothing was asked for. Bytes that are no preface are left to the implementation of HTTP/2, which refuses them.
pub(crate) async fn read_preface(socket: &mut Standstill<Raw>, time_max: Duration, drain: &Drain) -> Option<Preface> {
    let mut seen = BytesMut::new();
    let reading = poll_fn(|cx| {
        loop {
            match parse(&seen) {
                Parsed::Partial => {}
                Parsed::Whole(preface) => return std::task::Poll::Ready(io::Result::Ok(preface)),
            }
            seen.reserve(READ_LEN);
            if std::task::ready!(poll_read_buf(Pin::new(&mut *socket), cx, &mut seen))? == 0 {
                return std::task::Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    });
    let read = tokio::select! {
        biased;
        read = reading => read.ok(),
        () = drain.requested() => None,
        () = sleep(time_max) => None,
    };
    socket.get_mut().put_back(seen.freeze());
    read
}

enum Parsed {
    /// More bytes are needed.
    Partial,
    Whole(Preface),
}

fn parse(seen: &[u8]) -> Parsed {
    let magic_len = seen.len().min(MAGIC.len());
    if seen[..magic_len] != MAGIC[..magic_len] {
        return Parsed::Whole(Preface::default());
    }
    let Some(([a, b, c, kind, flags, stream @ ..], settings)) =
        seen.get(MAGIC.len()..).and_then(|frame| frame.split_first_chunk::<9>())
    else {
        return Parsed::Partial;
    };
    let len = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
    // Anything else is an error, which the implementation tells the peer.
    if (*kind, *flags, stream) != (SETTINGS, 0, &[0; 4]) || len > SETTINGS_LEN_MAX || len % SETTING_LEN != 0 {
        return Parsed::Whole(Preface::default());
    }
    let Some(mut settings) = settings.get(..len) else { return Parsed::Partial };
    let mut preface = Preface::default();
    while settings.has_remaining() {
        let (id, value) = (settings.get_u16(), settings.get_u32());
        if id == MAX_HEADER_LIST_SIZE {
            preface.head_len_max = Some(usize::try_from(value).unwrap_or(usize::MAX));
        }
    }
    Parsed::Whole(preface)
}

const MAGIC: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: u8 = 4;
const SETTING_LEN: usize = 6;
const MAX_HEADER_LIST_SIZE: u16 = 6;

/// The longest frame that a peer may send before it knows our settings.
const SETTINGS_LEN_MAX: usize = 16 * 1024;

/// The least room to read into.
const READ_LEN: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(bytes: &[u8]) -> Option<Preface> {
        match parse(bytes) {
            Parsed::Partial => None,
            Parsed::Whole(preface) => Some(preface),
        }
    }

    #[test]
    fn the_size_of_headers_is_read_wherever_the_settings_are_cut() {
        let settings = b"\0\0\x0c\x04\0\0\0\0\0\0\x03\0\0\0\x64\0\x06\0\0\x20\0";
        let whole = [MAGIC, settings].concat();
        for len in 0..whole.len() {
            assert_eq!(seen(&whole[..len]), None, "{len}");
        }
        assert_eq!(seen(&whole), Some(Preface { head_len_max: Some(8192) }));
        assert_eq!(seen(&[MAGIC, b"\0\0\0\x04\0\0\0\0\0"].concat()), Some(Preface::default()));
    }

    #[test]
    fn what_is_no_preface_is_not_waited_for() {
        assert_eq!(seen(b"PRI * HTTP/3"), Some(Preface::default()));
        for frame in [b"\0\0\x08\x06\0\0\0\0\0", b"\xff\xff\xff\x04\0\0\0\0\0", b"\0\0\x05\x04\0\0\0\0\0"] {
            assert_eq!(seen(&[MAGIC, frame].concat()), Some(Preface::default()));
        }
    }
}
