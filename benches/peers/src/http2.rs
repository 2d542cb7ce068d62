//! Settings of all HTTP/2 contenders, servers and clients.

/// Messages have up to 1 MiB of content. The default limit of tonic is 4 MiB.
pub const MESSAGE_LEN_MAX: usize = 8 << 20;

/// Frames of 16 KiB, the default, reduce the rate of calls with 1 MiB messages by 40 %.
pub const FRAME_LEN_MAX: u32 = 1 << 20;

/// Room for a whole 1 MiB message, so that its sender never waits for a window update in the middle.
pub const STREAM_WINDOW_LEN: u32 = 2 << 20;

/// Room for several such messages.
pub const CONNECTION_WINDOW_LEN: u32 = 16 << 20;
