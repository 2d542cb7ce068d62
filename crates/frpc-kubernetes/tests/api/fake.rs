//! An API server whose answers the test writes, byte by byte.

use std::net::SocketAddr;

use frpc::{ClientTls, Pem};
use frpc_kubernetes::{ClusterConfig, KubernetesResolver, ResolverSettings};
use support::Identity;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

/// The server. Each connection carries one request.
pub(crate) struct FakeApi {
    addr: SocketAddr,
    requests: mpsc::UnboundedReceiver<Asked>,
}

/// A request that waits for its answer.
pub(crate) struct Asked {
    /// The path and query after those of all requests.
    pub(crate) query: String,
    pub(crate) head: String,
    socket: TcpStream,
}

/// The answer to a watch.
pub(crate) struct Watched(TcpStream);

impl FakeApi {
    pub(crate) async fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (sender, requests) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match socket.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => break,
                    }
                }
                let head = String::from_utf8(head).unwrap();
                let path = head.split(' ').nth(1).unwrap_or_default();
                let query = path.strip_prefix(PATH).unwrap_or(path).to_owned();
                if sender.send(Asked { query, head, socket }).is_err() {
                    break;
                }
            }
        });
        Self { addr, requests }
    }

    pub(crate) fn config(&self) -> ClusterConfig {
        let roots = ClientTls::with_roots(Pem::file(Identity::new().pem_file().path())).unwrap();
        ClusterConfig::new(&format!("http://{}", self.addr), roots).unwrap().token("secret")
    }

    pub(crate) fn resolver(&self, settings: ResolverSettings) -> KubernetesResolver {
        KubernetesResolver::new("kubernetes:///orders.shop:grpc", &self.config(), &settings).unwrap()
    }

    pub(crate) async fn next(&mut self) -> Asked {
        self.requests.recv().await.unwrap()
    }

    /// Answers the next request, which must be a list without a continuation.
    pub(crate) async fn list(&mut self, body: impl AsRef<[u8]>) {
        let asked = self.next().await;
        assert_eq!(asked.query, "&limit=50");
        asked.answer(200, body).await;
    }

    /// Answers the next request, which must be a watch after this version.
    pub(crate) async fn watch(&mut self, version: &str) -> Watched {
        let asked = self.next().await;
        let expected = format!("&watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds=");
        assert!(asked.query.starts_with(&expected), "{}", asked.query);
        let seconds: u64 = asked.query[expected.len()..].parse().unwrap();
        assert!((150..=300).contains(&seconds), "{seconds}");
        let mut socket = asked.socket;
        socket.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
        Watched(socket)
    }
}

impl Asked {
    /// Sends a part of the answer. Returns `false` after the client has closed the connection.
    pub(crate) async fn send(&mut self, part: &str) -> bool {
        self.socket.write_all(part.as_bytes()).await.is_ok()
    }

    pub(crate) async fn answer(mut self, status: u16, body: impl AsRef<[u8]>) {
        let body = body.as_ref();
        let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n", body.len());
        self.socket.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    }
}

impl Watched {
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        // The client may have closed the connection after an invalid event.
        let _ = self.0.write_all(&[format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()).await;
    }

    /// Ends the watch in the regular way.
    pub(crate) async fn end(mut self) {
        let _ = self.0.write_all(b"0\r\n\r\n").await;
    }

    /// Waits until the client closes the connection.
    pub(crate) async fn closed(mut self) {
        while matches!(self.0.read(&mut [0; 64]).await, Ok(1..)) {}
    }
}

const PATH: &str = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices?labelSelector=kubernetes.io%2F\
                    service-name%3Dorders";
