//! A client that writes raw HTTP/1.1.

use frpc::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

/// A connection.
pub(crate) struct Http1(pub(crate) DuplexStream);

impl Http1 {
    pub(crate) fn connect(server: &Server) -> Self {
        let (ours, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        Self(ours)
    }

    /// Writes, and ignores errors of a closed connection.
    pub(crate) async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.0.write_all(bytes.as_ref()).await;
    }

    /// Reads up to the end of the connection.
    pub(crate) async fn hear_all(mut self) -> Vec<u8> {
        let mut heard = Vec::new();
        let _ = self.0.read_to_end(&mut heard).await;
        heard
    }
}

/// Sends bytes on a new connection, and returns all responses until the server closes it.
pub(crate) async fn ask(server: &Server, bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let mut caller = Http1::connect(server);
    caller.say(bytes).await;
    caller.hear_all().await
}

/// Returns the bytes of a request with `connection: close`.
pub(crate) fn post(path: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let len = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: test\r\ncontent-type: {content_type}\r\ncontent-length: {len}\r\nconnection: \
         close\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// Splits a response into the lines of its head and its body. Joins the chunks of the body.
pub(crate) fn split(answer: &[u8]) -> (Vec<String>, Vec<u8>) {
    let end = answer.windows(4).position(|end| end == b"\r\n\r\n").expect("there is a head");
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let lines: Vec<String> = head.split("\r\n").map(str::to_owned).collect();
    let mut rest = &answer[end + 4..];
    if !lines.contains(&"transfer-encoding: chunked".to_owned()) {
        return (lines, rest.to_vec());
    }
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|end| end == b"\r\n").expect("a chunk has a length");
        let len = usize::from_str_radix(str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        if len == 0 {
            return (lines, body);
        }
        body.extend_from_slice(&rest[line + 2..][..len]);
        rest = &rest[line + 2 + len + 2..];
    }
}
