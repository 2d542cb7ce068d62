//! A client that writes raw JSON-RPC, and functions for it to call.

use frpc::{Server, Status};
use frpc_jsonrpc::{Called, Context, Description, Function, JsonRpc};
use serde_json::{Value, json};
use support::{Gate, calls::TestService};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};

/// A connection.
pub(crate) struct Caller(pub(crate) BufReader<DuplexStream>);

impl Caller {
    pub(crate) fn connect(server: &Server) -> Self {
        Self::with_buffer(server, 64 * 1024)
    }

    /// Connects with room for this number of bytes in flight.
    pub(crate) fn with_buffer(server: &Server, len: usize) -> Self {
        let (ours, theirs) = duplex(len);
        server.attach(theirs);
        Self(BufReader::new(ours))
    }

    /// Writes, and ignores errors of a closed connection.
    pub(crate) async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.0.write_all(bytes.as_ref()).await;
    }

    pub(crate) async fn hear_line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        line.trim_end_matches('\n').to_owned()
    }

    pub(crate) async fn hear(&mut self) -> Value {
        let line = self.hear_line().await;
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    /// Closes the sending side, and reads up to the end of the connection.
    pub(crate) async fn hear_out(mut self) -> String {
        let _ = self.0.shutdown().await;
        self.hear_all().await
    }

    /// Reads up to the end of the connection.
    pub(crate) async fn hear_all(mut self) -> String {
        let mut heard = Vec::new();
        let _ = self.0.read_to_end(&mut heard).await;
        String::from_utf8(heard).unwrap()
    }

    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.say(request(method, params, 1)).await;
        self.hear().await
    }
}

pub(crate) fn request(method: &str, params: Value, id: u32) -> String {
    json!({"jsonrpc": "2.0", "method": method, "params": params, "id": id}).to_string()
}

/// Returns the number and the code of an error.
pub(crate) fn error(answer: &Value) -> (i64, &str) {
    (answer["error"]["code"].as_i64().unwrap(), answer["error"]["data"]["code"].as_str().unwrap_or_default())
}

/// A function that computes its result from its params, or from `null` without params.
pub(crate) struct Plain<F>(Description, F);

pub(crate) fn plain<F: Fn(Value) -> Value + Send + Sync + 'static>(name: &str, run: F) -> Plain<F> {
    Plain(Description::new(name), run)
}

impl<F: Fn(Value) -> Value + Send + Sync + 'static> Function for Plain<F> {
    fn description(&self) -> &Description {
        &self.0
    }

    fn call(&self, params: Option<&str>, _: &Context, out: &mut Vec<u8>) -> Called {
        match serde_json::from_str(params.unwrap_or("null")) {
            Ok(params) => {
                out.extend(self.1(params).to_string().bytes());
                Called::Written
            }
            Err(error) => Called::Failed(Status::invalid_argument(error.to_string())),
        }
    }
}

/// A function that waits for a gate, then returns its params.
pub(crate) struct Waiting(pub(crate) Description, pub(crate) Gate);

impl Function for Waiting {
    fn description(&self) -> &Description {
        &self.0
    }

    fn call(&self, params: Option<&str>, _: &Context, _: &mut Vec<u8>) -> Called {
        let (gate, result) = (self.1.clone(), params.unwrap_or("null").as_bytes().to_vec());
        Called::Later(Box::pin(async move {
            gate.passed().await;
            match result.as_slice() {
                b"[\"panic\"]" => panic!("as told"),
                b"[\"fail\"]" => Err(Status::not_found("nothing there")),
                _ => Ok(result),
            }
        }))
    }
}

/// The functions of the examples in the specification, and some for other tests.
pub(crate) fn wire(gate: &Gate) -> JsonRpc {
    let number = |value: &Value| value.as_i64().unwrap();
    JsonRpc::new()
        .function(plain("subtract", move |params| {
            let (one, two) = match &params {
                Value::Array(list) => (number(&list[0]), number(&list[1])),
                named => (number(&named["minuend"]), number(&named["subtrahend"])),
            };
            (one - two).into()
        }))
        .function(plain("sum", move |params| params.as_array().unwrap().iter().map(number).sum::<i64>().into()))
        .function(plain("update", |_| Value::Null))
        .function(plain("notify_hello", |_| Value::Null))
        .function(plain("notify_sum", |_| Value::Null))
        .function(plain("get_data", |_| json!(["hello", 5])))
        .function(plain("echo", |params| params))
        .function(plain("large", move |params| "x".repeat(params[0].as_u64().unwrap().try_into().unwrap()).into()))
        .function(plain("panic", |_| panic!("as told")))
        .function(Waiting(Description::new("wait"), gate.clone()))
}

/// Starts a server with these functions and a service.
pub(crate) fn serve_with(service: &TestService, wire: JsonRpc) -> Server {
    use support::calls::TestServer;
    Server::builder().add_service(TestServer::new(service.clone())).wire(wire).without_listener().unwrap()
}

pub(crate) fn serve() -> Server {
    serve_with(&TestService::default(), wire(&Gate::default()))
}
