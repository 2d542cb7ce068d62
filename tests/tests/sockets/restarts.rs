//! Successive servers at one address, with clients that keep calling.

use std::{
    hash::{BuildHasher, RandomState},
    io,
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use frpc::{Address, Channel, Engine, ServeError, Server, Status};
use support::{
    SECOND,
    calls::{TestClient, TestServer, TestService, all, stream_of, words},
    engines, in_real_time,
    sockets::{Kind, unused_address},
};
use tokio::{
    sync::Semaphore,
    task::{JoinSet, yield_now},
};

/// Returns an address with an unused port below 32768, outside the range the system assigns to other sockets.
pub(crate) fn lasting_address(kind: Kind) -> Address {
    if kind != Kind::Tcp {
        return unused_address(kind);
    }
    let random = RandomState::new();
    let ports = (0..u64::MAX).map(|attempt| 12_000 + u16::try_from(random.hash_one(attempt) % 20_000).unwrap());
    let mut unused = ports.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    Address::Tcp(([127, 0, 0, 1], unused.next().unwrap()).into())
}

/// Starts a server as soon as the address is free.
pub(crate) async fn bind_when_free(bind: impl AsyncFn() -> Result<Server, ServeError>) -> Server {
    loop {
        match bind().await {
            Ok(server) => return server,
            Err(ServeError::Listen(error)) if error.kind() == io::ErrorKind::AddrInUse => yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
}

async fn serve_at(address: &Address, engine: Engine) -> Server {
    bind_when_free(async || {
        let service = TestServer::new(TestService::default());
        Server::builder().engine(engine).add_service(service).bind(address).await
    })
    .await
}

/// Callers that run until stopped and wait only for their answers.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    answered: Arc<Semaphore>,
    callers: JoinSet<Result<(), Status>>,
}

impl Load {
    pub(crate) async fn on(address: &Address) -> Self {
        let mut load = Self { is_over: Arc::default(), answered: Arc::new(Semaphore::new(0)), callers: JoinSet::new() };
        for _ in 0..CHANNELS {
            let client = TestClient::new(Channel::connect(address).await.unwrap());
            for caller in 0..CALLERS {
                let (client, is_over, answered) = (client.clone(), load.is_over.clone(), load.answered.clone());
                load.callers.spawn(async move {
                    while !is_over.load(Ordering::Relaxed) {
                        call(&client, caller).await?;
                        answered.add_permits(1);
                    }
                    Ok(())
                });
            }
        }
        load
    }

    /// Waits for this number of further answers.
    pub(crate) async fn goes_on(&mut self, calls: u32) {
        tokio::select! {
            answered = self.answered.acquire_many(calls) => answered.unwrap().forget(),
            failed = self.callers.join_next() => panic!("{:?}", failed.unwrap().unwrap()),
        }
    }

    pub(crate) async fn end(mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        while let Some(caller) = self.callers.join_next().await {
            caller.unwrap().unwrap();
        }
    }
}

/// Makes a call. Half of the callers make unary calls, the others use each kind of stream.
async fn call(client: &TestClient, caller: u32) -> Result<(), Status> {
    match caller {
        0 | 1 => assert_eq!(all(client.count(words("a, b, c")).await?).await?, ["a", "b", "c"]),
        2 => assert_eq!(client.gather(stream_of("a b c")).await?.into_inner(), words("a b c")),
        3 => assert_eq!(all(client.chat(stream_of("a b")).await?).await?, ["re: a", "re: b"]),
        _ => assert_eq!(client.say(words("hi")).await?.into_inner(), words("hi")),
    }
    Ok(())
}

fn check_restarts(kind: Kind, engine: Engine, restarts: u32) {
    in_real_time(async {
        let address = lasting_address(kind);
        let mut server = serve_at(&address, engine).await;
        let mut load = Load::on(&address).await;
        for _ in 0..restarts {
            load.goes_on(CALLS_EACH).await;
            let shutdown = tokio::spawn(server.shutdown(10 * SECOND));
            server = serve_at(&address, engine).await;
            assert_eq!(shutdown.await.unwrap(), 0, "no connection was cut");
        }
        load.goes_on(CALLS_EACH).await;
        load.end().await;
        let metrics = server.metrics();
        assert_eq!((metrics.accepted, metrics.refused), (CHANNELS, 0), "each channel connected once");
        assert_eq!(server.shutdown(10 * SECOND).await, 0);
    });
}

#[test]
fn twenty_restarts_under_load_fail_no_call() {
    check_restarts(Kind::Tcp, Engine::Tokio, 20);
}

#[cfg(unix)]
#[test]
fn twenty_restarts_on_a_socket_path_fail_no_call() {
    check_restarts(Kind::UnixPath, Engine::Tokio, 20);
}

#[test]
fn restarts_under_load_fail_no_call_on_any_engine() {
    for engine in engines() {
        check_restarts(Kind::Tcp, engine, 3);
    }
}

const CHANNELS: u64 = 2;
/// Number of callers per channel.
const CALLERS: u32 = 8;
/// Minimum number of calls answered by each server.
pub(crate) const CALLS_EACH: u32 = 500;
