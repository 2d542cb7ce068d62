//! A server that reads and writes raw HTTP/2 frames.

use frpc::prost::Message;
#[cfg(feature = "http2")]
use futures_util::FutureExt;
use support::calls::words;
use support::http2::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, frame, header,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const CANCEL: u32 = 8;

/// The server side of a connection.
pub(crate) struct RawServer {
    socket: DuplexStream,
    answers_pings: bool,
}

/// An event caused by the client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The end of a request.
    Request {
        stream: u32,
    },
    Reset {
        stream: u32,
        code: u32,
    },
    /// The client has closed the connection.
    Closed,
}

impl RawServer {
    /// Completes the HTTP/2 preface with default settings.
    pub(crate) async fn begin(socket: DuplexStream) -> Self {
        Self::begin_with(socket, &[]).await
    }

    /// Completes the HTTP/2 preface with these settings: pairs of id and value.
    pub(crate) async fn begin_with(mut socket: DuplexStream, settings: &[(u16, u32)]) -> Self {
        let mut preface = [0; 24];
        socket.read_exact(&mut preface).await.unwrap();
        assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let mut server = Self { socket, answers_pings: true };
        let content = settings.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat());
        let content: Vec<u8> = content.collect();
        server.write(SETTINGS, 0, 0, &content).await;
        server
    }

    /// Stops answering the PINGs of the client.
    pub(crate) fn without_pongs(self) -> Self {
        Self { answers_pings: false, ..self }
    }

    pub(crate) async fn write(&mut self, kind: u8, flags: u8, stream: u32, content: &[u8]) {
        // The client may be gone already.
        let _ = self.socket.write_all(&frame(kind, flags, stream, content)).await;
    }

    #[cfg(feature = "http2")]
    pub(crate) async fn write_all(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes).await;
    }

    /// Sends these bytes again and again, until the client closes the connection. Returns the reason of the client and
    /// the number of repetitions.
    #[cfg(feature = "http2")]
    pub(crate) async fn insist(mut self, times_max: u32, said: impl Fn(u32) -> Vec<u8>) -> (Option<u32>, u32) {
        let (mut times, mut heard) = (0, Vec::new());
        while times < times_max && self.socket.write_all(&said(times)).await.is_ok() {
            times += 1;
            // Lets the client run.
            tokio::task::yield_now().await;
            while let Some(Ok(1..)) = self.socket.read_buf(&mut heard).now_or_never() {}
        }
        assert!(times < times_max, "the client never has enough");
        let _ = self.socket.read_to_end(&mut heard).await;
        let (mut reason, mut rest) = (None, &heard[..]);
        while let [a, b, c, kind, _, _, _, _, _, after @ ..] = rest {
            let (content, next) = after.split_at(usize::try_from(u32::from_be_bytes([0, *a, *b, *c])).unwrap());
            if *kind == GOAWAY {
                reason = content[4..].first_chunk().map(|code| u32::from_be_bytes(*code));
            }
            rest = next;
        }
        (reason, times)
    }

    /// Waits for the next event of a call, or the end of the connection.
    pub(crate) async fn heard(&mut self) -> Heard {
        loop {
            let mut head = [0; 9];
            if self.socket.read_exact(&mut head).await.is_err() {
                return Heard::Closed;
            }
            let [a, b, c, kind, flags, stream @ ..] = head;
            let mut content = vec![0; usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap()];
            self.socket.read_exact(&mut content).await.unwrap();
            let stream = u32::from_be_bytes(stream);
            match kind {
                SETTINGS if flags & ACK == 0 => self.write(SETTINGS, ACK, 0, &[]).await,
                PING if flags & ACK == 0 && self.answers_pings => self.write(PING, ACK, 0, &content).await,
                DATA | HEADERS if flags & END_STREAM != 0 => return Heard::Request { stream },
                RST_STREAM => {
                    let code = u32::from_be_bytes(content.try_into().unwrap());
                    return Heard::Reset { stream, code };
                }
                _ => {}
            }
        }
    }

    /// Returns `true` if the client has closed its side of the socket.
    #[cfg(feature = "http2")]
    pub(crate) async fn is_left(&mut self) -> bool {
        self.socket.write_all(b"\0").await.is_err()
    }

    pub(crate) async fn reset(&mut self, stream: u32, code: u32) {
        self.write(RST_STREAM, 0, stream, &code.to_be_bytes()).await;
    }

    /// Sends a GOAWAY: streams up to this one were processed, later ones were not.
    pub(crate) async fn go_away(&mut self, last: u32) {
        self.write(GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat()).await;
    }

    /// Fails a gRPC call with this message, in as many frames as needed.
    pub(crate) async fn fail(&mut self, stream: u32, message: &str) {
        let mut headers =
            [&[0x88][..], &header("content-type", "application/grpc"), &header("grpc-status", "5")].concat();
        headers.extend(header("grpc-message", message));
        let mut parts = headers.chunks(16_384).peekable();
        let mut kind = HEADERS;
        while let Some(part) = parts.next() {
            let last = if parts.peek().is_none() { END_HEADERS } else { 0 };
            let end = if kind == HEADERS { END_STREAM } else { 0 };
            self.write(kind, last | end, stream, part).await;
            kind = CONTINUATION;
        }
    }

    /// Sends the head of an answer, after an informational one.
    pub(crate) async fn begin_answer(&mut self, stream: u32) {
        self.write(HEADERS, END_HEADERS, stream, &header(":status", "103")).await;
        let headers = [&[0x88][..], &header("content-type", "application/grpc")].concat();
        self.write(HEADERS, END_HEADERS, stream, &headers).await;
    }

    /// Ends an answer without trailers.
    pub(crate) async fn end(&mut self, stream: u32) {
        self.write(DATA, END_STREAM, stream, &[]).await;
    }

    /// Answers a gRPC call.
    pub(crate) async fn answer(&mut self, stream: u32, text: &str) {
        self.begin_answer(stream).await;
        self.send_data(stream, &message(text)).await;
        self.succeed(stream).await;
    }

    pub(crate) async fn send_data(&mut self, stream: u32, data: &[u8]) {
        self.write(DATA, 0, stream, data).await;
    }

    /// Ends a call successfully.
    pub(crate) async fn succeed(&mut self, stream: u32) {
        self.write(HEADERS, END_HEADERS | END_STREAM, stream, &header("grpc-status", "0")).await;
    }

    /// Sends the head of an answer with these headers.
    pub(crate) async fn begin_answer_with(&mut self, stream: u32, headers: &[(&str, &str)]) {
        let fields = headers.iter().flat_map(|(name, value)| header(name, value));
        let block = [0x88].into_iter().chain(fields).collect::<Vec<_>>();
        self.write(HEADERS, END_HEADERS, stream, &block).await;
    }
}

/// Returns a message in its frame.
pub(crate) fn message(text: &str) -> Vec<u8> {
    let message = words(text).encode_to_vec();
    [&[0][..], &u32::try_from(message.len()).unwrap().to_be_bytes(), &message].concat()
}
