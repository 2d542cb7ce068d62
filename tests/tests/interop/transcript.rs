//! Records the bytes between a Go peer and one of ours through a proxy.

use std::{collections::BTreeSet, io, net::SocketAddr, sync::Arc, time::Duration};

use frisbee::{HeaderFormat, proto::Header};
use frpc::Server;
use support::{
    GoPeers,
    interop::{
        Service,
        schema::{interop_server::InteropServer, second_server::SecondServer},
    },
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Notify, mpsc},
    task::JoinHandle,
    time::timeout,
};

use crate::RUN_MAX;

pub(crate) const HEADERS: [HeaderFormat; 2] = [HeaderFormat::Magic10, HeaderFormat::Plain8];

#[tokio::test(flavor = "multi_thread")]
async fn go_clients_get_no_extended_bytes() {
    let Some(go) = GoPeers::find() else { return };
    for header in HEADERS {
        let server = serve().await;
        let recorder = Recorder::start(header, addr(&server)).await;
        let client = go.command("rpc-client", header).arg("-quick").arg(recorder.addr.to_string()).output();
        let output = client.await.expect("the client was built");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert_eq!(server.shutdown(Duration::from_secs(60)).await, 0, "connections outlived their client");
        check_server(recorder.transcripts().await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn go_clients_get_no_extended_bytes_at_a_shutdown() {
    let Some(go) = GoPeers::find() else { return };
    for header in HEADERS {
        let server = serve().await;
        let recorder = Recorder::start(header, addr(&server)).await;
        let mut client = go.command("rpc-client", header);
        let mut client = client.arg("-idle").arg(recorder.addr.to_string()).spawn().expect("the client was built");
        recorder.answered.notified().await;
        server.shutdown(Duration::from_secs(5)).await;
        client.kill().await.expect("it runs, or is not waited for yet");
        check_server(recorder.transcripts().await);
    }
}

fn check_server(transcripts: Vec<Transcript>) {
    assert!(transcripts.iter().any(|transcript| !transcript.server.operations.is_empty()), "the server has spoken");
    for Transcript { client, server } in transcripts {
        assert!(!client.operations.iter().any(is_reserved), "the client is one of Go");
        assert!(!server.operations.iter().any(is_reserved), "{server:?}");
    }
}

/// Checks the frames our clients sent to a Go server: a HELLO first, then no reserved operation.
pub(crate) fn check_clients(transcripts: Vec<Transcript>) {
    let mut seen = BTreeSet::new();
    for Transcript { client, server } in transcripts {
        assert!(!server.operations.iter().any(is_reserved), "the server is one of Go");
        let Some((first, rest)) = client.operations.split_first() else { panic!("a connection without a HELLO") };
        assert_eq!(*first, CONTROL, "{client:?}");
        assert_eq!(client.first_content.first(), Some(&HELLO), "{client:?}");
        assert!(!rest.iter().any(is_reserved), "{client:?}");
        seen.extend(rest.iter().copied());
    }
    // The check saw streams and all unary methods of the first service, so it did not pass for lack of frames.
    assert!([STREAM, 10, 11, 12, 13, 18].iter().all(|operation| seen.contains(operation)), "{seen:?}");
}

/// Returns `true` for an operation with a meaning only among extended peers.
fn is_reserved(operation: &u16) -> bool {
    (3..=9).contains(operation)
}

async fn serve() -> Server {
    let builder = Server::builder().add_service(InteropServer::new(Service)).add_service(SecondServer::new(Service));
    builder.bind("tcp://127.0.0.1:0").await.expect("some port is free")
}

fn addr(server: &Server) -> SocketAddr {
    server.local_addr().socket_addr().expect("it listens on TCP")
}

/// A recording proxy in front of a server.
pub(crate) struct Recorder {
    /// Address for clients.
    pub(crate) addr: SocketAddr,
    /// Notified when a server has sent something.
    answered: Arc<Notify>,
    accepting: JoinHandle<()>,
    ended: mpsc::UnboundedReceiver<Transcript>,
}

/// Frames of a connection.
#[derive(Debug)]
pub(crate) struct Transcript {
    client: Direction,
    server: Direction,
}

/// Frames of one direction, as a list of operations.
#[derive(Debug)]
struct Direction {
    header: HeaderFormat,
    operations: Vec<u16>,
    /// Beginning of the first frame's content.
    first_content: Vec<u8>,
    /// The part of the next frame's header received so far.
    partial: Vec<u8>,
    /// Number of remaining content bytes of the last frame.
    content_left: usize,
}

impl Recorder {
    /// Starts a proxy in front of a server.
    pub(crate) async fn start(header: HeaderFormat, server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("some port is free");
        let addr = listener.local_addr().expect("it is bound");
        let answered = Arc::new(Notify::new());
        let (sender, ended) = mpsc::unbounded_channel();
        let accepting = tokio::spawn({
            let answered = answered.clone();
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    tokio::spawn(record(header, client, server, answered.clone(), sender.clone()));
                }
            }
        });
        Self { addr, answered, accepting, ended }
    }

    /// Waits until all connections have ended, and returns their transcripts.
    pub(crate) async fn transcripts(mut self) -> Vec<Transcript> {
        self.accepting.abort();
        let mut transcripts = Vec::new();
        let all = async {
            while let Some(transcript) = self.ended.recv().await {
                transcripts.push(transcript);
            }
        };
        timeout(RUN_MAX, all).await.expect("both sides close their connections");
        transcripts
    }
}

async fn record(
    header: HeaderFormat,
    mut client: TcpStream,
    server: SocketAddr,
    answered: Arc<Notify>,
    ended: mpsc::UnboundedSender<Transcript>,
) {
    let mut transcript = Transcript { client: Direction::new(header), server: Direction::new(header) };
    if let Ok(mut server) = TcpStream::connect(server).await {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        // The end of one side ends both directions, as without the proxy.
        let _ = tokio::try_join!(
            forward(from_client, to_server, &mut transcript.client, None),
            forward(from_server, to_client, &mut transcript.server, Some(&answered)),
        );
    }
    // After a failed test, the receiver is gone.
    let _ = ended.send(transcript);
}

async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    direction: &mut Direction,
    heard: Option<&Notify>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let len = from.read(&mut buffer).await?;
        if len == 0 {
            return to.shutdown().await;
        }
        direction.hear(&buffer[..len]);
        heard.inspect(|heard| heard.notify_one());
        to.write_all(&buffer[..len]).await?;
    }
}

impl Direction {
    fn new(header: HeaderFormat) -> Self {
        Self { header, operations: Vec::new(), first_content: Vec::new(), partial: Vec::new(), content_left: 0 }
    }

    fn hear(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (content, rest) = bytes.split_at(self.content_left.min(bytes.len()));
            self.content_left -= content.len();
            if self.operations.len() == 1 {
                let wanted = FIRST_KEPT.saturating_sub(self.first_content.len());
                self.first_content.extend(content.iter().take(wanted));
            }
            let wanted = self.header.header_len() - self.partial.len();
            let (head, rest) = rest.split_at(wanted.min(rest.len()));
            self.partial.extend_from_slice(head);
            bytes = rest;
            if self.partial.len() == self.header.header_len() {
                let decoded = Header::decode(self.header, &self.partial).expect("both sides speak with this header");
                let Header { operation, len, .. } = decoded.expect("it is whole");
                self.operations.push(operation);
                self.content_left = len as usize;
                self.partial.clear();
            }
        }
    }
}

const STREAM: u16 = 2;
const CONTROL: u16 = 3;
/// Kind of a HELLO among CONTROL frames.
const HELLO: u8 = 1;
/// Number of bytes kept of the first content.
const FIRST_KEPT: usize = 16;
