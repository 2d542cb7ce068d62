use std::{
    future, iter,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use frpc::{Request, Response, Server, Status, Streaming};
use futures_util::stream;

use crate::{
    Echo,
    schema::{self, Message, RepeatRequest, echo_client::EchoClient, echo_server::EchoServer},
    text,
};

/// An frpc connection with default settings.
#[derive(Clone)]
pub struct OverFrpc(EchoClient);

impl Echo for OverFrpc {
    const NAME: &'static str = "frpc";

    async fn serve() -> SocketAddr {
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = Server::builder().add_service(EchoServer::new(Service)).bind(any_port).await;
        let server = server.expect("a port is free");
        let addr = server.local_addr().socket_addr().expect("it is bound to TCP");
        tokio::spawn(async move {
            let _server = server;
            future::pending::<()>().await;
        });
        addr
    }

    async fn connect(addr: SocketAddr) -> Self {
        Self(EchoClient::connect(addr).await.expect("the server listens"))
    }

    async fn once(&mut self, text: String) -> String {
        self.0.once(Message { text }).await.expect("the server answers").into_inner().text
    }

    async fn repeat(&mut self, text: String, count: u32) -> u32 {
        let messages = self.0.repeat(RepeatRequest { text, count }).await;
        received(messages.expect("the server answers").into_inner()).await
    }

    async fn each(&mut self, text: String, count: u32) -> u32 {
        let messages = Streaming::new(stream::iter(iter::repeat_n(Ok(Message { text }), count as usize)));
        received(self.0.each(messages).await.expect("the server answers").into_inner()).await
    }
}

async fn received(mut messages: Streaming<Message>) -> u32 {
    let mut count = 0;
    while messages.message().await.expect("the stream comes to its end").is_some() {
        count += 1;
    }
    count
}

/// Returns a request with only a message of this length.
pub fn plain(len: usize) -> Request<Message> {
    Request::new(Message { text: text(len) })
}

/// Returns a request with a deadline and with metadata as added by a typical gateway.
pub fn with_metadata(len: usize) -> Request<Message> {
    let mut request = plain(len);
    for (name, value) in [
        ("authorization", "Bearer 0123456789abcdef"),
        ("x-request-id", "7f3d9a"),
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ("x-tenant", "acme"),
    ] {
        request.metadata_mut().insert(name, value).expect("it is a name and a value");
    }
    request.set_timeout(Duration::from_secs(5));
    request
}

/// The echo service.
#[derive(Clone, Copy, Debug)]
pub struct Service;

impl schema::echo_server::Echo for Service {
    async fn once(&self, request: Request<Message>) -> Result<Response<Message>, Status> {
        Ok(request.into_inner().into())
    }

    async fn repeat(&self, request: Request<RepeatRequest>) -> Result<Response<Streaming<Message>>, Status> {
        let RepeatRequest { text, count } = request.into_inner();
        let messages = iter::repeat_n(Ok(Message { text }), count as usize);
        Ok(Streaming::new(stream::iter(messages)).into())
    }

    async fn each(&self, request: Request<Streaming<Message>>) -> Result<Response<Streaming<Message>>, Status> {
        Ok(request.into_inner().into())
    }
}
