//! A server in memory.

use std::{
    process,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use frisbee::Router;

use crate::{
    channel::{Channel, builder::ChannelBuilder},
    error::{ConnectError, ServeError},
    server::{Server, ServerBuilder},
    service::set::ServiceSet,
};

/// A complete server whose connections are pipes in memory, for tests without sockets.
///
/// ```
/// # use frpc::generated::{Answer, Call, Method, Service, Status};
/// # struct EchoServer;
/// # impl Service for EchoServer {
/// #     const NAME: &'static str = "Echo";
/// #     const METHODS: &'static [Method] = &[];
/// #     async fn call(&self, _: usize, call: Call) -> Result<Answer, Status> { call.unknown() }
/// # }
/// use frpc::{Server, testing::MemoryServer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = MemoryServer::start(Server::builder().add_service(EchoServer)).await?;
/// let channel = server.channel().await?;
/// # let _ = channel;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MemoryServer {
    server: Server,
}

impl MemoryServer {
    /// Starts the server at an unused address in memory.
    ///
    /// # Errors
    ///
    /// The same as for [`ServerBuilder::bind`].
    pub async fn start<S: ServiceSet, R: Router>(builder: ServerBuilder<S, R>) -> Result<Self, ServeError> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let server = builder.bind(&*format!("mem:frpc-testing-{}-{number}", process::id())).await?;
        Ok(Self { server })
    }

    /// Returns the server, for example for its address.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Connects a channel with default settings.
    pub async fn channel(&self) -> Result<Channel, ConnectError> {
        self.channel_with(Channel::builder()).await
    }

    /// Connects a channel with these settings.
    pub async fn channel_with(&self, builder: ChannelBuilder) -> Result<Channel, ConnectError> {
        builder.connect(self.server.local_addr()).await
    }

    /// Shuts the server down, like [`Server::shutdown`].
    pub async fn shutdown(self, limit: Duration) -> usize {
        self.server.shutdown(limit).await
    }
}
