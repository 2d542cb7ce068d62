//! Encoded frames, and a [`Peer`] to exchange them by hand.

use bytes::BytesMut;
use frisbee::proto::{Decoder, Frame, FrameKind, Header, HeaderFormat};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    time::timeout,
};

use crate::MILLI;

/// The other end of a connection. It exchanges raw frames and answers nothing automatically.
pub struct Peer {
    /// The stream, for bytes outside of frames.
    pub io: DuplexStream,
    decoder: Decoder,
    inbox: BytesMut,
    opening: Opening,
    describe: Describe,
}

/// Progress of the other side's opening: a HELLO, then a PING. `hear` and its variants skip both frames.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opening {
    Begins,
    HasSaidHello,
    IsOver,
}

/// Describes a stream frame or an application frame in words.
pub type Describe = fn(&Frame) -> String;

impl Peer {
    /// Returns a peer at the end of a stream.
    pub fn over(io: DuplexStream, describe: Describe) -> Self {
        Self { io, decoder: Decoder::new(None, u32::MAX), inbox: BytesMut::new(), opening: Opening::Begins, describe }
    }

    /// Returns a stream with a buffer of this length per direction, and the peer at its other end.
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

    /// Returns a description of the next frame after the opening, or `"end"`.
    pub async fn hear_any(&mut self) -> String {
        loop {
            let Some(frame) = self.next_frame().await else { return "end".into() };
            if !self.take_opening(&frame) {
                return self.name(&frame);
            }
        }
    }

    /// Answers the PING after the HELLO. The other side then treats this peer as a plain one.
    pub async fn answer_opening(&mut self) {
        while self.opening != Opening::IsOver {
            let frame = self.next_frame().await.expect("the other side has an opening");
            assert!(self.take_opening(&frame), "nothing else comes before that is over");
        }
        self.say(pong()).await;
    }

    /// Returns `true` if a frame belongs to the opening.
    fn take_opening(&mut self, frame: &Frame) -> bool {
        let before = self.opening;
        self.opening = match (before, frame.kind) {
            (Opening::Begins, FrameKind::Reserved) => Opening::HasSaidHello,
            _ => Opening::IsOver,
        };
        self.opening == Opening::HasSaidHello || (before == Opening::HasSaidHello && frame.kind == FrameKind::Ping)
    }

    /// Returns the next frame, or `None` at the end of the stream.
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

    /// Returns the next frame other than a heartbeat.
    pub async fn hear(&mut self) -> String {
        loop {
            let frame = self.hear_any().await;
            if frame != "PING" && frame != "PONG" {
                return frame;
            }
        }
    }

    /// Returns this number of frames, without heartbeats.
    pub async fn hear_times(&mut self, times: usize) -> Vec<String> {
        let mut frames = Vec::new();
        for _ in 0..times {
            frames.push(self.hear().await);
        }
        frames
    }

    /// Returns all frames up to the end, without heartbeats.
    pub async fn hear_out(&mut self) -> Vec<String> {
        let mut frames = Vec::new();
        loop {
            match self.hear().await {
                end if end == "end" => return frames,
                frame => frames.push(frame),
            }
        }
    }

    /// Returns everything sent by the other side so far.
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

    /// Returns `true` if the other side has sent nothing so far.
    pub async fn hears_nothing(&mut self) -> bool {
        self.heard().await.is_empty()
    }

    /// Sends bytes and returns the immediate answer.
    pub async fn asks(&mut self, bytes: impl AsRef<[u8]>) -> Vec<String> {
        self.say(bytes).await;
        self.heard().await
    }

    /// Closes the sending half of the stream. Receiving still works.
    pub async fn fall_silent(&mut self) {
        self.io.shutdown().await.unwrap();
    }

    fn name(&self, frame: &Frame) -> String {
        match frame.kind {
            FrameKind::Ping => "PING".into(),
            FrameKind::Pong => "PONG".into(),
            FrameKind::Stream if frame.content.is_empty() => format!("stream {} closed", frame.id),
            FrameKind::Reserved => format!("reserved {}", frame.id),
            FrameKind::Control | FrameKind::Extended | FrameKind::Piece => {
                unreachable!("the decoder is one of a plain peer")
            }
            FrameKind::Stream | FrameKind::Application(_) => (self.describe)(frame),
        }
    }
}

/// Encodes a whole frame with a ten-byte header.
pub fn frame(id: u16, operation: u16, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    [&header(id, operation, content.len().try_into().unwrap()), content].concat()
}

/// Encodes a ten-byte header.
pub fn header(id: u16, operation: u16, len: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    Header { id, operation, len }.encode(HeaderFormat::Magic10, &mut bytes);
    bytes
}

/// Encodes stream data. Without data, the frame closes the stream.
pub fn stream_frame(id: u16, content: impl AsRef<[u8]>) -> Vec<u8> {
    frame(id, 2, content)
}

/// Encodes a ping.
pub fn ping() -> Vec<u8> {
    frame(0, 0, b"")
}

/// Encodes a pong.
pub fn pong() -> Vec<u8> {
    frame(0, 1, b"")
}
