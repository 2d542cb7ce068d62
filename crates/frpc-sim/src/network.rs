//! Servers and the network to them.

use std::{
    collections::BTreeMap,
    fmt, io, mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use frpc::{
    Address, ConnectError, ConnectSettings, Connected, ServeError, Server, Transport,
    fleet::{Endpoint, Endpoints, Refresh, Resolve, Target},
    frisbee,
    testing::{FaultInjector, FaultRates},
};
use futures_util::{
    future::BoxFuture,
    stream::{self, BoxStream, StreamExt},
};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    faults::NetworkFaults,
    link::SimStream,
    lock::lock,
    pipe::{self, LostRequests},
};

/// The servers of a simulation, and the network between them and their clients.
#[derive(Clone, Debug)]
pub struct SimNetwork(Arc<NetworkState>);

#[derive(Debug)]
struct NetworkState {
    servers: Mutex<BTreeMap<String, SimServer>>,
    /// The last answer of the resolver.
    found: watch::Sender<ResolverAnswer>,
    /// Stalls and cuts of links.
    injected: Arc<AtomicU64>,
}

/// An answer of the resolver.
#[derive(Clone, Debug)]
enum ResolverAnswer {
    Names(Vec<String>),
    Failed,
    /// The stream of answers has ended.
    Ended,
}

/// One server of a simulation.
#[derive(Clone)]
pub struct SimServer(Arc<ServerState>);

struct ServerState {
    name: Arc<str>,
    start: Box<dyn Fn(FaultInjector) -> Result<Server, ServeError> + Send + Sync>,
    running: Mutex<Option<RunningServer>>,
    injector: FaultInjector,
    faults: watch::Sender<NetworkFaults>,
    lost: LostRequests,
}

struct RunningServer {
    server: Server,
    /// Cuts its connections.
    cut: CancellationToken,
}

/// The transport to the servers of a simulation.
#[derive(Clone, Debug)]
pub struct SimTransport(SimNetwork);

impl Default for SimNetwork {
    fn default() -> Self {
        Self::new()
    }
}

impl SimNetwork {
    /// Creates a network without servers.
    pub fn new() -> Self {
        let found = watch::Sender::new(ResolverAnswer::Names(Vec::new()));
        Self(Arc::new(NetworkState { servers: Mutex::default(), found, injected: Arc::default() }))
    }

    /// Starts servers. `start` builds each of them, again after each restart. Its argument is a layer for faults of calls.
    ///
    /// # Panics
    ///
    /// If a server cannot be built.
    pub fn servers(
        &self,
        count: usize,
        start: impl Fn(FaultInjector) -> Result<Server, ServeError> + Clone + Send + Sync + 'static,
    ) -> Vec<SimServer> {
        let mut all: Vec<_> = lock(&self.0.servers).keys().cloned().collect();
        let known = all.len();
        let servers: Vec<_> = (known..known + count)
            .map(|number| {
                let server = SimServer(Arc::new(ServerState {
                    name: format!("server-{number}").into(),
                    start: Box::new(start.clone()),
                    running: Mutex::default(),
                    injector: FaultInjector::new(fastrand::u64(..)),
                    faults: watch::Sender::default(),
                    lost: LostRequests::default(),
                }));
                server.start();
                lock(&self.0.servers).insert(server.name().to_owned(), server.clone());
                server
            })
            .collect();
        all.extend(servers.iter().map(|server| server.name().to_owned()));
        self.publish_names(all);
        servers
    }

    /// Replaces the answer of the resolver. It contains all servers at the start, and again after more are started.
    pub fn publish<'a>(&self, servers: impl IntoIterator<Item = &'a SimServer>) {
        self.publish_names(servers.into_iter().map(|server| server.name().to_owned()));
    }

    /// Replaces the answer of the resolver by names of servers. Connections to unknown names are refused, like
    /// connections to servers that are gone.
    pub fn publish_names(&self, names: impl IntoIterator<Item = String>) {
        self.0.found.send_replace(ResolverAnswer::Names(names.into_iter().collect()));
    }

    /// Lets the resolver report an error.
    pub fn fail_resolver(&self) {
        self.0.found.send_replace(ResolverAnswer::Failed);
    }

    /// Ends the answers of the resolver for all channels of now. It answers later channels after the next set is
    /// published.
    pub fn end_resolver(&self) {
        self.0.found.send_replace(ResolverAnswer::Ended);
    }

    /// Returns the transport for channels to the servers.
    pub fn transport(&self) -> SimTransport {
        SimTransport(self.clone())
    }

    /// Returns the target with all published servers.
    pub fn target(&self) -> Target {
        Target::resolved_by(SimResolver(self.0.found.subscribe()))
    }

    /// Returns the number of stalls and cuts by [`LinkFaults`](crate::LinkFaults).
    pub fn link_faults(&self) -> u64 {
        self.0.injected.load(Ordering::Relaxed)
    }

    /// Connects to a server, for protocols other than frisbee and for clients without a channel.
    ///
    /// ```
    /// # async fn example(network: frpc_sim::SimNetwork) {
    /// // let client = frpc_http::Client::new().connector(move || { let network = network.clone(); async move { network.dial("server-0").await } });
    /// let stream = network.dial("server-0").await.unwrap();
    /// # drop(stream);
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// No server with this name runs.
    pub async fn dial(&self, name: &str) -> io::Result<SimStream> {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let SimServer(state) = lock(&self.0.servers).get(name).cloned().ok_or_else(refused)?;
        let mut faults = state.faults.subscribe();
        // `state` holds the sender.
        let _ = faults.wait_for(|faults| !faults.is_partitioned && !faults.is_black_hole).await;
        let running = lock(&state.running);
        let (RunningServer { server, cut }, lost) = (running.as_ref().ok_or_else(refused)?, state.lost.clone());
        let (client, theirs) = pipe::connection(&faults, cut.clone(), lost, self.0.injected.clone());
        server.attach(theirs);
        Ok(client)
    }
}

impl fmt::Debug for SimServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimServer")
            .field("name", &self.0.name)
            .field("faults", &*self.0.faults.borrow())
            .field("is_running", &self.is_running())
            .finish()
    }
}

impl SimServer {
    /// Returns the name of the server.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Changes the shares of calls with a fault, also after restarts of the server.
    pub fn set_fault_rates(&self, rates: FaultRates) {
        self.0.injector.set_rates(rates);
    }

    /// Changes the faults of the network to the server.
    pub fn set_faults(&self, change: impl FnOnce(&mut NetworkFaults)) {
        self.0.faults.send_modify(change);
    }

    /// Returns the current faults of the network to the server.
    pub fn faults(&self) -> NetworkFaults {
        *self.0.faults.borrow()
    }

    /// Returns `true` while the server runs.
    pub fn is_running(&self) -> bool {
        lock(&self.0.running).is_some()
    }

    /// Returns the bytes from clients lost in a black hole or after the end of the server, with their times. Most of them
    /// are requests.
    pub fn lost(&self) -> Vec<(Instant, Vec<u8>)> {
        lock(&self.0.lost).clone()
    }

    /// Starts the server, unless it runs.
    ///
    /// # Panics
    ///
    /// If the server cannot be built.
    pub fn start(&self) {
        lock(&self.0.running).get_or_insert_with(|| {
            let server = (self.0.start)(self.0.injector.clone()).expect("the server can be built");
            RunningServer { server, cut: CancellationToken::new() }
        });
    }

    /// Stops the server suddenly. Its connections are lost, and its handlers are dropped.
    pub fn kill(&self) {
        if let Some(running) = lock(&self.0.running).take() {
            running.cut.cancel();
        }
    }

    /// Cuts the connections of now. The server runs on.
    pub fn disconnect(&self) {
        if let Some(running) = &mut *lock(&self.0.running) {
            mem::take(&mut running.cut).cancel();
        }
    }

    /// Calls a function with the running server, for example for its metrics.
    pub fn inspect<T>(&self, look: impl FnOnce(&Server) -> T) -> Option<T> {
        lock(&self.0.running).as_ref().map(|running| look(&running.server))
    }

    /// Stops the server gracefully: it refuses new connections, and ends its calls within the limit.
    pub async fn shut_down(&self, limit: Duration) {
        let running = lock(&self.0.running).take();
        if let Some(RunningServer { server, cut }) = running {
            server.shutdown(limit).await;
            cut.cancel();
        }
    }
}

impl Transport for SimTransport {
    fn schemes(&self) -> &[&str] {
        &[SCHEME]
    }

    fn connect(&self, url: String, settings: ConnectSettings) -> BoxFuture<'static, Result<Connected, ConnectError>> {
        let Self(network) = self.clone();
        Box::pin(async move {
            let name = url.split_once("://").map_or("", |(_, name)| name);
            let connecting = timeout(settings.connect_timeout, network.dial(name)).await;
            match connecting.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(stream) => Ok(Connected::Frisbee(Box::new(stream))),
                Err(error) => Err(frisbee::ConnectError::new(Address::Url(url), 1, error).into()),
            }
        })
    }
}

/// Finds the published servers.
struct SimResolver(watch::Receiver<ResolverAnswer>);

impl Resolve for SimResolver {
    fn resolve(&self, _: Refresh) -> BoxStream<'static, io::Result<Endpoints>> {
        let mut found = self.0.clone();
        found.mark_changed();
        stream::unfold(found, async |mut found| {
            found.changed().await.ok()?;
            let answer = found.borrow_and_update().clone();
            let names = match answer {
                ResolverAnswer::Names(names) => names,
                ResolverAnswer::Failed => return Some((Err(io::Error::other("a simulated failure")), found)),
                ResolverAnswer::Ended => return None,
            };
            let endpoints = names.iter().map(|name| Endpoint::new(Address::Url(format!("{SCHEME}://{name}"))));
            Some((endpoints.collect::<io::Result<Vec<_>>>().map(Endpoints::new), found))
        })
        .boxed()
    }
}

const SCHEME: &str = "sim";
