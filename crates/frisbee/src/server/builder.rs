//! The settings of a server, and how it starts.

use std::{io, sync::Arc, time::Duration};

use tokio::runtime::Handle;
use tracing::{Instrument, debug, debug_span, info};

use super::{
    Server,
    protocols::{Protocol, Protocols},
    retirement::Retirement,
    serve::{Front, serve},
    shared::ServerShared,
    starting::Starting,
};
use crate::{
    Address, Config, Dispatch, Engine, InvalidSetting, ListenOn, ListenTarget, Router, SocketOptions,
    driver::Scope,
    engine::cores,
    net::{Bound, Secure, Wire},
};

impl Server {
    /// Begins to build a server whose connections are handled by `router`.
    pub fn builder<R: Router>(router: R) -> ServerBuilder<R> {
        ServerBuilder {
            router: Arc::new(router),
            config: Config::default(),
            dispatch: Dispatch::default(),
            engine: Engine::default(),
            sockets: SocketOptions::default(),
            connections_max: 65_536,
            handlers_max: 65_536,
            secure: None,
            protocols: Protocols::default(),
            retirement: Retirement::default(),
        }
    }
}

/// Makes the TLS of a server that offers these protocols by ALPN, once they are known.
pub(crate) type MakeSecure = Box<dyn FnOnce(&[&[u8]]) -> Secure + Send>;

/// The settings of a server. Made by [`Server::builder`].
pub struct ServerBuilder<R> {
    router: Arc<R>,
    config: Config,
    dispatch: Dispatch,
    engine: Engine,
    sockets: SocketOptions,
    connections_max: usize,
    handlers_max: usize,
    pub(crate) secure: Option<MakeSecure>,
    protocols: Protocols,
    retirement: Retirement,
}

impl<R: Router> ServerBuilder<R> {
    /// Replaces the router.
    pub fn router<T: Router>(self, router: T) -> ServerBuilder<T> {
        ServerBuilder {
            router: Arc::new(router),
            config: self.config,
            dispatch: self.dispatch,
            engine: self.engine,
            sockets: self.sockets,
            connections_max: self.connections_max,
            handlers_max: self.handlers_max,
            secure: self.secure,
            protocols: self.protocols,
            retirement: self.retirement,
        }
    }

    /// Sets the limits and timers of each connection.
    pub fn config(self, config: Config) -> Self {
        Self { config, ..self }
    }

    /// Sets how handlers run. Default [`Dispatch::InPlace`].
    pub fn dispatch(self, dispatch: Dispatch) -> Self {
        Self { dispatch, ..self }
    }

    /// Sets the threads that serve connections. Default [`Engine::Tokio`].
    pub fn engine(self, engine: Engine) -> Self {
        Self { engine, ..self }
    }

    /// Sets how sockets are set up.
    pub fn sockets(self, sockets: SocketOptions) -> Self {
        Self { sockets, ..self }
    }

    /// Limits the connections open at once, handshakes included. Default 65 536. More are closed as soon as they are
    /// accepted.
    pub fn connections_max(self, connections_max: usize) -> Self {
        Self { connections_max, ..self }
    }

    /// Limits the handlers under way at once over all connections. Default 65 536. At the limit, packets wait. A
    /// handler in place counts from its first wait on, so each connection may be one ahead.
    pub fn handlers_max(self, handlers_max: usize) -> Self {
        Self { handlers_max, ..self }
    }

    /// Serves another protocol on the same port, for connections that it [recognizes](Protocol::recognize). Those added first are
    /// asked first. A connection has [`Config::handshake_max`] to send what it takes to tell.
    pub fn protocol(mut self, protocol: impl Protocol) -> Self {
        self.protocols.add(protocol);
        self
    }

    /// Sets the longest time for which a [shutdown](Server::shutdown) goes on serving what peers send that were asked to leave and
    /// do so by themselves, as channels of frpc do. Default 5 s, and at most half of the limit of the shutdown. It ends as soon
    /// as they have left. Zero refuses at once what still comes, as it does from all other peers.
    pub fn lame_duck(mut self, lame_duck: Duration) -> Self {
        self.retirement.lame_duck = lame_duck;
        self
    }

    /// Limits the age of a connection, so that its client connects anew from time to time, and finds servers that came later.
    /// Default `None`. The age of each connection is up to a tenth more or less, at random, so that clients that came together
    /// do not leave together.
    ///
    /// At that age, an extended peer is asked to leave, and has [a time](Self::connection_age_grace) to do so. A plain peer
    /// cannot be asked: its connection gets as old as it likes.
    pub fn connection_age_max(mut self, age_max: impl Into<Option<Duration>>) -> Self {
        self.retirement.age_max = age_max.into();
        self
    }

    /// Sets the time for which a connection that is too old is served on. Default 30 s. Then what still comes is refused, and it
    /// closes when what is under way has ended, as in a shutdown.
    pub fn connection_age_grace(mut self, grace: Duration) -> Self {
        self.retirement.age_grace = grace;
        self
    }

    /// Finds the first setting under which no connection could be served: a limit of zero, for example.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        InvalidSetting::refuse_zero("connections_max", &self.connections_max, "every connection would be refused")?;
        InvalidSetting::refuse_zero("handlers_max", &self.handlers_max, "no handler could ever start")?;
        if let Some(age_max) = self.retirement.age_max {
            let effect = "every connection would be too old from the start (None lets them get as old as they like)";
            InvalidSetting::refuse_zero("connection_age_max", &age_max, effect)?;
        }
        self.sockets.check()?;
        self.config.check()
    }

    /// Listens at an address, such as `"tcp://127.0.0.1:7300"` or `"unix:/run/app.sock"`, at several, or with listeners
    /// that exist: everything that is [`ListenOn`]. Serves from now on.
    ///
    /// A port or path on which somebody else listens is an error of kind [`AddrInUse`](io::ErrorKind::AddrInUse), with
    /// every engine, unless [`SocketOptions::reuse_port`] shares the port. The file of a Unix socket that a server left
    /// behind when it died is replaced.
    ///
    /// # Errors
    ///
    /// [Settings](Self::check) under which nothing could be served, a router that [refuses](Router::check), an address
    /// that is no good or taken, threads or rings that cannot be had. Nothing is left of the server then: no thread, no
    /// socket, no file. No connection was served.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left of a server if the future is dropped.
    pub async fn bind(mut self, on: impl ListenOn) -> io::Result<Server> {
        self.check()?;
        self.router.check().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let targets = on.into_targets()?;
        self.engine = self.engine.choose()?;
        if self.engine.rings().is_some() && self.secure.is_some() {
            info!("connections with TLS are served without io_uring");
        }
        let sockets = self.sockets.clone();
        let threads = match self.engine {
            Engine::Tokio => 1,
            _ => cores(),
        };
        let mut bound = Vec::new();
        for ListenTarget(target) in targets {
            let name = target.to_string();
            let named = |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {name}: {error}"));
            bound.push((Bound::bind(target, &sockets, threads).await.map_err(named)?, name));
        }
        let shared = Arc::new(self.into_shared());
        let starting = Starting::new(&shared, threads)?;
        let (mut local, mut listeners) = (Vec::new(), Vec::new());
        for (bound, name) in bound {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {name}: {error}"));
            let (address, on_runtimes) = bound.listen(&sockets, &starting.runtimes).await.map_err(named)?;
            debug!(local = %address, "listening");
            local.push(address);
            listeners.extend(on_runtimes);
        }
        if shared.engine != Engine::Tokio {
            shared.threads.set(&starting.runtimes);
        }
        starting.succeed();
        for (runtime, listener) in listeners {
            runtime.spawn(shared.begin_accepting(listener));
        }
        Ok(Server { shared, local })
    }

    /// Serves only what [`Server::attach`] is given, on the current tokio runtime.
    ///
    /// # Panics
    ///
    /// Panics if [`bind`](Self::bind) would refuse the [settings](Self::check) or the [router](Router::check).
    pub fn without_listener(self) -> Server {
        if let Err(error) = self.check() {
            panic!("{error}");
        }
        if let Err(error) = self.router.check() {
            panic!("{error}");
        }
        let shared = Self { engine: Engine::Tokio, ..self }.into_shared();
        Server { shared: Arc::new(shared), local: vec![Address::Unnamed] }
    }

    fn into_shared(self) -> ServerShared {
        let secure = self.secure.map(|make| make(&self.protocols.alpn()));
        let (router, front) = (self.router, Front { secure, protocols: self.protocols });
        let scope = Scope::new(self.dispatch, self.handlers_max);
        // The only part that knows the router's type.
        let start = move |shared, slot, wire: Wire, local, peer: Address, elsewhere: Option<Handle>| {
            let span = debug_span!("connection", %peer);
            let (router, front) = (router.clone(), front.clone());
            let Some(runtime) = elsewhere else {
                tokio::spawn(serve(shared, slot, wire, local, peer, router, front).instrument(span));
                return;
            };
            runtime.spawn(async move {
                match wire.onto_current_runtime() {
                    Ok(wire) => serve(shared, slot, wire, local, peer, router, front).instrument(span).await,
                    Err(error) => debug!(%error, %peer, "a connection was gone before it was served"),
                }
            });
        };
        ServerShared::new(self.config, self.engine, self.connections_max, self.retirement, scope, start)
    }
}
