//! Where a client's calls go.

use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use frisbee::{
    Backoff, CloseReason, Config, Connection, Dispatch, Engine, InvalidSetting, Raw, Router, SocketOptions, ToAddress,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    task::yield_now,
    time::{Instant, sleep},
};

use crate::{
    BoxService, CallError, ConnectError, IntoRequest, IntoStreamingRequest, Method, Response, Services, Status,
    Streaming,
    codec::{self, Message, Pieces},
    service::service::{self, Flow, Service},
    service::services::ServiceSet,
    wire::frisbee::client::{Calling, Deadline, Link},
    wire::frisbee::pending::{CALLS_MAX, Calls},
    wire::local::{InProcess, Local},
};

/// A way to a server, shared by any number of clients. Cheap to clone.
///
/// A channel is one connection, which closes when the last clone and the last call are gone. When the connection is
/// lost, the calls that waited fail, and the next call connects again.
///
/// # Connecting again
///
/// All calls that find the connection lost share one attempt to connect. It is a task of the runtime of the call that began
/// it, and makes as many [attempts](ChannelBuilder::attempts) as the first connection. A call waits for it within its own
/// timeout and then fails with [`CallError::NotSent`]; the task goes on for the calls to come, until it ends or the channel
/// is dropped. If it fails, all that wait fail with [`CallError::Unreachable`], and the next call begins anew.
///
/// It begins at once when a connection is lost on which the server had said anything. After a failure, and after a
/// connection on which nothing was heard, it begins with a [pause](Backoff) that grows up to 5 s.
///
/// # Cancel safety
///
/// The future of a call can be dropped at any time, which gives the call up. A request that was not sent by then never will
/// be; one that was sent may still be executed, and its answer is discarded. The server is told only of calls with streams:
/// their handlers are dropped.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use frpc::Channel;
///
/// let channel = Channel::builder().timeout(Duration::from_secs(2)).connect("tcp://localhost:7000").await?;
/// // let greeter = GreeterClient::new(channel.clone());
/// // let orders = OrdersClient::new(channel);
/// # let _ = channel;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Channel {
    way: Way,
    timeout: Duration,
}

#[derive(Clone)]
enum Way {
    InProcess(Arc<dyn Local>),
    Wire(Arc<Wire>),
}

impl Channel {
    /// Connects to an address, such as `"tcp://localhost:7000"` or `"unix:/run/app.sock"`, with default settings.
    pub async fn connect(address: impl ToAddress) -> Result<Self, ConnectError> {
        Self::builder().connect(address).await
    }

    /// The settings of a channel that is to be connected.
    pub fn builder() -> ChannelBuilder {
        ChannelBuilder {
            client: frisbee::Client::new(()),
            services: Services::new().over(()),
            timeout: TIMEOUT,
            pause: PAUSE,
            calls_max: CALLS_MAX,
            when_full: WhenFull::default(),
        }
    }

    /// A channel to the services that the peer offers on a connection that [`Services`] serve on this side: for calls
    /// from a server to its clients. It does not keep the connection open.
    pub fn over(connection: &Connection) -> Result<Self, Status> {
        match Link::over(connection) {
            Some(link) => Ok(Self::on(Wire::new(link, None))),
            None => Err(Status::failed_precondition("the connection is not served by frpc, so no answer can arrive")),
        }
    }

    /// Calls a service in this process, or several as [`Services`], through the same encoding as over a wire. If two of
    /// their methods [collide](crate::Collision), every call fails with the code
    /// [`FailedPrecondition`](crate::Code::FailedPrecondition) and says which.
    pub fn in_process(services: impl InProcess) -> Self {
        Self { way: Way::InProcess(services.into_local().0), timeout: TIMEOUT }
    }

    fn on(wire: Wire) -> Self {
        Self { way: Way::Wire(Arc::new(wire)), timeout: TIMEOUT }
    }

    /// The same channel with another timeout for calls that set none of their own.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The connection that calls go over now, for packets and streams of the user's own. `None` within the process.
    pub fn connection(&self) -> Option<Connection> {
        match &self.way {
            Way::InProcess(_) => None,
            Way::Wire(wire) => Some(wire.current().connection.clone()),
        }
    }

    /// Ends RPC on the connection and gives it back as a plain byte stream, as [`Connection::takeover`] does. Calls
    /// under way fail. The other side has to do the same: agree on it by a call or packet before.
    pub async fn into_raw(self) -> Result<Raw, Status> {
        let Some(connection) = self.connection() else {
            return Err(Status::failed_precondition("there is no connection within the process"));
        };
        connection
            .takeover()
            .await
            .map_err(|reason| Status::unavailable(reason.to_string()).with_source(Arc::new(reason) as Arc<_>))
    }

    /// Makes a unary call.
    pub async fn unary<Q: Message, P: Message>(
        &self,
        method: &Method,
        request: impl IntoRequest<Q>,
    ) -> Result<Response<P>, Status> {
        let request = request.into_request();
        let deadline = Deadline::after(request.timeout().unwrap_or(self.timeout));
        let content =
            match self.exchange(method, codec::encode_pieces(request.get_ref()), deadline, Attempt::First).await {
                Err(status) if needs_another_connection(&status) => {
                    let content = codec::encode_pieces(request.get_ref());
                    Box::pin(self.exchange(method, content, deadline, Attempt::Second)).await?
                }
                answered => answered?,
            };
        service::open(&content).map(Response::new)
    }

    /// Makes a server-streaming call. Returns once the request is sent: a status of the handler comes with the first
    /// message.
    pub async fn server_streaming<Q: Message, P: Message>(
        &self,
        method: &Method,
        request: impl IntoRequest<Q>,
    ) -> Result<Response<Streaming<P>>, Status> {
        let request = request.into_request();
        let content = codec::encode(request.get_ref());
        let (opening, whole) = self.deadlines(request.timeout());
        let contents = match &self.way {
            Way::InProcess(services) => services.many(method, Flow::One(content.into()), whole),
            Way::Wire(wire) => wire.open(opening).await?.server_streaming(method, content, opening, whole).await?,
        };
        Ok(Response::new(service::opened(contents)))
    }

    /// Makes a client-streaming call.
    pub async fn client_streaming<Q: Message, P: Message>(
        &self,
        method: &Method,
        requests: impl IntoStreamingRequest<Message = Q>,
    ) -> Result<Response<P>, Status> {
        let requests = requests.into_streaming_request();
        let (opening, whole) = self.deadlines(requests.timeout());
        let contents = service::requests(requests.into_inner());
        let content = match &self.way {
            Way::InProcess(services) => services.one(method, Flow::Many(contents), whole).await?,
            Way::Wire(wire) => wire.open(opening).await?.client_streaming(method, contents, opening, whole).await?,
        };
        service::open(&content).map(Response::new)
    }

    /// Makes a bidirectional call. Returns at once: a status of the handler comes with the first message.
    pub async fn bidirectional<Q: Message, P: Message>(
        &self,
        method: &Method,
        requests: impl IntoStreamingRequest<Message = Q>,
    ) -> Result<Response<Streaming<P>>, Status> {
        let requests = requests.into_streaming_request();
        let (opening, whole) = self.deadlines(requests.timeout());
        let contents = service::requests(requests.into_inner());
        let contents = match &self.way {
            Way::InProcess(services) => services.many(method, Flow::Many(contents), whole),
            Way::Wire(wire) => wire.open(opening).await?.bidirectional(method, contents, opening, whole).await?,
        };
        Ok(Response::new(service::opened(contents)))
    }

    async fn exchange(
        &self,
        method: &Method,
        content: Pieces,
        deadline: Deadline,
        attempt: Attempt,
    ) -> Result<Bytes, Status> {
        let link = match (&self.way, attempt) {
            (Way::InProcess(services), _) => {
                return Box::pin(services.one(method, Flow::One(content), Some(deadline))).await;
            }
            (Way::Wire(wire), Attempt::First) => wire.current(),
            (Way::Wire(wire), Attempt::Second) => Box::pin(wire.open(deadline)).await?,
        };
        link.unary(method, content, deadline).await
    }

    /// The time for a stream to be opened, and for all of it if the request says so.
    fn deadlines(&self, timeout: Option<Duration>) -> (Deadline, Option<Deadline>) {
        let whole = timeout.map(Deadline::after);
        (whole.unwrap_or_else(|| Deadline::after(self.timeout)), whole)
    }
}

/// The first attempt trusts that the connection is open, the second looks.
enum Attempt {
    First,
    Second,
}

/// Whether nothing was sent, and may be on another connection: not to a peer that speaks something else.
fn needs_another_connection(status: &Status) -> bool {
    match status.call_error() {
        Some(CallError::ConnectionLost { reason, may_have_executed: false }) => {
            !matches!(reason, CloseReason::Protocol(_))
        }
        Some(CallError::OutOfIds { .. }) => true,
        _ => false,
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// What a channel does with a call when it has as many under way as it may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The call waits for another to end, within its timeout.
    #[default]
    Wait,
    /// The call fails at once with [`CallError::TooManyCalls`].
    Fail,
}

/// What a channel will be like. Made by [`Channel::builder`].
pub struct ChannelBuilder<S = (), R = ()> {
    client: frisbee::Client<()>,
    services: Services<S, R>,
    timeout: Duration,
    pause: Duration,
    calls_max: usize,
    when_full: WhenFull,
}

impl<S: ServiceSet, R: Router> ChannelBuilder<S, R> {
    /// How long a call may take that sets no timeout of its own. Default 30 s. For a call with streams it bounds the
    /// opening, and the wait for the one answer to a stream from the end of that stream on; a stream of answers may
    /// take as long as it likes.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Calls under way at once, those with streams not counted. Default and at most 32 768, which is half of the ids.
    pub fn calls_max(self, calls_max: usize) -> Self {
        Self { calls_max, ..self }
    }

    /// What happens to one call more. Default [`WhenFull::Wait`].
    pub fn when_full(self, when_full: WhenFull) -> Self {
        Self { when_full, ..self }
    }

    /// Offers a service to the server, which can call it on the same connection. Its operations must be others than
    /// those that are called on the server.
    pub fn add_service<T: Service>(self, service: T) -> ChannelBuilder<(S, T), R> {
        self.map(|services| services.add_service(service))
    }

    /// Offers a service if there is one, as a flag decides: [`Services::add_optional_service`].
    pub fn add_optional_service<T: Service>(self, service: Option<T>) -> ChannelBuilder<(S, Option<T>), R> {
        self.map(|services| services.add_optional_service(service))
    }

    /// Offers services whose types are not told: [`Services::add_services`].
    pub fn add_services(
        self,
        services: impl IntoIterator<Item = BoxService>,
    ) -> ChannelBuilder<(S, Vec<BoxService>), R> {
        self.map(|offered| offered.add_services(services))
    }

    /// Gives packets of the server that are neither answers nor calls to this router. Default `()`, which drops them.
    pub fn router<T: Router>(self, router: T) -> ChannelBuilder<S, T> {
        self.map(|services| services.over(router))
    }

    /// The limits and timers of the connection.
    pub fn config(self, config: Config) -> Self {
        self.client(|client| client.config(config))
    }

    /// How handlers of what the server sends run; see [`frisbee::Client::dispatch`].
    pub fn dispatch(self, dispatch: Dispatch) -> Self {
        self.client(|client| client.dispatch(dispatch))
    }

    /// Which threads serve the connection; see [`frisbee::Client::engine`].
    pub fn engine(self, engine: Engine) -> Self {
        self.client(|client| client.engine(engine))
    }

    /// How sockets are set up.
    pub fn sockets(self, sockets: SocketOptions) -> Self {
        self.client(|client| client.sockets(sockets))
    }

    /// The time for one attempt to connect, TLS handshake included. Default 1 s.
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        self.client(|client| client.timeout(timeout))
    }

    /// How often to try to connect before giving up. Default 10; 0 counts as 1. With pauses of 10 ms and so on in between,
    /// all of them take some 5 s at an address where nobody listens, and up to 15 s where nobody answers. What another
    /// attempt cannot heal is tried once; see [`frisbee::Client::connect`].
    pub fn attempts(self, attempts: usize) -> Self {
        self.client(|client| client.attempts(attempts))
    }

    /// The pause after the first failed attempt; see [`Backoff`] for those after it. Default 10 ms.
    pub fn pause(self, pause: Duration) -> Self {
        Self { pause, ..self }.client(|client| client.pause(pause))
    }

    /// Connects with TLS and expects a certificate for the name or IP address that is connected to. Takes a
    /// [`ClientTls`](crate::ClientTls) made of PEM or of the system's roots, or any rustls configuration.
    #[cfg(feature = "tls")]
    pub fn tls(self, config: impl Into<Arc<frisbee::rustls::ClientConfig>>) -> Self {
        self.client(|client| client.tls(config))
    }

    /// Connects with TLS and expects a certificate for this name, wherever the connection goes.
    #[cfg(feature = "tls")]
    pub fn tls_with_name(
        self,
        config: impl Into<Arc<frisbee::rustls::ClientConfig>>,
        name: impl Into<crate::TlsName>,
    ) -> Self {
        self.client(|client| client.tls_with_name(config, name))
    }

    /// Connects to an address, such as `"tcp://localhost:7000"` or `"unix:/run/app.sock"`. The connection is served by
    /// the current tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, there is no connection, and no attempt goes on.
    pub async fn connect(self, address: impl ToAddress) -> Result<Channel, ConnectError> {
        self.check()?;
        let (address, timeout, pause) = (address.to_address()?, self.timeout, self.pause);
        let dialer = Arc::new(self.dialer());
        let dial = move || -> Dialing {
            let (dialer, address) = (dialer.clone(), address.clone());
            Box::pin(async move {
                let (client, calls) = dialer.client();
                Ok(dialer.link(client.connect(address).await?, calls))
            })
        };
        let link = dial().await?;
        let redial = Redial::new(dial, pause, &link);
        Ok(Channel::on(Wire::new(link, Some(redial))).with_timeout(timeout))
    }

    /// Talks over a stream of the user's own. When it is lost, so is the channel.
    pub async fn attach(
        self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<Channel, ConnectError> {
        self.check()?;
        let timeout = self.timeout;
        let dialer = self.dialer();
        let (client, calls) = dialer.client();
        let link = dialer.link(client.attach(stream).await?, calls);
        Ok(Channel::on(Wire::new(link, None)).with_timeout(timeout))
    }

    /// Finds what would keep every call from being made or answered.
    fn check(&self) -> Result<(), ConnectError> {
        self.services.check()?;
        InvalidSetting::refuse_zero("calls_max", &self.calls_max, "every call would wait for another to end")?;
        InvalidSetting::refuse_zero("timeout", &self.timeout, "every call would have timed out before it began")?;
        Ok(self.client.check()?)
    }

    fn dialer(self) -> Dialer<S, R> {
        let Self { client, services, calls_max, when_full, .. } = self;
        Dialer { client: client.check_peer(), services: Arc::new(services), calls_max, when_full }
    }

    fn map<S2, R2>(self, change: impl FnOnce(Services<S, R>) -> Services<S2, R2>) -> ChannelBuilder<S2, R2> {
        let Self { client, services, timeout, pause, calls_max, when_full } = self;
        ChannelBuilder { client, services: change(services), timeout, pause, calls_max, when_full }
    }

    fn client(self, change: impl FnOnce(frisbee::Client<()>) -> frisbee::Client<()>) -> Self {
        Self { client: change(self.client), ..self }
    }
}

impl<S, R> fmt::Debug for ChannelBuilder<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelBuilder").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Makes links that are all alike.
struct Dialer<S, R> {
    client: frisbee::Client<()>,
    services: Arc<Services<S, R>>,
    calls_max: usize,
    when_full: WhenFull,
}

impl<S: ServiceSet, R: Router> Dialer<S, R> {
    /// What connects once, and the calls that will wait on that connection.
    fn client(&self) -> (frisbee::Client<Calling<S, R>>, Arc<Calls>) {
        let calls = Arc::new(Calls::new(self.calls_max));
        let calling = Calling { calls: calls.clone(), services: self.services.clone() };
        (self.client.with_router(calling), calls)
    }

    fn link(&self, connection: Connection, calls: Arc<Calls>) -> Link {
        Link::new(connection, calls, self.when_full, self.services.operations().clone())
    }
}

/// The link of a channel, and how to get another when it is lost.
struct Wire {
    current: Mutex<Arc<Link>>,
    redial: Option<Redial>,
}

type Dialing = Pin<Box<dyn Future<Output = Result<Link, ConnectError>> + Send>>;

/// What comes of dialling, once it is over.
type Dialed = watch::Receiver<Option<Result<Arc<Link>, Arc<ConnectError>>>>;

struct Redial {
    dial: Box<dyn Fn() -> Dialing + Send + Sync>,
    progress: Mutex<Progress>,
}

struct Progress {
    under_way: Option<Dialed>,
    /// When dialling was over, and how.
    last: (Instant, End),
    /// Pauses as long as it brings no connection on which anything is heard.
    backoff: Backoff,
}

enum End {
    Connected {
        /// How many packets the peer had sent by then, to show that it speaks frisbee.
        heard: u64,
    },
    Failed,
}

impl Redial {
    fn new(dial: impl Fn() -> Dialing + Send + Sync + 'static, pause: Duration, first: &Link) -> Self {
        let progress = Progress {
            under_way: None,
            last: (Instant::now(), End::Connected { heard: first.heard() }),
            backoff: Backoff::new(pause),
        };
        Self { dial: Box::new(dial), progress: Mutex::new(progress) }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        // Nothing that runs under the lock leaves the progress half changed.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wire {
    fn new(link: Link, redial: Option<Redial>) -> Self {
        Self { current: Mutex::new(Arc::new(link)), redial }
    }

    fn current(&self) -> Arc<Link> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The link, connected again if it was lost. All calls that find it lost share one attempt to connect, which goes on
    /// when their time is up.
    async fn open(self: &Arc<Self>, deadline: Deadline) -> Result<Arc<Link>, Status> {
        let current = self.current();
        match &self.redial {
            Some(redial) if !current.takes_calls() => deadline.bound_unsent(self.dialed(redial)).await,
            _ => Ok(current),
        }
    }

    async fn dialed(self: &Arc<Self>, redial: &Redial) -> Result<Arc<Link>, Status> {
        loop {
            let mut dialed = self.dialing(redial);
            if let Ok(outcome) = dialed.wait_for(Option::is_some).await.map(|outcome| outcome.clone()) {
                let outcome = outcome.expect("it was waited for");
                return outcome.map_err(|error| CallError::Unreachable(error).into());
            }
            // The runtime that dialled is gone. If this one is going, it takes the call along here.
            yield_now().await;
        }
    }

    /// The dialling that is under way. If there is none, it begins, as a task of the current runtime.
    fn dialing(self: &Arc<Self>, redial: &Redial) -> Dialed {
        let mut progress = redial.progress();
        if let Some(dialed) = progress.under_way.as_ref().filter(|dialed| dialed.has_changed().is_ok()) {
            return dialed.clone();
        }
        let current = self.current();
        if current.takes_calls() {
            return watch::channel(Some(Ok(current))).1;
        }
        let pause = progress.pause(&current);
        let (sender, dialed) = watch::channel(None);
        progress.under_way = Some(dialed.clone());
        // What a runtime takes along when it goes counts as a failure.
        progress.last = (Instant::now(), End::Failed);
        drop(progress);
        let (dialing, wire) = ((redial.dial)(), Arc::downgrade(self));
        tokio::spawn(async move {
            let dialing = async {
                sleep(pause).await;
                dialing.await
            };
            tokio::select! {
                outcome = dialing => {
                    if let Some(wire) = wire.upgrade() {
                        // Those that waited may all have given up.
                        let _ = sender.send(wire.end_dialing(outcome));
                    }
                }
                // The channel and its calls are gone.
                () = sender.closed() => {}
            }
        });
        dialed
    }

    fn end_dialing(&self, outcome: Result<Link, ConnectError>) -> Option<Result<Arc<Link>, Arc<ConnectError>>> {
        let mut progress = self.redial.as_ref()?.progress();
        progress.under_way = None;
        let end = outcome.as_ref().map_or(End::Failed, |link| End::Connected { heard: link.heard() });
        progress.last = (Instant::now(), end);
        let outcome = outcome.map(Arc::new).map_err(Arc::new);
        if let Ok(link) = &outcome {
            let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            let lost = mem::replace(&mut *current, link.clone());
            drop((current, progress));
            drop(lost);
        }
        Some(outcome)
    }
}

impl Progress {
    /// How long to wait before dialling, now that this link is lost: not at all, but after failures, and after connections
    /// on which nothing was heard.
    fn pause(&mut self, lost: &Link) -> Duration {
        match self.last {
            (_, End::Connected { heard }) if lost.heard() > heard => {
                self.backoff.reset();
                Duration::ZERO
            }
            (at, _) => self.backoff.pause().saturating_sub(at.elapsed()),
        }
    }
}

/// The pause after the first failure.
const PAUSE: Duration = Duration::from_millis(10);
/// How long a call may take unless somebody says otherwise.
const TIMEOUT: Duration = Duration::from_secs(30);
