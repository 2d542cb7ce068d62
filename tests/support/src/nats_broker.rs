//! A NATS server within the test process. Its clients share the virtual time of the test.

use std::{
    net::SocketAddr,
    str::SplitAsciiWhitespace,
    sync::{Arc, Mutex, MutexGuard},
};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::{
    io::{self, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
    task::{AbortHandle, JoinSet},
};

/// A server for messages, headers, queue groups and "no responders", without JetStream. It ends when dropped.
///
/// A process of nats-server needs real time: virtual time would pass while a message is under way.
#[derive(Debug)]
pub struct NatsBroker {
    addr: SocketAddr,
    accepting: AbortHandle,
    state: Arc<Mutex<BrokerState>>,
}

#[derive(Debug, Default)]
struct BrokerState {
    subscriptions: Vec<Subscription>,
    /// The number of connections so far.
    accepted: u64,
    open: usize,
    deliveries: usize,
}

#[derive(Debug)]
struct Subscription {
    connection: u64,
    id: String,
    pattern: String,
    queue: Option<String>,
    /// The number of messages until its end.
    left: Option<u64>,
    outbox: mpsc::UnboundedSender<Bytes>,
}

/// One connection of a client.
struct BrokerConnection {
    state: Arc<Mutex<BrokerState>>,
    number: u64,
    outbox: mpsc::UnboundedSender<Bytes>,
}

impl NatsBroker {
    /// Starts a server on a free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let addr = listener.local_addr().expect("it listens");
        let state = Arc::<Mutex<BrokerState>>::default();
        let shared = state.clone();
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                connections.spawn(BrokerConnection::serve(shared.clone(), socket));
            }
        });
        Self { addr, accepting: accepting.abort_handle(), state }
    }

    /// Returns the address for clients.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.state.lock().unwrap().open
    }

    /// Returns the number of messages published so far.
    pub fn messages(&self) -> usize {
        self.state.lock().unwrap().deliveries
    }
}

impl Drop for NatsBroker {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl BrokerConnection {
    async fn serve(state: Arc<Mutex<BrokerState>>, socket: TcpStream) {
        socket.set_nodelay(true).expect("it is open");
        let (reader, writer) = socket.into_split();
        let (outbox, messages) = mpsc::unbounded_channel();
        let number = {
            let mut state = state.lock().unwrap();
            state.open += 1;
            state.accepted += 1;
            state.accepted
        };
        let connection = Self { state, number, outbox };
        connection.send(format!("INFO {INFO}\r\n"));
        tokio::select! {
            _ = connection.read(BufReader::new(reader)) => {}
            _ = write(writer, messages) => {}
        }
    }

    async fn read(&self, mut reader: BufReader<OwnedReadHalf>) -> io::Result<()> {
        let mut line = String::new();
        while reader.read_line(&mut line).await? > 0 {
            let mut words = line.split_ascii_whitespace();
            let verb = words.next().unwrap_or_default().to_owned();
            match &*verb {
                "PING" => self.send("PONG\r\n"),
                "SUB" => self.subscribe(words),
                "UNSUB" => self.unsubscribe(words),
                "PUB" | "HPUB" => {
                    let words: Vec<_> = words.collect();
                    let numbers = if verb == "PUB" { 1 } else { 2 };
                    let (names, lens) = words.split_at(words.len() - numbers);
                    let lens: Vec<usize> = lens.iter().map(|len| len.parse().expect("it is a length")).collect();
                    let mut content = vec![0; lens[numbers - 1] + "\r\n".len()];
                    reader.read_exact(&mut content).await?;
                    content.truncate(lens[numbers - 1]);
                    let payload = content.split_off(if numbers == 2 { lens[0] } else { 0 });
                    self.publish(names[0], names.get(1).copied(), &content, &payload);
                }
                _ => {}
            }
            line.clear();
        }
        Ok(())
    }

    fn send(&self, text: impl Into<Bytes>) {
        let _ = self.outbox.send(text.into());
    }

    fn state(&self) -> MutexGuard<'_, BrokerState> {
        self.state.lock().unwrap()
    }

    fn subscribe(&self, words: SplitAsciiWhitespace<'_>) {
        let words: Vec<_> = words.map(str::to_owned).collect();
        let (pattern, id) = (words[0].clone(), words[words.len() - 1].clone());
        let queue = (words.len() == 3).then(|| words[1].clone());
        let (connection, outbox) = (self.number, self.outbox.clone());
        self.state().subscriptions.push(Subscription { connection, id, pattern, queue, left: None, outbox });
    }

    fn unsubscribe(&self, mut words: SplitAsciiWhitespace<'_>) {
        let id = words.next().expect("it names a subscription").to_owned();
        // As nats-server, which takes a number of more than nine digits for none.
        let left = words.next().filter(|left| left.len() < 10).map(|left| left.parse().expect("it is a number"));
        self.state().subscriptions.retain_mut(|subscription| {
            let is_meant = subscription.connection == self.number && subscription.id == id;
            if is_meant {
                subscription.left = left;
            }
            !is_meant || left.is_some()
        });
    }

    fn publish(&self, subject: &str, reply: Option<&str>, headers: &[u8], payload: &[u8]) {
        let mut state = self.state();
        let has_receiver = state.deliver(subject, reply, headers, payload);
        if let Some(reply) = reply.filter(|_| !has_receiver) {
            state.deliver(reply, None, b"NATS/1.0 503\r\n\r\n", b"");
        }
    }
}

impl Drop for BrokerConnection {
    fn drop(&mut self) {
        let mut state = self.state();
        state.open -= 1;
        state.subscriptions.retain(|subscription| subscription.connection != self.number);
    }
}

impl BrokerState {
    /// Sends a message to each subscription without a queue group, and to one of each group. Returns `false` without any.
    fn deliver(&mut self, subject: &str, reply: Option<&str>, headers: &[u8], payload: &[u8]) -> bool {
        self.deliveries += 1;
        let is_match = |subscription: &&mut Subscription| matches(&subscription.pattern, subject);
        let mut found: Vec<_> = self.subscriptions.iter_mut().filter(is_match).collect();
        // The members of a group take turns.
        let first = self.deliveries % found.len().max(1);
        found.rotate_left(first);
        let mut served: Vec<String> = Vec::new();
        for subscription in &mut found {
            match &subscription.queue {
                Some(queue) if served.contains(queue) => continue,
                Some(queue) => served.push(queue.clone()),
                None => {}
            }
            subscription.send(subject, reply, headers, payload);
        }
        let has_receiver = !found.is_empty();
        self.subscriptions.retain(|subscription| subscription.left != Some(0));
        has_receiver
    }
}

impl Subscription {
    fn send(&mut self, subject: &str, reply: Option<&str>, headers: &[u8], payload: &[u8]) {
        self.left = self.left.map(|left| left - 1);
        let (id, reply) = (&self.id, reply.map(|reply| format!("{reply} ")).unwrap_or_default());
        let len = headers.len() + payload.len();
        let head = match headers.len() {
            0 => format!("MSG {subject} {id} {reply}{len}\r\n"),
            headers => format!("HMSG {subject} {id} {reply}{headers} {len}\r\n"),
        };
        let mut message = BytesMut::from(head.as_bytes());
        for part in [headers, payload, b"\r\n"] {
            message.put_slice(part);
        }
        let _ = self.outbox.send(message.freeze());
    }
}

async fn write(mut writer: OwnedWriteHalf, mut messages: mpsc::UnboundedReceiver<Bytes>) -> io::Result<()> {
    while let Some(message) = messages.recv().await {
        writer.write_all(&message).await?;
    }
    Ok(())
}

fn matches(pattern: &str, subject: &str) -> bool {
    let (mut pattern, mut subject) = (pattern.split('.'), subject.split('.'));
    loop {
        match (pattern.next(), subject.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some("*"), Some(_)) => {}
            (Some(one), Some(other)) if one == other => {}
            _ => return false,
        }
    }
}

const INFO: &str =
    r#"{"server_id":"test","server_name":"test","version":"2.11.0","proto":1,"headers":true,"max_payload":1048576}"#;
