//! Frames as bytes, and a [`Peer`] that speaks them by hand.

use bytes::BytesMut;
use frisbee::proto::{Decoder, Frame, Header, HeaderFormat, Kind};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    time::timeout,
};

use crate::MILLI;

/// The other end of a connection, which speaks in bytes and answers nothing by itself.
pub struct Peer {
    /// The stream to the other side, for what is no frame.
    pub io: DuplexStream,
    decoder: Decoder,
    inbox: BytesMut,
    opening: Opening,
    describe: Describe,
}

/// The progress of the other side in its opening, which is not heard of: a HELLO, and a PING behind it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opening {
    Begins,
    HasSaidHello,
    IsOver,
}

/// Puts a frame with data in a stream, or with an operation of the application, into words.
pub type Describe = fn(&Frame) -> String;

impl Peer {
    /// Returns a peer at the end of a stream.
    pub fn over(io: DuplexStream, describe: Describe) -> Self {
        Self { io, decoder: Decoder::new(None, u32::MAX), inbox: BytesMut::new(), opening: Opening::Begins, describe }
    }

    /// Returns a peer, and the stream to it, which takes this many bytes in each direction until they are read.
    pub fn pair(buffer_len: usize, describe: Describe) -> (DuplexStream, Self) {
        let (theirs, io) = duplex(buffer_len);
        (theirs, Self::over(io, describe))
    }

    /// Sends bytes.
    pub async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.io.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends frames in one write.
    pub async fn say_all(&mut self, frames: impl IntoIterator<Item = Vec<u8>>) {
        self.say(frames.into_iter().collect::<Vec<_>>().concat()).await;
    }

    /// Returns the next frame behind the opening, in words, or `"end"`.
    pub async fn hear_any(&mut self) -> String {
        loop {
            let Some(frame) = self.next_frame().await else { return "end".into() };
            if !self.take_opening(&frame) {
                return self.name(&frame);
            }
        }
    }

    /// Answers the PING behind the HELLO, so that the other side knows that this is a plain peer.
    pub async fn answer_opening(&mut self) {
        while self.opening != Opening::IsOver {
            let frame = self.next_frame().await.expect("the other side has an opening");
            assert!(self.take_opening(&frame), "nothing else comes before that is over");
        }
        self.say(pong()).await;
    }

    /// Tells whether a frame belongs to the opening.
    fn take_opening(&mut self, frame: &Frame) -> bool {
        let before = self.opening;
        self.opening = match (before, frame.kind) {
            (Opening::Begins, Kind::Reserved) => Opening::HasSaidHello,
            _ => Opening::IsOver,
        };
        self.opening == Opening::HasSaidHello || (before == Opening::HasSaidHello && frame.kind == Kind::Ping)
    }

    /// Returns the next frame, or `None` at the end.
    async fn next_frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.decode(&mut self.inbox).expect("only whole frames come") {
                return Some(frame);
            }
            if self.io.read_buf(&mut self.inbox).await.unwrap() == 0 {
                assert!(self.inbox.is_empty() && self.decoder.content_len() == 0, "it ends with a whole frame");
                return None;
            }
        }
    }

    /// Returns the next frame that is no heartbeat.
    pub async fn hear(&mut self) -> String {
        loop {
            let frame = self.hear_any().await;
            if frame != "PING" && frame != "PONG" {
                return frame;
            }
        }
    }

    /// Returns this many frames that are no heartbeats.
    pub async fn hear_times(&mut self, times: usize) -> Vec<String> {
        let mut frames = Vec::new();
        for _ in 0..times {
            frames.push(self.hear().await);
        }
        frames
    }

    /// Returns everything up to the end, but heartbeats.
    pub async fn hear_out(&mut self) -> Vec<String> {
        let mut frames = Vec::new();
        loop {
            match self.hear().await {
                end if end == "end" => return frames,
                frame => frames.push(frame),
            }
        }
    }

    /// Returns everything that the other side has sent up to this moment.
    pub async fn heard(&mut self) -> Vec<String> {
        let mut frames = Vec::new();
        while let Ok(frame) = timeout(MILLI, self.hear_any()).await {
            let is_end = frame == "end";
            frames.push(frame);
            if is_end {
                break;
            }
        }
        frames
    }

    /// Tells whether the other side has sent nothing up to this moment.
    pub async fn hears_nothing(&mut self) -> bool {
        self.heard().await.is_empty()
    }

    /// Sends bytes, and returns what comes back at once.
    pub async fn asks(&mut self, bytes: impl AsRef<[u8]>) -> Vec<String> {
        self.say(bytes).await;
        self.heard().await
    }

    /// Ends its half of the stream, and goes on hearing.
    pub async fn fall_silent(&mut self) {
        self.io.shutdown().await.unwrap();
    }

    fn name(&self, frame: &Frame) -> String {
        match frame.kind {
            Kind::Ping => "PING".into(),
            Kind::Pong => "PONG".into(),
            Kind::Stream if frame.content.is_empty() => format!("stream {} closed", frame.id),
            Kind::Reserved => format!("reserved {}", frame.id),
            Kind::Control | Kind::Extended | Kind::Piece => unreachable!("the decoder is one of a plain peer"),
            Kind::Stream | Kind::Application(_) => (self.describe)(frame),
        }
    }
}

/// Returns the bytes of a whole frame in the ten byte layout.
pub fn frame(id: u16, operation: u16, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    [&header(id, operation, content.len().try_into().unwrap()), content].concat()
}

/// Returns the bytes of a header in the ten byte layout.
pub fn header(id: u16, operation: u16, len: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    Header { id, operation, len }.encode(HeaderFormat::Magic10, &mut bytes);
    bytes
}

/// Returns the bytes of data in a stream, or of its close if there are none.
pub fn stream_frame(id: u16, content: impl AsRef<[u8]>) -> Vec<u8> {
    frame(id, 2, content)
}

/// Returns the bytes of a ping.
pub fn ping() -> Vec<u8> {
    frame(0, 0, b"")
}

/// Returns the bytes of a pong.
pub fn pong() -> Vec<u8> {
    frame(0, 1, b"")
}
