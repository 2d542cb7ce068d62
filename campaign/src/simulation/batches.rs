//! Batches of JSON-RPC. Channels have none, so this caller writes them itself.

use std::{
    io, mem,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use frpc::{
    Answer, Body, Call, CallError, Caller, CloseReason, Code, ConnectError, ConnectSettings, Connected, Status,
    Transport, client::Deadline, codec::Format,
};
use frpc_http::{Client, Poster};
use futures_util::future::BoxFuture;
use http::Response;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    sync::oneshot,
    time::sleep,
};

use super::{
    ledger::{CallOutcome, Ledger},
    message::Order,
    wires::NodeDialer,
};

/// A transport whose calls of about the same time share a batch.
pub(super) struct BatchTransport {
    /// For batches by POST.
    pub(super) client: Client,
    /// For batches on TCP connections of their own.
    pub(super) dialer: NodeDialer,
    pub(super) ledger: Arc<Ledger>,
}

#[derive(Clone)]
struct BatchCaller(Arc<SharedBatch>);

struct SharedBatch {
    carrier: BatchCarrier,
    ledger: Arc<Ledger>,
    url: String,
    /// The calls of the next batch.
    waiting: Mutex<Vec<WaitingCall>>,
}

enum BatchCarrier {
    Post(Poster),
    Tcp { dialer: NodeDialer, node: String },
}

struct WaitingCall {
    call: Call,
    deadline: Option<Deadline>,
    answer: oneshot::Sender<Result<Answer, Status>>,
}

impl Transport for BatchTransport {
    fn schemes(&self) -> &[&str] {
        &["http", "https", BATCH_SCHEME]
    }

    fn connect(&self, url: String, settings: ConnectSettings) -> BoxFuture<'static, Result<Connected, ConnectError>> {
        let Self { client, dialer, ledger } = self;
        let (client, dialer, ledger) = (client.clone(), dialer.clone(), ledger.clone());
        Box::pin(async move {
            let carrier = match url.split_once("://") {
                Some((BATCH_SCHEME, node)) => BatchCarrier::Tcp { dialer, node: node.to_owned() },
                _ => BatchCarrier::Post(client.poster(url.clone(), settings).await?),
            };
            let shared = SharedBatch { carrier, ledger, url, waiting: Mutex::default() };
            Ok(Connected::Calls(Arc::new(BatchCaller(Arc::new(shared)))))
        })
    }
}

impl Caller for BatchCaller {
    fn format(&self) -> Format {
        Format::Json
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Status>> {
        let (answer, answered) = oneshot::channel();
        let deadline = call.time().answer(call.kind());
        self.add(WaitingCall { call, deadline, answer });
        let answered = async { answered.await.unwrap_or_else(|_| Err(Status::internal("a batch has lost a call"))) };
        Box::pin(async move {
            match deadline {
                Some(deadline) => deadline.bound(answered).await,
                None => answered.await,
            }
        })
    }
}

impl BatchCaller {
    /// Adds a call to the next batch. The first call of a batch starts it, and a full batch leaves.
    fn add(&self, call: WaitingCall) {
        let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(call);
        let (shared, calls) = (self.0.clone(), waiting.len());
        if calls == CALLS_MAX {
            tokio::spawn(shared.send(mem::take(&mut *waiting)));
        } else if calls == 1 {
            tokio::spawn(async move {
                sleep(Duration::from_millis(fastrand::u64(..GATHERED_MAX))).await;
                let waiting = mem::take(&mut *shared.waiting.lock().unwrap_or_else(PoisonError::into_inner));
                if !waiting.is_empty() {
                    shared.send(waiting).await;
                }
            });
        }
    }
}

impl SharedBatch {
    /// Sends a batch, and passes each answer to its call.
    async fn send(self: Arc<Self>, mut calls: Vec<WaitingCall>) {
        // Its time is that of the request.
        let left = |call: &WaitingCall| call.deadline.and_then(Deadline::left).unwrap_or(Duration::MAX);
        calls.sort_by_key(|call| std::cmp::Reverse(left(call)));
        let mut items: Vec<Value> = calls.iter().zip(0_u64..).map(|(waiting, id)| request(&waiting.call, id)).collect();
        let notification = (fastrand::u8(..4) == 0).then(|| {
            let call = self.ledger.begin_call(format!("notification of {}", self.url));
            let order = Order { call, count: 0, len: 10, pause: Duration::ZERO, fails: false };
            let params = json!({ "text": order.to_text(10) });
            let item = json!({ "jsonrpc": "2.0", "method": "calls.Test/Say", "params": params });
            items.insert(fastrand::usize(..=items.len()), item);
            call
        });
        let has_invalid = fastrand::u8(..8) == 0;
        if has_invalid {
            items.insert(fastrand::usize(..=items.len()), json!(1));
        }
        self.ledger.count("batches", 1);
        let body = Value::Array(items).to_string();
        let answers = match self.carrier.carry(&calls[0], body).await {
            Ok(body) => read_answers(&body, calls.len(), has_invalid).unwrap_or_else(|why| {
                self.ledger.violate(format!("{}: {why}", self.url));
                Vec::new()
            }),
            Err(status) => vec![Err(status); calls.len()],
        };
        for (call, answer) in calls.into_iter().zip(answers) {
            // The caller may be gone.
            let _ = call.answer.send(answer.map(|text| Answer::new(Body::from(text.into_bytes()))));
        }
        if let Some(call) = notification {
            self.ledger.end_call(call, CallOutcome::Notified);
        }
    }
}

impl BatchCarrier {
    /// Sends a batch within the time of this call. Returns the answer.
    fn carry(&self, first: &WaitingCall, body: String) -> BoxFuture<'static, Result<Bytes, Status>> {
        let (dialer, node, deadline) = match self {
            Self::Post(poster) => {
                let posted = poster.post(&first.call, "application/json", body.into());
                return Box::pin(async { posted.await.map(Response::into_body) });
            }
            Self::Tcp { dialer, node } => (dialer.clone(), node.clone(), first.deadline),
        };
        let lost = |may_have_executed| {
            move |error| {
                let reason = CloseReason::Io(Arc::new(error));
                Status::from(CallError::ConnectionLost { reason, may_have_executed })
            }
        };
        let exchange = async move {
            let mut stream = BufReader::new(dialer.dial(&node).await.map_err(lost(false))?);
            let mut answer = Vec::new();
            let exchange = async {
                stream.write_all(body.as_bytes()).await?;
                stream.flush().await?;
                stream.read_until(b'\n', &mut answer).await
            };
            exchange.await.map_err(lost(true))?;
            match answer.pop() {
                Some(b'\n') => Ok(answer.into()),
                _ => Err(lost(true)(io::ErrorKind::UnexpectedEof.into())),
            }
        };
        match deadline {
            Some(deadline) => Box::pin(deadline.bound(exchange)),
            None => Box::pin(exchange),
        }
    }
}

/// Returns the outcome of each call of a batch. Fails unless each has one answer, in their order.
fn read_answers(body: &[u8], calls: usize, has_invalid: bool) -> Result<Vec<Result<String, Status>>, String> {
    let answers = match serde_json::from_slice(body) {
        Ok(Value::Array(answers)) => answers,
        // The server refuses the whole batch.
        Ok(answer @ Value::Object(_)) if answer["id"].is_null() && answer["error"].is_object() => {
            return Ok(vec![Err(read_status(&answer["error"])); calls]);
        }
        _ => return Err(format!("a batch of {calls} calls has the answer {}", body.escape_ascii())),
    };
    let (unnamed, named): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer["id"].is_null());
    let ids: Vec<_> = named.iter().map(|answer| answer["id"].as_u64()).collect();
    if !ids.iter().copied().eq((0..calls as u64).map(Some)) || unnamed.len() != usize::from(has_invalid) {
        return Err(format!("a batch of {calls} calls has answers to {ids:?} and {} unnamed ones", unnamed.len()));
    }
    let outcome = |answer: Value| match answer.get("error") {
        Some(error) => Err(read_status(error)),
        None => Ok(answer["result"].to_string()),
    };
    Ok(named.into_iter().map(outcome).collect())
}

/// Returns a request of a batch.
fn request(call: &Call, id: u64) -> Value {
    let Body::One(message) = call.body() else { unreachable!("this wire has unary calls only") };
    let params: Value = serde_json::from_slice(&message.clone().into_bytes()).expect("messages are JSON");
    json!({ "jsonrpc": "2.0", "method": call.method().to_string(), "params": params, "id": id })
}

/// Reads the code and the message of an error.
fn read_status(error: &Value) -> Status {
    let code = match error["code"].as_i64() {
        Some(number @ -32016..=-32001) => i32::try_from(-32000 - number).map_or(Code::Unknown, Code::from_number),
        _ => Code::Unknown,
    };
    Status::new(code, error["message"].as_str().unwrap_or_default())
}

/// The scheme of batches over TCP.
pub(super) const BATCH_SCHEME: &str = "batch";
/// The maximum number of calls in a batch, whose bytes stay below all limits.
const CALLS_MAX: usize = 20;
/// The milliseconds in which a batch gathers its calls.
const GATHERED_MAX: u64 = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_of_a_batch_has_one_answer() {
        let (one, two) = (r#"{"id":0,"result":{"text":"a"}}"#, r#"{"id":1,"error":{"code":-32010,"message":"no"}}"#);
        let invalid = r#"{"id":null,"error":{"code":-32600,"message":"Invalid Request"}}"#;
        let read =
            |answers: &[&str], has_invalid| read_answers(format!("[{}]", answers.join(",")).as_bytes(), 2, has_invalid);
        let answers = read(&[one, invalid, two], true).expect("a good batch");
        assert_eq!(answers[0].as_ref().ok().map(String::as_str), Some(r#"{"text":"a"}"#));
        assert_eq!(
            answers[1].as_ref().err().map(|status| (status.code(), status.message())),
            Some((Code::Aborted, "no"))
        );
        for (answers, has_invalid) in [
            (&[one][..], false),
            (&[two, one], false),
            (&[one, one, two], false),
            (&[one, two, invalid], false),
            (&[one, two], true),
        ] {
            read(answers, has_invalid).expect_err("a broken rule");
        }
        let refused = read_answers(invalid.as_bytes(), 2, false).expect("the whole batch is refused");
        assert!(refused.len() == 2 && refused.iter().all(Result::is_err));
        read_answers(b"", 2, false).expect_err("no answer");
    }
}
