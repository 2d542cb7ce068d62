//! The memory that idle HTTP/2 connections hold at a server, on TCP.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::mpsc,
    thread,
    time::Duration,
};

use frpc::Server;
use frpc_http::{Http, HttpSettings};
use support::{
    calls::{TestServer, TestService},
    http2::{ACK, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, SETTINGS, call, frame},
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::{LIVE, current_thread};

/// A server on its own thread, which tells the memory of the thread.
struct Measured {
    addr: SocketAddr,
    questions: UnboundedSender<mpsc::Sender<isize>>,
}

impl Measured {
    fn start() -> Self {
        let (addr_sender, addr) = mpsc::channel();
        let (questions, mut asked) = unbounded_channel::<mpsc::Sender<isize>>();
        thread::spawn(move || {
            current_thread().block_on(async {
                let keepalive_interval = Some(Duration::from_secs(1));
                let http = Http::new().settings(HttpSettings { keepalive_interval, ..HttpSettings::default() });
                let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
                let services = Server::builder().wire(http).add_service(TestServer::new(TestService::default()));
                let server = services.bind(any_port).await.unwrap();
                addr_sender.send(server.local_addr().socket_addr().unwrap()).unwrap();
                while let Some(question) = asked.recv().await {
                    question.send(LIVE.get()).unwrap();
                }
            });
        });
        Self { addr: addr.recv().unwrap(), questions }
    }

    fn live(&self) -> isize {
        let (sender, answer) = mpsc::channel();
        self.questions.send(sender).unwrap();
        answer.recv().unwrap()
    }

    /// Connects, and waits until the server has handled the settings.
    fn connect(&self) -> TcpStream {
        let mut socket = TcpStream::connect(self.addr).unwrap();
        socket.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, b"")].concat()).unwrap();
        until(&mut socket, |kind, flags| kind == SETTINGS && flags == ACK);
        socket
    }
}

/// Makes a call, and waits for its end.
fn make_call(socket: &mut TcpStream) {
    let head = frame(HEADERS, END_HEADERS, 1, &call("Say"));
    socket.write_all(&[head, frame(DATA, END_STREAM, 1, b"\0\0\0\0\x04\x0a\x02hi")].concat()).unwrap();
    until(socket, |kind, flags| kind == HEADERS && flags & END_STREAM != 0);
}

/// Reads frames until one has this kind and these flags.
fn until(socket: &mut TcpStream, is_last: impl Fn(u8, u8) -> bool) {
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head).unwrap();
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        socket.read_exact(&mut vec![0; len.try_into().unwrap()]).unwrap();
        if is_last(head[3], head[4]) {
            return;
        }
    }
}

#[test]
fn idle_http2_connections_hold_little_memory() {
    // A buffer of the thread that is replaced meanwhile counts as 14 bytes of each connection, in one of three rounds.
    let rounds = [(); 3].map(|()| measure_connections());
    println!("bytes before a call, after one, after a PING: {rounds:?}");
    let [new, used, idle] = rounds.into_iter().min().unwrap();
    assert!(new <= NEW_LEN_MAX && idle <= IDLE_LEN_MAX && used <= USED_LEN_MAX, "{new}, {used}, {idle} bytes");
}

/// Returns the bytes of each connection before a call, after one, and after the first PING.
fn measure_connections() -> [usize; 3] {
    // The first PING, after a second, also frees what the call has left.
    let server = Measured::start();
    let per_connection = |live: isize| usize::try_from(live).unwrap() / CONNECTIONS;
    // The first connection fills the buffers of the thread.
    make_call(&mut server.connect());
    let before = server.live();
    let mut sockets: Vec<_> = (0..CONNECTIONS).map(|_| server.connect()).collect();
    let new = per_connection(server.live() - before);
    sockets.iter_mut().for_each(make_call);
    let used = per_connection(server.live() - before);
    sockets.iter_mut().for_each(|socket| until(socket, |kind, _| kind == PING));
    [new, used, per_connection(server.live() - before)]
}

const CONNECTIONS: usize = 500;

const NEW_LEN_MAX: usize = 5 << 10;
const USED_LEN_MAX: usize = 7 << 10;
const IDLE_LEN_MAX: usize = 6 << 10;
