use std::{
    future::Future,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use tokio::runtime::Runtime;

use crate::{Echo, text};

/// A server and connections to it, each side with its own multi-threaded runtime.
pub struct Pair<C> {
    _server: Runtime,
    client: Runtime,
    connections: Vec<C>,
}

impl<C: Echo> Pair<C> {
    /// Starts the server and opens connections.
    pub fn start(connections: usize) -> Self {
        let server = Runtime::new().expect("threads can be started");
        let client = Runtime::new().expect("threads can be started");
        let addr = server.block_on(C::serve());
        let connections = client.block_on(join_all((0..connections).map(|_| C::connect(addr))));
        Self { _server: server, client, connections }
    }

    /// Returns the time for consecutive unary calls.
    pub fn one_caller(&self, len: usize, calls: u64) -> Duration {
        let mut connection = self.connections[0].clone();
        self.timed(async move { call(&mut connection, text(len), calls).await })
    }

    /// Returns the time for unary calls of concurrent callers, each with one call in flight, on shared connections.
    pub fn many_callers(&self, callers: u64, len: usize, calls: u64) -> Duration {
        let shares = (0..callers).map(move |caller| calls / callers + u64::from(caller < calls % callers));
        let connections = self.connections.clone().into_iter().cycle();
        self.timed(async move {
            let callers = shares.zip(connections).map(|(share, mut connection)| {
                tokio::spawn(async move { call(&mut connection, text(len), share).await })
            });
            for called in join_all(callers).await {
                called.expect("a call that fails ends the bench");
            }
        })
    }

    /// Returns the time for one stream of answers.
    pub fn server_streaming(&self, len: usize, messages: u64) -> Duration {
        let mut connection = self.connections[0].clone();
        let messages = u32::try_from(messages).expect("a sample is short");
        self.timed(async move { assert_eq!(connection.repeat(text(len), messages).await, messages) })
    }

    /// Returns the time for one stream of messages and the stream of their answers.
    pub fn bidirectional(&self, len: usize, messages: u64) -> Duration {
        let mut connection = self.connections[0].clone();
        let messages = u32::try_from(messages).expect("a sample is short");
        self.timed(async move { assert_eq!(connection.each(text(len), messages).await, messages) })
    }

    /// Measures `work` on a worker thread of the runtime, as in real programs.
    fn timed(&self, work: impl Future<Output = ()> + Send + 'static) -> Duration {
        let start = Instant::now();
        let worked = self.client.block_on(self.client.spawn(work));
        worked.expect("a call that fails ends the bench");
        start.elapsed()
    }
}

async fn call(connection: &mut impl Echo, text: String, calls: u64) {
    for _ in 0..calls {
        let answer = connection.once(text.clone()).await;
        assert_eq!(answer.len(), text.len());
    }
}
