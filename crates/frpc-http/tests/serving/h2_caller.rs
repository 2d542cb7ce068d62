//! A client on the bare `h2` crate.

use bytes::{Buf, Bytes};
use frpc::{Server, ServerBuilder, prost::Message};
use frpc_http::Http;
use h2::{
    RecvStream, SendStream,
    client::{self, ResponseFuture, SendRequest},
};
use http::{HeaderMap, Request, Response, StatusCode};
use support::calls::{TestServer, TestService, Words, quiet, words};
use tokio::io::{AsyncRead, AsyncWrite, duplex};

/// Returns the settings of a server for frisbee and HTTP.
pub(crate) fn server(service: &TestService, http: Http) -> ServerBuilder<((), TestServer<TestService>)> {
    Server::builder().config(quiet()).wire(http).add_service(TestServer::new(service.clone()))
}

/// An HTTP/2 client.
pub(crate) struct H2Caller(pub(crate) SendRequest<Bytes>);

/// A complete response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

/// A call in flight.
pub(crate) struct Open {
    pub(crate) sending: SendStream<Bytes>,
    pub(crate) response: ResponseFuture,
}

impl H2Caller {
    pub(crate) async fn connect(server: &Server) -> Self {
        let (ours, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        Self::over(ours).await
    }

    pub(crate) async fn over(socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        let (sender, connection) = client::handshake(socket).await.unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    /// Sends the head of a request. Its body follows.
    pub(crate) async fn open(&mut self, request: Request<()>) -> Open {
        let mut sender = self.0.clone().ready().await.unwrap();
        let (response, sending) = sender.send_request(request, false).unwrap();
        Open { sending, response }
    }

    pub(crate) async fn ask(&mut self, request: Request<()>, body: impl Into<Bytes>) -> Reply {
        let mut open = self.open(request).await;
        open.sending.send_data(body.into(), true).unwrap();
        open.reply().await
    }

    /// Makes a gRPC call with these headers.
    pub(crate) async fn call(&mut self, method: &str, headers: &[(&str, &str)], texts: &[&str]) -> Reply {
        self.ask(grpc_request(method, headers), messages(texts)).await
    }
}

impl Open {
    pub(crate) fn send(&mut self, text: &str) {
        self.sending.send_data(messages(&[text]), false).unwrap();
    }

    pub(crate) fn finish(&mut self) {
        self.sending.send_data(Bytes::new(), true).unwrap();
    }

    pub(crate) async fn reply(self) -> Reply {
        Reply::read(self.response.await.unwrap()).await
    }
}

impl Reply {
    pub(crate) async fn read(response: Response<RecvStream>) -> Self {
        let (head, mut stream) = response.into_parts();
        let mut body = Vec::new();
        while let Some(data) = stream.data().await {
            let data = data.unwrap();
            stream.flow_control().release_capacity(data.len()).unwrap();
            body.extend_from_slice(&data);
        }
        let trailers = stream.trailers().await.unwrap();
        Self { status: head.status, headers: head.headers, body: body.into(), trailers }
    }

    /// Returns a header about the end of a gRPC call, from the trailers or from a response of headers only.
    pub(crate) fn end(&self, name: &str) -> Option<&str> {
        self.trailers.as_ref().unwrap_or(&self.headers).get(name).map(|value| value.to_str().unwrap())
    }

    /// Returns the texts of the messages, followed by the status if it is not `Ok`.
    pub(crate) fn texts(&self) -> Vec<String> {
        assert_eq!((self.status, self.headers["content-type"].as_bytes()), (StatusCode::OK, &b"application/grpc"[..]));
        let mut texts: Vec<_> = frames(&self.body).into_iter().map(|(_, content)| text(&content)).collect();
        let status = self.end("grpc-status").unwrap();
        if status != "0" {
            texts.push(format!("{status} {}", self.end("grpc-message").unwrap_or_default()));
        }
        texts
    }
}

pub(crate) fn text(content: &[u8]) -> String {
    Words::decode(content).unwrap().text
}

pub(crate) fn grpc_request(method: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::post(format!("http://test/calls.Test/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

/// Returns a frame with this content.
pub(crate) fn frame(flags: u8, content: &[u8]) -> Vec<u8> {
    let mut frame = vec![flags];
    frame.extend(u32::try_from(content.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(content);
    frame
}

/// Returns the frames of messages.
pub(crate) fn messages(texts: &[&str]) -> Bytes {
    texts.iter().flat_map(|text| frame(0, &words(*text).encode_to_vec())).collect()
}

/// Splits a body into frames.
pub(crate) fn frames(mut body: &[u8]) -> Vec<(u8, Bytes)> {
    let mut frames = Vec::new();
    while !body.is_empty() {
        let (flags, len) = (body.get_u8(), body.get_u32());
        frames.push((flags, body.copy_to_bytes(usize::try_from(len).unwrap())));
    }
    frames
}
