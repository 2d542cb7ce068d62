//! Settings of every contender that speaks HTTP/2, server and client alike.

/// A message may have 1 MiB of content, and tonic takes 4 MiB unless told otherwise.
pub const MESSAGE_LEN_MAX: usize = 8 << 20;

/// Frames of 16 KiB, the default, take 40 % of the calls per second of 1 MiB messages away.
pub const FRAME_LEN_MAX: u32 = 1 << 20;

/// Room for a whole 1 MiB message, so that its sender does not wait for a window update in the middle.
pub const STREAM_WINDOW_LEN: u32 = 2 << 20;

/// Room for some such messages at once.
pub const CONNECTION_WINDOW_LEN: u32 = 16 << 20;
