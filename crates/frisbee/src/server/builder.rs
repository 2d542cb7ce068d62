//! Settings and start of a server.

use std::{io, sync::Arc};

use tokio::runtime::Handle;
use tracing::{Instrument, debug, debug_span, info};

use super::{
    Server,
    protocols::{Protocol, ProtocolList},
    serve::{HandshakeSteps, serve},
    settings::ServerLimits,
    shared::ServerShared,
    starting::StartingThreads,
};
use crate::{
    Address, Config, Dispatch, Engine, InvalidSetting, ListenOn, ListenTarget, Router, RouterInfo, SocketOptions,
    driver::DriverScope,
    engine::cores,
    net::{BoundSocket, IoStream, TlsHandshake},
};

impl Server {
    /// Creates a builder for a server with this router.
    pub fn builder<R: Router>(router: R) -> ServerBuilder<R> {
        ServerBuilder {
            router: Arc::new(router),
            config: Config::default(),
            dispatch: Dispatch::default(),
            engine: Engine::default(),
            sockets: SocketOptions::default(),
            limits: ServerLimits::default(),
            secure: None,
            protocols: ProtocolList::default(),
        }
    }
}

/// Creates the TLS settings of a server, given the ALPN names of its protocols.
pub(crate) type MakeHandshake = Box<dyn FnOnce(&[&[u8]]) -> TlsHandshake + Send>;

/// Settings of a server. Created by [`Server::builder`].
pub struct ServerBuilder<R> {
    router: Arc<R>,
    config: Config,
    dispatch: Dispatch,
    engine: Engine,
    sockets: SocketOptions,
    limits: ServerLimits,
    pub(crate) secure: Option<MakeHandshake>,
    protocols: ProtocolList,
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
            limits: self.limits,
            secure: self.secure,
            protocols: self.protocols,
        }
    }

    /// Sets the limits and timers of each connection.
    pub fn config(self, config: Config) -> Self {
        Self { config, ..self }
    }

    /// Sets the execution mode of handlers. Default [`Dispatch::InPlace`].
    pub fn dispatch(self, dispatch: Dispatch) -> Self {
        Self { dispatch, ..self }
    }

    /// Sets the threads for connections. Default [`Engine::Tokio`].
    pub fn engine(self, engine: Engine) -> Self {
        Self { engine, ..self }
    }

    /// Sets the options of listening and accepted sockets.
    pub fn sockets(self, sockets: SocketOptions) -> Self {
        Self { sockets, ..self }
    }

    /// Sets the limits over all connections, and the times given to them to leave.
    pub fn limits(self, limits: ServerLimits) -> Self {
        Self { limits, ..self }
    }

    /// Serves another protocol on the same port, for connections it [recognizes](Protocol::recognize).
    ///
    /// Protocols are asked in the order of these calls. A connection has [`Config::handshake_max`] to send enough
    /// bytes.
    pub fn protocol(mut self, protocol: impl Protocol) -> Self {
        self.protocols.add(protocol);
        self
    }

    /// Returns an error for the first setting with an unusable value, for example a limit of zero.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        self.limits.check()?;
        self.sockets.check()?;
        self.config.check()
    }

    /// Starts serving on one or several [targets](ListenOn): addresses such as `"tcp://127.0.0.1:7300"` or
    /// `"unix:/run/app.sock"`, or existing listeners.
    ///
    /// A port or path in use is an error of kind [`AddrInUse`](io::ErrorKind::AddrInUse) with every engine, unless
    /// [`SocketOptions::reuse_port`] shares the port. A Unix socket file left by a dead server is replaced.
    ///
    /// # Errors
    ///
    /// Unusable [settings](Self::check), an error of [`Router::describe`], an invalid address or one in use, or a
    /// failure to create the threads or rings of the engine. The server then leaves no thread, socket or file, and has
    /// served no connection.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases all resources of the server.
    pub async fn bind(mut self, on: impl ListenOn) -> io::Result<Server> {
        self.check()?;
        let info = self.router.describe().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
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
        // In this order: bind all ports, start the threads, then listen. A failure leaves nothing behind, and no
        // client connects to a server that fails to start.
        let mut bound = Vec::new();
        for ListenTarget(target) in targets {
            let (name, requested) = (target.to_string(), target.requested());
            let named = |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {name}: {error}"));
            bound.push((BoundSocket::bind(target, &sockets, threads).await.map_err(named)?, name, requested));
        }
        let shared = Arc::new(self.into_shared(info));
        let starting = StartingThreads::new(&shared, threads)?;
        let (mut local, mut listeners) = (Vec::new(), Vec::new());
        for (bound, name, requested) in bound {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {name}: {error}"));
            let (address, on_runtimes) = bound.listen(&sockets, &starting.runtimes).await.map_err(named)?;
            debug!(local = %address, "listening");
            let requested = requested.unwrap_or_else(|| address.to_string());
            local.push(address);
            listeners.extend(on_runtimes.into_iter().map(|on_runtime| (requested.clone(), on_runtime)));
        }
        if shared.engine != Engine::Tokio {
            shared.threads.set(&starting.runtimes);
        }
        starting.succeed();
        for (requested, (runtime, listener)) in listeners {
            runtime.spawn(shared.begin_accepting(requested, listener));
        }
        Ok(Server { shared, local })
    }

    /// Creates a server without a listener. It serves streams passed to [`Server::attach`], on the current tokio
    /// runtime.
    ///
    /// # Panics
    ///
    /// Panics if [`bind`](Self::bind) would refuse the [settings](Self::check) or the [router](Router::describe).
    pub fn without_listener(self) -> Server {
        if let Err(error) = self.check() {
            panic!("{error}");
        }
        let info = self.router.describe().unwrap_or_else(|error| panic!("{error}"));
        let shared = Self { engine: Engine::Tokio, ..self }.into_shared(info);
        Server { shared: Arc::new(shared), local: vec![Address::Unnamed] }
    }

    fn into_shared(self, info: RouterInfo) -> ServerShared {
        let secure = self.secure.map(|make| make(&self.protocols.alpn()));
        let (router, front) = (self.router, HandshakeSteps { secure, protocols: self.protocols });
        let scope = DriverScope::new(Arc::new(info), self.dispatch, Some(self.limits.handlers_max));
        // The only code that depends on the router's type.
        let start = move |shared, slot, wire: IoStream, local, peer: Address, elsewhere: Option<Handle>| {
            let span = debug_span!("connection", %peer);
            let (router, front) = (router.clone(), front.clone());
            let Some(runtime) = elsewhere else {
                tokio::spawn(serve(shared, slot, wire, local, peer, router, front).instrument(span));
                return;
            };
            runtime.spawn(async move {
                match wire.onto_current_runtime() {
                    Ok(wire) => serve(shared, slot, wire, local, peer, router, front).instrument(span).await,
                    Err(error) => debug!(%error, %peer, "a connection was lost before it was served"),
                }
            });
        };
        ServerShared::new(self.config, self.engine, self.limits, scope, start)
    }
}
