//! The number of bytes that a socket waits for before it wakes its reader.

#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;

/// Makes a socket wake its reader for `len` bytes, the end of the stream, or a full receive buffer, and not earlier.
///
/// Returns `false` if the system cannot. Linux then also wakes the reader if as many bytes are there already.
#[cfg(target_os = "linux")]
pub(super) fn set_low_water(socket: &impl AsRawFd, len: usize) -> bool {
    let Ok(len) = libc::c_int::try_from(len) else { return false };
    let size = libc::socklen_t::try_from(size_of_val(&len)).unwrap_or_default();
    #[expect(unsafe_code, reason = "no crate of the tree has this option")]
    // SAFETY: the descriptor is open, and the pointer is valid for `size` bytes during the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, (&raw const len).cast(), size)
    };
    result == 0
}

#[cfg(not(target_os = "linux"))]
pub(super) fn set_low_water(_: &tokio::net::TcpStream, _: usize) -> bool {
    false
}
