use std::{iter, net::SocketAddr};

use futures_util::stream;
use peers::http2::{CONNECTION_WINDOW_LEN, FRAME_LEN_MAX, MESSAGE_LEN_MAX, STREAM_WINDOW_LEN};
use tokio::{
    net::TcpListener,
    runtime::{self, Runtime},
};
use tonic::{
    Request, Response, Status, Streaming,
    codegen::BoxStream,
    transport::{Channel, Endpoint, Server, server::TcpIncoming},
};

use crate::{
    Echo,
    schema::{Message, RepeatRequest},
};
use generated::{echo_client::EchoClient, echo_server, echo_server::EchoServer};

mod generated {
    #![allow(unreachable_pub, clippy::all, reason = "generated")]
    include!(concat!(env!("OUT_DIR"), "/tonic/echo.rs"));
}

/// A tonic connection with the options used in the load tests.
#[derive(Clone)]
pub struct OverTonic(EchoClient<Channel>);

impl Echo for OverTonic {
    const NAME: &'static str = "tonic";

    async fn serve() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let addr = listener.local_addr().expect("it is bound");
        let server = Server::builder()
            .initial_stream_window_size(STREAM_WINDOW_LEN)
            .initial_connection_window_size(CONNECTION_WINDOW_LEN)
            .max_frame_size(FRAME_LEN_MAX)
            .add_service(EchoServer::new(Service).max_decoding_message_size(MESSAGE_LEN_MAX));
        tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true))));
        addr
    }

    async fn connect(addr: SocketAddr) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{addr}")).expect("an address makes a URL");
        let channel = endpoint
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW_LEN)
            .initial_connection_window_size(CONNECTION_WINDOW_LEN)
            .max_frame_size(FRAME_LEN_MAX)
            .connect()
            .await;
        let channel = channel.expect("the server listens");
        Self(EchoClient::new(channel).max_decoding_message_size(MESSAGE_LEN_MAX))
    }

    async fn once(&mut self, text: String) -> String {
        self.0.once(Message { text }).await.expect("the server answers").into_inner().text
    }

    async fn repeat(&mut self, text: String, count: u32) -> u32 {
        let messages = self.0.repeat(RepeatRequest { text, count }).await;
        received(messages.expect("the server answers").into_inner()).await
    }

    async fn each(&mut self, text: String, count: u32) -> u32 {
        let messages = stream::iter(iter::repeat_n(Message { text }, count as usize));
        received(self.0.each(messages).await.expect("the server answers").into_inner()).await
    }
}

/// A tonic client and server on one thread, and a stream between them over loopback TCP.
pub struct TonicStreaming {
    runtime: Runtime,
    messages: Streaming<Message>,
}

impl TonicStreaming {
    /// Begins a stream of messages with this text.
    pub fn start(text: String) -> Self {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("it has no threads");
        let messages = runtime.block_on(async {
            let mut client = OverTonic::connect(OverTonic::serve().await).await.0;
            let messages = client.repeat(RepeatRequest { text, count: u32::MAX }).await;
            messages.expect("the server answers").into_inner()
        });
        Self { runtime, messages }
    }

    /// Receives this number of messages.
    pub fn receive(&mut self, count: usize) {
        let Self { runtime, messages } = self;
        runtime.block_on(async {
            for _ in 0..count {
                let message = messages.message().await.expect("the server sends on");
                assert!(message.is_some(), "it sends more than are read");
            }
        });
    }
}

async fn received(mut messages: Streaming<Message>) -> u32 {
    let mut count = 0;
    while messages.message().await.expect("the stream comes to its end").is_some() {
        count += 1;
    }
    count
}

struct Service;

#[tonic::async_trait]
impl echo_server::Echo for Service {
    type RepeatStream = BoxStream<Message>;
    type EachStream = Streaming<Message>;

    async fn once(&self, request: Request<Message>) -> Result<Response<Message>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn repeat(&self, request: Request<RepeatRequest>) -> Result<Response<Self::RepeatStream>, Status> {
        let RepeatRequest { text, count } = request.into_inner();
        let messages = iter::repeat_n(Ok(Message { text }), count as usize);
        Ok(Response::new(Box::pin(stream::iter(messages))))
    }

    async fn each(&self, request: Request<Streaming<Message>>) -> Result<Response<Self::EachStream>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}
