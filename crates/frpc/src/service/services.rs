//! The services of one side of a connection: which packet and stream is a call to which of them, and how it is answered.

use std::{
    error::Error,
    fmt,
    future::Future,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use frisbee::{CloseReason, Connection, Outcome, Packet, Refusal, Refused, Router, Stream, StreamEnd, StreamSender};
use futures_util::{FutureExt, StreamExt};
use tracing::{debug, error};

use crate::{
    CallError, Collision, Method, MethodKind, Status,
    codec::{Kind, Pieces},
    service::service::{Answer, Call, Flow, Service},
    wire::frisbee::pending::{Calls, Unanswered},
    wire::frisbee::stream_framing::{self, Halted, Incoming},
};

/// Services, and a router for whatever is no call to one of them. A router itself, so it serves any frisbee connection.
///
/// ```
/// # use frpc::generated::{Answer, Call, Method, Service};
/// # struct Echo;
/// # impl Service for Echo {
/// #     const NAME: &'static str = "Echo";
/// #     const METHODS: &'static [Method] = &[];
/// #     async fn call(&self, call: Call) -> Answer { call.unknown() }
/// # }
/// use frisbee::{Operation, Packet, Table};
/// use frpc::{Services, Unimplemented};
///
/// const NEWS: Operation = Operation::new(1000).unwrap();
///
/// let packets = Table::over(Unimplemented).on(NEWS, async |news: Packet| println!("{:?}", news.content));
/// let services = Services::new().add_service(Echo).over(packets);
/// let server = frisbee::Server::builder(services);
/// # let _ = server;
/// ```
///
/// A service that a flag switches on is added by [`add_optional_service`](Self::add_optional_service), a list of services
/// of different types by [`add_services`](Self::add_services).
#[derive(Clone, Debug, Default)]
pub struct Services<S = (), R = Unimplemented> {
    services: S,
    operations: Operations,
    rest: R,
}

impl Services {
    /// No services yet.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<S: ServiceSet, R: Router> Services<S, R> {
    /// Adds a service.
    pub fn add_service<T: Service>(self, service: T) -> Services<(S, T), R> {
        self.add(service, T::METHODS)
    }

    /// Adds a service if there is one. Calls to one that is not there are answered as those to any unknown method.
    pub fn add_optional_service<T: Service>(self, service: Option<T>) -> Services<(S, Option<T>), R> {
        let methods = if service.is_some() { T::METHODS } else { &[] };
        self.add(service, methods)
    }

    /// Adds services whose types are not told. Each call to one of them costs an allocation.
    pub fn add_services(self, services: impl IntoIterator<Item = BoxService>) -> Services<(S, Vec<BoxService>), R> {
        let services: Vec<BoxService> = services.into_iter().collect();
        let methods: Vec<&'static Method> = services.iter().flat_map(|service| service.0.methods()).collect();
        self.add(services, methods)
    }

    fn add<T>(self, service: T, methods: impl IntoIterator<Item = &'static Method>) -> Services<(S, T), R> {
        Services { services: (self.services, service), operations: self.operations.with(methods), rest: self.rest }
    }

    /// Gives packets and streams that are no calls to this router. Put [`Unimplemented`] below it, and calls to methods
    /// that are not here are still answered.
    pub fn over<T: Router>(self, rest: T) -> Services<S, T> {
        Services { services: self.services, operations: self.operations, rest }
    }

    /// Finds two methods that the wire cannot tell apart.
    pub(crate) fn check(&self) -> Result<(), Collision> {
        match self.operations.0.windows(2).find(|pair| pair[0].operation == pair[1].operation) {
            Some(pair) => Err(Collision { first: *pair[0], second: *pair[1] }),
            None => Ok(()),
        }
    }

    pub(crate) fn serves(&self, operation: u16) -> bool {
        self.services.find(operation).is_some()
    }

    pub(crate) fn operations(&self) -> &Operations {
        &self.operations
    }

    /// Attaches what frpc keeps with a connection, before the router behind the services hears of it and may make calls.
    pub(crate) fn open(&self, connection: &Connection, calls: OnceLock<Arc<Calls>>) {
        let number = calls.get().map_or(0, |calls| calls.open());
        connection.set_state(Side { serves: self.operations.clone(), calls, number });
        self.rest.opened(connection);
    }

    /// Offers a packet that is neither a request nor an answer to the router behind the services.
    pub(crate) fn take_no_answer(&self, packet: Packet, connection: &Connection) -> Option<Packet> {
        self.rest.intercept(packet, connection)
    }

    async fn call(&self, method: &Method, call: Call) -> Result<Flow, Status> {
        let called = AssertUnwindSafe(self.services.call(call)).catch_unwind().await;
        called.map_or_else(|_| Err(panicked(method)), |answer| answer.0)
    }

    /// Answers a call that came from within the process.
    pub(crate) async fn call_in_process(&self, method: &Method, input: Flow) -> Result<Flow, Status> {
        let Some(method) = self.services.find(method.operation).filter(|known| *known == method) else {
            return Err(Status::unimplemented(format!("no method {}/{} here", method.service, method.name)));
        };
        Ok(match self.call(method, Call::new(method.operation, input, None)).await? {
            Flow::One(content) | Flow::Last(content, _) => Flow::One(content),
            Flow::Many(contents) => {
                let contents = AssertUnwindSafe(contents).catch_unwind();
                let contents = contents.map(|content| content.unwrap_or_else(|_| Err(panicked(method))));
                Flow::Many(crate::Streaming::new(contents))
            }
        })
    }

    async fn serve_packet(&self, method: &Method, packet: Packet, connection: &Connection) -> Outcome {
        let Packet { id, operation, content } = packet;
        let answer = match method.kind {
            MethodKind::Unary => {
                let call = Call::new(operation.number(), Flow::One(content.into()), Some(connection.clone()));
                self.call(method, call).await
            }
            _ => Err(Status::unimplemented("the method is called on a stream")),
        };
        let limit = connection.config().content_len_max;
        let fits = |len: usize| len <= limit as usize;
        let status = match answer {
            Ok(Flow::One(content)) if fits(content.len()) => {
                let Pieces { first, rest } = content;
                let packet = Packet { id, operation, content: first };
                return Outcome::ReplyPieces(packet, rest);
            }
            Ok(Flow::Last(content, take_over)) if fits(content.len()) => {
                let Pieces { first, rest } = content;
                // If it cannot be sent, there is nothing to take over.
                let _ = connection.send_pieces(Packet { id, operation, content: first }, rest).await;
                take_over.run(connection);
                return Outcome::Nothing;
            }
            Ok(Flow::One(content) | Flow::Last(content, _)) => too_large(content.len(), limit),
            Ok(Flow::Many(_)) => Status::internal("the handler answered with a stream"),
            Err(status) => status,
        };
        let reply = Packet { id, operation, content: failure(&status, limit) };
        if status.closes_connection() { Outcome::ReplyAndClose(reply) } else { Outcome::Reply(reply) }
    }

    async fn serve_stream(&self, method: &'static Method, stream: Stream, connection: &Connection) {
        let (sender, mut reader) = stream.split();
        // What was peeked at is there.
        let _ = reader.read().await;
        let input = match method.kind {
            MethodKind::Unary => Err(Status::unimplemented("the method takes a packet, not a stream")),
            MethodKind::ServerStreaming => {
                let request = reader.read().await;
                // Whatever follows is discarded.
                drop(reader);
                match request {
                    Ok(content) => Ok(Flow::One(content.into())),
                    Err(StreamEnd::TooLarge { announced, limit }) => {
                        Err(CallError::Refused { why: Refusal::TooLarge { announced, limit } }.into())
                    }
                    Err(end) => return debug!(%end, "a call ended before its request"),
                }
            }
            MethodKind::ClientStreaming | MethodKind::Bidirectional => {
                Ok(Flow::Many(crate::Streaming::new(Incoming::to_the_end(reader))))
            }
        };
        let answering = async {
            let answer = match input {
                Ok(input) => self.call(method, Call::new(method.operation, input, Some(connection.clone()))).await,
                Err(status) => Err(status),
            };
            send_answer(method, answer, &sender, connection).await;
        };
        tokio::select! {
            biased;
            () = answering => {}
            end = sender.closed() => debug!(%end, method = method.name, "a call was cut off"),
        }
    }
}

impl<S: ServiceSet, R: Router> Router for Services<S, R> {
    fn intercept(&self, packet: Packet, connection: &Connection) -> Option<Packet> {
        if self.serves(packet.operation.number()) {
            return Some(packet);
        }
        let packet = match Side::of(connection).as_ref().and_then(|side| side.calls.get()) {
            Some(calls) => calls.complete(packet)?,
            None => packet,
        };
        self.take_no_answer(packet, connection)
    }

    async fn route(&self, packet: Packet, connection: &Connection) -> Outcome {
        if let Some(method) = self.services.find(packet.operation.number()) {
            return self.serve_packet(method, packet, connection).await;
        }
        self.rest.route(packet, connection).await
    }

    fn refuse(&self, refused: Refused, connection: &Connection) -> Outcome {
        let Refused { id, operation, why, .. } = refused;
        // Any other packet may be an answer, and two sides must not go on answering each other.
        if !self.serves(operation.number()) {
            let side = Side::of(connection);
            if let Refusal::TooLarge { announced, limit } = why
                && let Some(calls) = side.as_ref().and_then(|side| side.calls.get())
                && calls.fail(id, operation, Unanswered::TooLarge { announced, limit })
            {
                return Outcome::Nothing;
            }
            return self.rest.refuse(refused, connection);
        }
        let content = failure(&CallError::Refused { why }.into(), connection.config().content_len_max);
        Outcome::Reply(Packet { id, operation, content })
    }

    fn awaited(&self, connection: &Connection) -> usize {
        let side = Side::of(connection);
        let calls = side.as_ref().and_then(|side| side.calls.get()).map_or(0, |calls| calls.len());
        self.rest.awaited(connection).saturating_add(calls)
    }

    async fn refuse_stream(&self, mut stream: Stream, connection: &Connection) {
        let Ok(first) = stream.peek().await else { return };
        match stream_framing::opened(&first).and_then(|operation| self.services.find(operation)) {
            Some(_) => stream_framing::refuse(stream, &CallError::Refused { why: Refusal::Draining }.into()).await,
            None if stream_framing::is_end(&first) => stream.defer_close(),
            None => self.rest.refuse_stream(stream, connection).await,
        }
    }

    async fn stream(&self, mut stream: Stream, connection: &Connection) {
        let Ok(first) = stream.peek().await else { return };
        match stream_framing::opened(&first).and_then(|operation| self.services.find(operation)) {
            Some(method) => {
                stream.defer_close();
                self.serve_stream(method, stream, connection).await;
            }
            // The second end marker of a call that is over.
            None if stream_framing::is_end(&first) => stream.defer_close(),
            None => self.rest.stream(stream, connection).await,
        }
    }

    fn check(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Services::check(self)?;
        self.rest.check()
    }

    fn opened(&self, connection: &Connection) {
        self.open(connection, OnceLock::new());
    }

    fn closed(&self, connection: &Connection, reason: &CloseReason) {
        if let Some(side) = Side::of(connection)
            && let Some(calls) = side.calls.get()
        {
            calls.close(side.number, reason);
        }
        self.rest.closed(connection, reason);
    }
}

/// The methods of some services, in the order of their operations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Operations(Arc<Vec<&'static Method>>);

impl Operations {
    fn with(mut self, methods: impl IntoIterator<Item = &'static Method>) -> Self {
        let all = Arc::make_mut(&mut self.0);
        all.extend(methods);
        all.sort_by_key(|method| method.operation);
        self
    }

    pub(crate) fn contains(&self, operation: u16) -> bool {
        self.0.binary_search_by_key(&operation, |method| method.operation).is_ok()
    }
}

/// A service whose type is not told, so that services of different types can be chosen between or listed.
///
/// ```
/// # use frpc::generated::{Answer, Call, Method, Service};
/// # struct EchoServer;
/// # struct TimeServer;
/// # impl Service for EchoServer {
/// #     const NAME: &'static str = "Echo";
/// #     const METHODS: &'static [Method] = &[];
/// #     async fn call(&self, call: Call) -> Answer { call.unknown() }
/// # }
/// # impl Service for TimeServer {
/// #     const NAME: &'static str = "Time";
/// #     const METHODS: &'static [Method] = &[];
/// #     async fn call(&self, call: Call) -> Answer { call.unknown() }
/// # }
/// use frpc::{BoxService, Services};
///
/// let mut services = Vec::new();
/// for name in ["echo", "time"] {
///     services.push(match name {
///         "echo" => BoxService::new(EchoServer),
///         _ => BoxService::new(TimeServer),
///     });
/// }
/// let services = Services::new().add_services(services);
/// # let _ = services;
/// ```
pub struct BoxService(Box<dyn AnyService>);

impl BoxService {
    /// Boxes a service.
    pub fn new(service: impl Service) -> Self {
        Self(Box::new(service))
    }
}

impl<T: Service> From<T> for BoxService {
    fn from(service: T) -> Self {
        Self::new(service)
    }
}

impl fmt::Debug for BoxService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BoxService").field(&self.0.name()).finish()
    }
}

/// [`Service`] as far as it needs no type.
trait AnyService: Send + Sync {
    fn name(&self) -> &'static str;
    fn methods(&self) -> &'static [Method];
    fn call(&self, call: Call) -> Pin<Box<dyn Future<Output = Answer> + Send + '_>>;
}

impl<T: Service> AnyService for T {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn methods(&self) -> &'static [Method] {
        T::METHODS
    }

    fn call(&self, call: Call) -> Pin<Box<dyn Future<Output = Answer> + Send + '_>> {
        Box::pin(Service::call(self, call))
    }
}

/// What frpc keeps with a connection, whichever side made it.
pub(crate) struct Side {
    /// The operations of this side's own, which cannot be called on the other.
    pub(crate) serves: Operations,
    /// The calls made from this side, once there are any.
    pub(crate) calls: OnceLock<Arc<Calls>>,
    /// The number of the connection for its calls.
    pub(crate) number: u64,
}

impl Side {
    pub(crate) fn of(connection: &Connection) -> Option<Arc<Self>> {
        connection.state()
    }
}

/// Answers every call with [`Code::Unimplemented`](crate::Code::Unimplemented), and refuses every other stream: what is
/// left when nobody else wanted a packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unimplemented;

impl Router for Unimplemented {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        // Nobody waits for the answer to an answer, and two sides must not go on answering each other.
        if packet.content.first() == Some(&(Kind::Error as u8)) {
            return Outcome::Nothing;
        }
        let content = no_method(packet.operation.number()).encode();
        Outcome::Reply(Packet { content, ..packet })
    }

    fn refuse(&self, refused: Refused, connection: &Connection) -> Outcome {
        let Refused { id, operation, why: Refusal::TooLarge { .. }, .. } = refused else { return Outcome::Nothing };
        // If this answers an answer, it is a small error, which is not answered.
        let content = failure(&no_method(operation.number()), connection.config().content_len_max);
        Outcome::Reply(Packet { id, operation, content })
    }

    async fn stream(&self, mut stream: Stream, _: &Connection) {
        let Ok(first) = stream.peek().await else { return };
        if let Some(operation) = stream_framing::opened(&first) {
            stream_framing::refuse(stream, &no_method(operation)).await;
        }
    }
}

/// A status as the content of a packet, with as much of its text as `limit` bytes have room for.
fn failure(status: &Status, limit: u32) -> Bytes {
    let content = status.encode();
    if content.len() <= limit as usize {
        return content;
    }
    let content = stream_framing::without_text(status).encode();
    if content.len() <= limit as usize { content } else { Status::new(status.code(), "").encode() }
}

fn no_method(operation: u16) -> Status {
    Status::unimplemented(format!("no method has operation {operation}"))
}

fn panicked(method: &Method) -> Status {
    error!(service = method.service, method = method.name, "a handler panicked");
    Status::internal("the handler panicked")
}

fn too_large(len: usize, limit: u32) -> Status {
    CallError::MessageTooLarge { len, limit }.into()
}

async fn send_answer(method: &Method, answer: Result<Flow, Status>, sender: &StreamSender, connection: &Connection) {
    let sending = AssertUnwindSafe(async {
        let mut contents = match answer? {
            Flow::One(content) | Flow::Last(content, _) => crate::Streaming::from_iter([content.into_bytes()]),
            Flow::Many(contents) => contents,
        };
        stream_framing::send_all(&mut contents, sender).await
    });
    let sent = sending.catch_unwind().await.unwrap_or_else(|_| Err(panicked(method).into()));
    if let Err(Halted::Failed(status)) = sent {
        stream_framing::send_failure(&status, sender).await;
        if status.closes_connection() {
            connection.close();
        }
    }
}

mod sealed {
    use super::{Answer, Call, Future, Method};

    /// Any number of services: `()`, `((), First)`, `(((), First), Option<Second>)` and so on.
    pub trait ServiceSet: Send + Sync + 'static {
        /// The method with this operation.
        fn find(&self, operation: u16) -> Option<&'static Method>;

        /// Has the service with the operation of this call answer it.
        fn call(&self, call: Call) -> impl Future<Output = Answer> + Send;
    }
}

pub(crate) use sealed::ServiceSet;

impl ServiceSet for () {
    fn find(&self, _: u16) -> Option<&'static Method> {
        None
    }

    async fn call(&self, call: Call) -> Answer {
        call.unknown()
    }
}

impl<S: ServiceSet, T: Service> ServiceSet for (S, T) {
    fn find(&self, operation: u16) -> Option<&'static Method> {
        Method::find(T::METHODS, operation).or_else(|| self.0.find(operation))
    }

    async fn call(&self, call: Call) -> Answer {
        if Method::find(T::METHODS, call.operation()).is_some() {
            self.1.call(call).await
        } else {
            self.0.call(call).await
        }
    }
}

impl<S: ServiceSet, T: Service> ServiceSet for (S, Option<T>) {
    fn find(&self, operation: u16) -> Option<&'static Method> {
        let ours = self.1.as_ref().and_then(|_| Method::find(T::METHODS, operation));
        ours.or_else(|| self.0.find(operation))
    }

    async fn call(&self, call: Call) -> Answer {
        match &self.1 {
            Some(service) if Method::find(T::METHODS, call.operation()).is_some() => service.call(call).await,
            _ => self.0.call(call).await,
        }
    }
}

impl<S: ServiceSet> ServiceSet for (S, Vec<BoxService>) {
    fn find(&self, operation: u16) -> Option<&'static Method> {
        let ours = self.1.iter().find_map(|service| Method::find(service.0.methods(), operation));
        ours.or_else(|| self.0.find(operation))
    }

    async fn call(&self, call: Call) -> Answer {
        match self.1.iter().find(|service| Method::find(service.0.methods(), call.operation()).is_some()) {
            Some(service) => service.0.call(call).await,
            None => self.0.call(call).await,
        }
    }
}
