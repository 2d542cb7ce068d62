//! Calls for which no channel of ours has a transport: REST, and batches of JSON-RPC.

use std::{
    io, mem,
    pin::{Pin, pin},
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use frpc::{
    Answer, Body, Call, Caller, Code, ConnectError, ConnectSettings, Connected, Status, Streaming, Transport,
    codec::Format,
};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::oneshot,
    task::yield_now,
    time::timeout,
};

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Makes each call, or each batch of calls, on a connection of its own.
pub(crate) struct PlainPosts;

impl Transport for PlainPosts {
    fn schemes(&self) -> &[&str] {
        &[REST, BATCH]
    }

    fn connect(&self, url: String, _: ConnectSettings) -> BoxFuture<'static, Result<Connected, ConnectError>> {
        let (scheme, rest) = url.split_once("://").unwrap();
        let address = rest.split('/').next().unwrap().to_owned();
        let caller: Arc<dyn Caller> = match scheme {
            REST => Arc::new(RestCaller { address }),
            _ => Arc::new(BatchCaller { address: address.into(), waiting: Arc::default() }),
        };
        Box::pin(async { Ok(Connected::Calls(caller)) })
    }
}

pub(crate) const REST: &str = "rest";
pub(crate) const BATCH: &str = "jsonrpc+batch";

struct RestCaller {
    address: String,
}

impl Caller for RestCaller {
    fn format(&self) -> Format {
        Format::Json
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Status>> {
        Box::pin(async move {
            let time = call.head().timeout();
            within(time, self.make(call, time)).await
        })
    }
}

impl RestCaller {
    async fn make(&self, call: Call, time: Option<Duration>) -> Result<Answer, Status> {
        let (path, kind) = (format!("/v1/{}", call.method().name.to_lowercase()), call.kind());
        let requests = match call.into_parts().1 {
            Body::One(message) => stream::iter([Ok(message.into_bytes())]).boxed(),
            Body::Many(messages) => messages.boxed(),
            _ => unreachable!("there are two kinds of bodies"),
        };
        let (mut response, writer) =
            PostResponse::open(&self.address, &path, time).await.map_err(|error| lost(&error))?;
        let head = {
            let writing = pin!(async {
                let _writer = send_all(writer, requests).await;
                // The server may answer before the end of the requests, and after it.
                std::future::pending::<()>().await;
            });
            tokio::select! {
                biased;
                () = writing => unreachable!("it never ends"),
                head = response.read_head() => head,
            }
        };
        let code = head.map_err(|error| lost(&error))?;
        if code == 200 && kind.has_response_stream() {
            return Ok(Answer::new(Body::Many(Streaming::new(response.lines()))));
        }
        let content = response.read_all().await.map_err(|error| lost(&error))?;
        if code == 200 { Ok(Answer::new(Body::from(content))) } else { Err(status(&parse(&content))) }
    }
}

/// Sends messages as pieces of a body.
async fn send_all(
    mut writer: OwnedWriteHalf,
    mut messages: stream::BoxStream<'_, Result<Bytes, Status>>,
) -> io::Result<OwnedWriteHalf> {
    while let Some(message) = messages.next().await {
        let message = message.expect("these streams have no errors");
        let piece = [format!("{:x}\r\n", message.len()).as_bytes(), &message, b"\r\n"].concat();
        writer.write_all(&piece).await?;
    }
    writer.write_all(b"0\r\n\r\n").await?;
    Ok(writer)
}

/// Sends the calls that a task makes in one turn as one array.
struct BatchCaller {
    address: Arc<str>,
    waiting: Arc<Mutex<Vec<WaitingCall>>>,
}

struct WaitingCall {
    request: Value,
    answer: oneshot::Sender<Result<Bytes, Status>>,
}

impl Caller for BatchCaller {
    fn format(&self) -> Format {
        Format::Json
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Status>> {
        let (time, method) = (call.head().timeout(), call.method().path());
        let Body::One(message) = call.into_parts().1 else { panic!("JSON-RPC over HTTP has no streams") };
        let (answer, answered) = oneshot::channel();
        let request = json!({ "jsonrpc": "2.0", "method": method, "params": parse(&message.into_bytes()) });
        Box::pin(async move {
            let is_first = {
                let mut waiting = self.waiting.lock().unwrap();
                waiting.push(WaitingCall { request, answer });
                waiting.len() == 1
            };
            if is_first {
                let (ready, is_ready) = oneshot::channel::<()>();
                tokio::spawn(send_batch(self.address.clone(), self.waiting.clone(), is_ready));
                // The other calls of its task are made first. This one may be dropped meanwhile.
                yield_now().await;
                drop(ready);
            }
            let answer = within(time, async { answered.await.expect("each call of a batch has an answer") }).await?;
            Ok(Answer::new(Body::from(answer)))
        })
    }
}

async fn send_batch(address: Arc<str>, waiting: Arc<Mutex<Vec<WaitingCall>>>, is_ready: oneshot::Receiver<()>) {
    let _ = is_ready.await;
    let calls = mem::take(&mut *waiting.lock().unwrap());
    let (mut requests, mut answers) = (Vec::new(), Vec::new());
    for (id, WaitingCall { mut request, answer }) in calls.into_iter().enumerate() {
        request["id"] = json!(id);
        requests.push(request);
        answers.push(answer);
    }
    let exchange = async {
        let (mut response, writer) = PostResponse::open(&address, "/rpc", None).await?;
        let batch = Bytes::from(Value::from(requests).to_string());
        let _writer = send_all(writer, stream::iter([Ok(batch)]).boxed()).await?;
        response.read_head().await?;
        response.read_all().await
    };
    let answered = exchange.await.map(|content| parse(&content));
    for (id, answer) in answers.into_iter().enumerate() {
        let outcome = match &answered {
            Ok(all) => match all.as_array().unwrap().iter().find(|answer| answer["id"] == id) {
                Some(Value::Object(members)) if members.contains_key("result") => {
                    Ok(Bytes::from(members["result"].to_string()))
                }
                failed => Err(Status::unknown(format!("{failed:?}"))),
            },
            Err(error) => Err(lost(error)),
        };
        // A caller may have given up.
        let _ = answer.send(outcome);
    }
}

/// The answer to a POST request.
struct PostResponse {
    reader: BufReader<OwnedReadHalf>,
    /// The length of a body without pieces.
    len: Option<usize>,
}

impl PostResponse {
    /// Sends the head of a request whose body follows in pieces.
    async fn open(address: &str, path: &str, time: Option<Duration>) -> io::Result<(Self, OwnedWriteHalf)> {
        let (reader, mut writer) = TcpStream::connect(address).await?.into_split();
        let time = time.map(|time| format!("connect-timeout-ms: {}\r\n", time.as_millis())).unwrap_or_default();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\ncontent-type: application/json\r\n{time}\
             transfer-encoding: chunked\r\n\r\n"
        );
        writer.write_all(head.as_bytes()).await?;
        Ok((Self { reader: BufReader::new(reader), len: None }, writer))
    }

    async fn read_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_ascii_lowercase()),
        }
    }

    /// Returns the status.
    async fn read_head(&mut self) -> io::Result<u16> {
        let status = self.read_line().await?;
        loop {
            let line = self.read_line().await?;
            if line.is_empty() {
                return Ok(status["http/1.1 ".len()..][..3].parse().unwrap());
            }
            if let Some(len) = line.strip_prefix("content-length: ") {
                self.len = Some(len.parse().unwrap());
            }
        }
    }

    /// Reads a piece of the body. The last one is empty.
    async fn read_piece(&mut self) -> io::Result<Vec<u8>> {
        let len = match self.len.replace(0) {
            Some(len) => len,
            None => {
                self.len = None;
                usize::from_str_radix(&self.read_line().await?, 16).unwrap()
            }
        };
        let mut piece = vec![0; len];
        self.reader.read_exact(&mut piece).await?;
        if self.len.is_none() {
            self.read_line().await?;
        }
        Ok(piece)
    }

    async fn read_all(&mut self) -> io::Result<Bytes> {
        let mut all = Vec::new();
        loop {
            match self.read_piece().await? {
                piece if piece.is_empty() => return Ok(all.into()),
                piece => all.extend(piece),
            }
        }
    }

    /// Returns the messages of a stream, one per line.
    fn lines(self) -> impl futures_util::Stream<Item = Result<Bytes, Status>> {
        stream::try_unfold((self, Vec::new()), async |(mut response, mut read): (Self, Vec<u8>)| {
            loop {
                if let Some(end) = read.iter().position(|byte| *byte == b'\n') {
                    let line = parse(&read.drain(..=end).collect::<Vec<_>>());
                    return match line.get("result") {
                        Some(result) => Ok(Some((Bytes::from(result.to_string()), (response, read)))),
                        None => Err(status(&line["error"])),
                    };
                }
                match response.read_piece().await.map_err(|error| lost(&error))? {
                    piece if piece.is_empty() => return Ok(None),
                    piece => read.extend(piece),
                }
            }
        })
    }
}

async fn within<T>(time: Option<Duration>, call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    match time {
        Some(time) => timeout(time, call).await.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time"))),
        None => call.await,
    }
}

fn parse(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap()
}

fn status(error: &Value) -> Status {
    let code = error["code"].as_i64().unwrap();
    Status::new(Code::from_number(i32::try_from(code).unwrap()), error["message"].as_str().unwrap_or_default())
}

fn lost(error: &io::Error) -> Status {
    Status::unavailable(format!("the connection was lost: {error}"))
}
