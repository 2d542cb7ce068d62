//! A wire implemented by hand on the port of a frisbee server. It finds methods by path and has protobuf messages.

use bytes::Bytes;
use frpc::{
    Answer, Body, Call, Code, Drain, Endpoint, Head, Layer, Next, ProtocolMatch, Raw, Server, ServerBuilder, Status,
    StreamSender, Streaming, Wire, codec::Format, prost::Message,
};
use support::{
    EventLog, SECOND,
    calls::{TestServer, TestService, Words, ask, connect, of_kind, quiet, words},
    in_virtual_time, settle,
};
use tokio::io::{self, AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf, duplex, split};

/// Calls as lines of text. A call consists of the path of its method, a line per message in hexadecimal digits, and an
/// empty line. Its answer consists of a line per message, and a line with the code and text of its status.
struct Lines;

const GREETING: &str = "LINES\n";

type Reader = io::Lines<BufReader<ReadHalf<Raw>>>;
type Writer = WriteHalf<Raw>;

impl Wire for Lines {
    fn recognize(&self, first: &[u8], _alpn: Option<&[u8]>) -> ProtocolMatch {
        ProtocolMatch::by_prefix(first, GREETING.as_bytes())
    }

    async fn serve(&self, socket: Raw, endpoint: Endpoint, drain: Drain) {
        let (reader, mut writer) = split(socket);
        let mut reader = BufReader::new(reader).lines();
        if next_line(&mut reader).await.is_err() {
            return;
        }
        loop {
            let path = tokio::select! {
                path = next_line(&mut reader) => path,
                () = drain.requested() => return,
            };
            let Ok(path) = path else { return };
            if serve_call(&endpoint, &path, &mut reader, &mut writer).await.is_err() {
                return;
            }
        }
    }
}

/// Serves a call. Fails if the connection ends. The handler is dropped then.
async fn serve_call(
    endpoint: &Endpoint,
    path: &str,
    reader: &mut Reader,
    writer: &mut Writer,
) -> Result<(), io::Error> {
    let (sender, requests) = Streaming::channel(1);
    let answering = async {
        let end = match answer(endpoint, path, requests, writer).await {
            Ok(()) => "Ok \n".to_owned(),
            Err(status) => format!("{:?} {}\n", status.code(), status.message()),
        };
        writer.write_all(end.as_bytes()).await
    };
    tokio::try_join!(read_requests(reader, sender), answering).map(drop)
}

async fn read_requests(reader: &mut Reader, sender: StreamSender<Bytes>) -> Result<(), io::Error> {
    loop {
        let line = next_line(reader).await?;
        if line.is_empty() {
            return Ok(());
        }
        // A finished method reads no more requests.
        let _ = sender.send(unhex(&line)).await;
    }
}

/// Calls the method and writes the messages of its answer as they arrive.
async fn answer(
    endpoint: &Endpoint,
    path: &str,
    mut requests: Streaming<Bytes>,
    writer: &mut Writer,
) -> Result<(), Status> {
    let found = endpoint.find(path).ok_or_else(|| Status::unimplemented(format!("no method {path}")))?;
    let body = match found.method().kind.has_request_stream() {
        true => Body::Many(requests),
        false => Body::from(requests.message().await?.unwrap_or_default()),
    };
    match endpoint.call(found, Format::Proto, Head::default(), body).await?.into_body() {
        Body::One(content) => write_message(writer, &content.into_bytes()).await,
        Body::Many(mut contents) => {
            while let Some(content) = contents.message().await? {
                write_message(writer, &content).await?;
            }
            Ok(())
        }
        body => Err(Status::unimplemented(format!("no line for {body:?}"))),
    }
}

async fn write_message(writer: &mut Writer, content: &Bytes) -> Result<(), Status> {
    let written = writer.write_all(format!("{content:x}\n").as_bytes()).await;
    written.map_err(|error| Status::unavailable(error.to_string()))
}

/// Reads a line. The end of the connection is an error too.
async fn next_line(reader: &mut Reader) -> Result<String, io::Error> {
    reader.next_line().await?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

fn unhex(line: &str) -> Bytes {
    let digits = line.as_bytes().chunks(2).map(|digits| str::from_utf8(digits).unwrap());
    digits.map(|digits| u8::from_str_radix(digits, 16).unwrap()).collect()
}

/// Returns a builder for a server of frisbee and lines.
fn server(service: &TestService) -> ServerBuilder<((), TestServer<TestService>)> {
    Server::builder().config(quiet()).wire(Lines).add_service(TestServer::new(service.clone()))
}

/// A caller with hand-written lines.
struct LineCaller(io::Lines<BufReader<ReadHalf<DuplexStream>>>, WriteHalf<DuplexStream>);

impl LineCaller {
    async fn connect(server: &Server) -> Self {
        let (ours, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        let (reader, writer) = split(ours);
        let mut caller = Self(BufReader::new(reader).lines(), writer);
        caller.say(GREETING).await;
        caller
    }

    async fn say(&mut self, text: &str) {
        self.1.write_all(text.as_bytes()).await.unwrap();
    }

    async fn say_message(&mut self, text: &str) {
        self.say(&format!("{:x}\n", Bytes::from(words(text).encode_to_vec()))).await;
    }

    /// Returns the text of the next message, or the status at the end of a call. Returns `None` at the end of the
    /// connection.
    async fn hear(&mut self) -> Option<Result<String, String>> {
        let line = self.0.next_line().await.unwrap()?;
        Some(match line.contains(' ') {
            true => Err(line),
            false => Ok(Words::decode(unhex(&line)).unwrap().text),
        })
    }

    /// Returns the messages of the current answer, followed by its status.
    async fn answer(&mut self) -> Vec<String> {
        let mut heard = Vec::new();
        loop {
            match self.hear().await.expect("the connection goes on") {
                Ok(text) => heard.push(text),
                Err(status) => {
                    heard.push(status);
                    return heard;
                }
            }
        }
    }

    /// Makes a call. Returns the messages of its answer and its status.
    async fn ask(&mut self, path: &str, texts: &[&str]) -> Vec<String> {
        self.say(&format!("{path}\n")).await;
        for text in texts {
            self.say_message(text).await;
        }
        self.say("\n").await;
        self.answer().await
    }
}

#[test]
fn a_wire_serves_calls_of_every_kind_by_path() {
    in_virtual_time(async {
        let server = server(&TestService::default()).without_listener().unwrap();
        let mut caller = LineCaller::connect(&server).await;
        assert_eq!(caller.ask("calls.Test/Say", &["hi"]).await, ["hi", "Ok "]);
        assert_eq!(caller.ask("/calls.Test/Say", &["hi"]).await, ["hi", "Ok "], "with a slash in front");
        assert_eq!(caller.ask("calls.Test/Count", &["a, b"]).await, ["a", "b", "Ok "]);
        assert_eq!(caller.ask("calls.Test/Gather", &["a", "b"]).await, ["a b", "Ok "]);
        assert_eq!(caller.ask("calls.Test/Chat", &["a", "b"]).await, ["re: a", "re: b", "Ok "]);
    });
}

#[test]
fn bidirectional_streams_interleave_on_a_wire() {
    in_virtual_time(async {
        let server = server(&TestService::default()).without_listener().unwrap();
        let mut caller = LineCaller::connect(&server).await;
        caller.say("calls.Test/Chat\n").await;
        for text in ["one", "two", "three"] {
            caller.say_message(text).await;
            assert_eq!(caller.hear().await, Some(Ok(format!("re: {text}"))));
        }
        caller.say("\n").await;
        assert_eq!(caller.hear().await, Some(Err("Ok ".into())));
    });
}

#[test]
fn calls_on_a_wire_fail_with_the_status_of_their_handler() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = server(&service).without_listener().unwrap();
        let mut caller = LineCaller::connect(&server).await;
        for method in ["Say", "Count", "Gather", "Chat"] {
            let path = format!("calls.Test/{method}");
            assert_eq!(caller.ask(&path, &["fail 5 no such order"]).await, ["NotFound no such order"]);
            assert_eq!(caller.ask(&path, &["panic"]).await, ["Internal the handler panicked"]);
        }
        let heard = caller.ask("calls.Test/Count", &["one, two, fail 9 enough, three"]).await;
        assert_eq!(heard, ["one", "two", "FailedPrecondition enough"]);
        service.log.take();

        for path in ["calls.Test/Sing", "calls.Tests/Say", "Say", ""] {
            assert_eq!(caller.ask(path, &["hi"]).await, [format!("Unimplemented no method {path}")]);
        }
        caller.say("calls.Test/Say\nff\n\n").await;
        let heard = caller.answer().await;
        assert!(heard[0].starts_with("InvalidArgument "), "{heard:?}");
        assert!(service.log.take().is_empty(), "no handler is called");
        assert_eq!(caller.ask("calls.Test/Say", &["hi"]).await, ["hi", "Ok "], "the connection lives");
    });
}

#[test]
fn a_handler_ends_with_its_wire_connection() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = server(&service).without_listener().unwrap();
        let mut caller = LineCaller::connect(&server).await;
        caller.say("calls.Test/Gather\n").await;
        settle().await;
        assert_eq!(service.log.take(), ["gather"]);
        drop(caller);
        settle().await;
        assert_eq!(service.log.take(), ["dropped gather"]);
    });
}

/// Logs the method and format of each call. Refuses the calls of one method.
struct Note {
    log: EventLog,
    refused: &'static str,
}

impl Layer for Note {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let name = call.method().name;
        self.log.add(format!("{name} in {}", call.format()));
        if name == self.refused {
            return Err(Status::permission_denied("not this one"));
        }
        next.run(call).await
    }
}

#[test]
fn server_layers_wrap_the_calls_of_every_wire() {
    in_virtual_time(async {
        let (service, log) = (TestService::default(), EventLog::default());
        let server = server(&service).layer(Note { log: log.clone(), refused: "Count" }).without_listener().unwrap();
        let (client, mut caller) = (connect(&server).await, LineCaller::connect(&server).await);
        assert_eq!(ask(&client, "hi").await.unwrap(), "hi");
        assert_eq!(log.take(), ["Say in polyglot"]);
        assert_eq!(caller.ask("calls.Test/Say", &["ho"]).await, ["ho", "Ok "]);
        assert_eq!(log.take(), ["Say in protobuf"]);
        assert_eq!(service.log.take(), ["say hi", "say ho"]);

        assert_eq!(of_kind(&client, 1, "hi").await.unwrap_err().code(), Code::PermissionDenied);
        assert_eq!(caller.ask("calls.Test/Count", &["hi"]).await, ["PermissionDenied not this one"]);
        assert_eq!(log.take(), ["Count in polyglot", "Count in protobuf"]);
        assert!(service.log.take().is_empty());
    });
}

#[test]
fn shutdown_waits_for_calls_on_a_wire() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = server(&service).without_listener().unwrap();
        let (mut idle, mut busy) = (LineCaller::connect(&server).await, LineCaller::connect(&server).await);
        busy.say("calls.Test/Say\n").await;
        busy.say_message("wait").await;
        busy.say("\n").await;
        settle().await;
        assert_eq!(service.log.take(), ["say wait"]);

        let shutdown = tokio::spawn(server.shutdown(10 * SECOND));
        assert_eq!(idle.hear().await, None);
        assert!(!shutdown.is_finished());
        service.gate.open(1);
        assert_eq!(busy.answer().await, ["wait", "Ok "]);
        assert_eq!(busy.hear().await, None);
        assert_eq!(shutdown.await.unwrap(), 0, "no connection is cut");
    });
}
