//! A channel to five processes under full load, each of them terminated and killed in turn.
//!
//! `REPLICAS_ROUNDS` sets how often each process is terminated, and how often it is killed.

use std::{
    env,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use frpc::{
    Address, Channel, Engine, Method, Server,
    fleet::{Endpoint, Target},
};
use frpc_http::Http;
use rustix::process::{Pid, Signal, kill_process};
use support::{
    SECOND,
    calls::{TestServer, TestService, Words, may_have_executed, schema::test_methods, words},
    in_real_time_within,
    sockets::Kind,
};
use tokio::{
    io::BufReader,
    process::{Child, ChildStdout},
    signal::unix::{SignalKind, signal},
    sync::Semaphore,
    task::JoinSet,
};

use crate::{
    processes::{line_after, run_test},
    restarts::{bind_when_free, lasting_address},
};

static IDEMPOTENT: Method = test_methods::SAY.idempotent();
static PLAIN: Method = test_methods::SAY;

const SERVER: &str = "replicas::serve_until_terminated";
/// The variable with the address of a server process.
const ADDRESS: &str = "FRISBEE_REPLICA_ADDRESS";

/// The server, in a process of its own. Without the variable, this test has nothing to do.
#[test]
fn serve_until_terminated() {
    let Ok(address) = env::var(ADDRESS) else { return };
    in_real_time_within(600 * SECOND, async {
        let mut terminated = signal(SignalKind::terminate()).unwrap();
        let server = bind_when_free(async || {
            let service = TestServer::new(TestService::default());
            Server::builder().engine(Engine::Tokio).add_service(service).wire(Http::new()).bind(&*address).await
        })
        .await;
        println!("listening on {}", server.local_addr());
        terminated.recv().await;
        server.shutdown(10 * SECOND).await;
    });
}

struct Replica {
    address: Address,
    process: Child,
    /// Kept open, because the process prints the result of its test.
    _said: BufReader<ChildStdout>,
}

impl Replica {
    async fn start(address: Address) -> Self {
        let (process, mut said) = run_test(SERVER, &[(ADDRESS, &address.to_string())]);
        line_after(&mut said, "listening on ").await.expect("the server listens");
        Self { address, process, _said: said }
    }

    /// Ends the process with a signal, and starts another.
    async fn restart(mut self, by: Signal) -> Self {
        let id = self.process.id().expect("it runs").try_into().unwrap();
        kill_process(Pid::from_raw(id).unwrap(), by).unwrap();
        self.process.wait().await.unwrap();
        Self::start(self.address).await
    }
}

/// Calls of one method until the end of the test.
#[derive(Default)]
struct Load {
    is_over: AtomicBool,
    failed: AtomicU64,
}

async fn restarts_fail_no_idempotent_call(scheme: &str) {
    let rounds = env::var("REPLICAS_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap());
    let mut replicas = Vec::new();
    for _ in 0..REPLICAS {
        replicas.push(Replica::start(lasting_address(Kind::Tcp)).await);
    }
    let places = replicas.iter().map(|replica| replica.address.socket_addr().unwrap());
    let endpoints = places.map(|place| Endpoint::new(format!("{scheme}://{place}")).unwrap());
    let channel = Channel::builder().transport(frpc_http::transport()).connect(Target::endpoints(endpoints).unwrap());
    let channel = channel.await.unwrap();
    let (load, answered) = (Arc::<Load>::default(), Arc::new(Semaphore::new(0)));
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (channel, load, answered) = (channel.clone(), load.clone(), answered.clone());
        let method = if caller % 2 == 0 { &IDEMPOTENT } else { &PLAIN };
        callers.spawn(async move {
            while !load.is_over.load(Ordering::Relaxed) {
                match channel.unary::<_, Words>(method, words("hi")).await {
                    Ok(_) => answered.add_permits(1),
                    Err(status) => {
                        assert!(!method.is_idempotent && may_have_executed(&status), "{method:?}: {status:?}");
                        load.failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
    }
    let restarts = async {
        for by in [Signal::TERM, Signal::KILL] {
            for index in (0..rounds).flat_map(|_| 0..REPLICAS) {
                answered.acquire_many(CALLS).await.unwrap().forget();
                let replica = replicas.swap_remove(index);
                replicas.push(replica.restart(by).await);
                let last = replicas.len() - 1;
                replicas.swap(index, last);
            }
            let failed = load.failed.load(Ordering::Relaxed);
            println!("{scheme}: {failed} calls failed after {by:?}");
            assert!(by == Signal::KILL || failed == 0, "a graceful shutdown loses no call");
        }
    };
    let failing = async {
        while let Some(ended) = callers.join_next().await {
            ended.unwrap();
        }
        pending().await
    };
    tokio::select! {
        () = restarts => {}
        () = failing => {}
    }
    load.is_over.store(true, Ordering::Relaxed);
    callers.join_all().await;
}

#[test]
fn killed_processes_fail_no_idempotent_call_over_frisbee() {
    in_real_time_within(600 * SECOND, restarts_fail_no_idempotent_call("tcp"));
}

#[test]
fn killed_processes_fail_no_idempotent_call_over_grpc() {
    in_real_time_within(600 * SECOND, restarts_fail_no_idempotent_call("grpc"));
}

const REPLICAS: usize = 5;
const CALLERS: usize = 16;
/// The number of calls between two restarts.
const CALLS: u32 = 200;
