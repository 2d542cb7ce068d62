//! Processes of a service that pass their listeners to each other.

use std::{
    env,
    io::{self, Write},
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use frpc::{Address, Channel, Engine, Handover, ListenOn, Server};
use support::{
    Directory, SECOND,
    calls::{TestClient, TestServer, TestService, words},
    engines, in_real_time, in_real_time_within,
    sockets::{Kind, unused_path},
};
use tokio::{
    io::BufReader,
    process::{Child, ChildStdout},
    task::{JoinHandle, yield_now},
};

use crate::{
    processes::{line_after, run_test},
    restarts::{CALLS_EACH, Load, lasting_address},
};

const PROCESS: &str = "handover::serve_until_handed_over";
const ADDRESS: &str = "FRISBEE_HANDOVER_ADDRESS";
const PATH: &str = "FRISBEE_HANDOVER_PATH";
const ENGINE: &str = "FRISBEE_HANDOVER_ENGINE";

/// A process of the service. Without the variables, this test has nothing to do.
#[test]
fn serve_until_handed_over() {
    let Ok(address) = env::var(ADDRESS) else { return };
    in_real_time_within(600 * SECOND, async {
        let mut handover = Handover::join(env::var(PATH).unwrap()).await.unwrap();
        let Ok(engine) = env::var(ENGINE) else {
            println!("ends before it serves");
            return;
        };
        let engine = [Engine::Tokio, Engine::PerCore].into_iter().find(|one| one.to_string() == engine).unwrap();
        let server = Server::builder()
            .engine(engine)
            .add_service(TestServer::new(TestService::default()))
            .bind(handover.targets(&*address).unwrap())
            .await
            .unwrap();
        println!("listening on {}", server.local_addr());
        server.hand_over(handover).await;
        println!("connections cut: {}", server.shutdown(20 * SECOND).await);
    });
}

struct Process {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Process {
    fn start(address: &Address, handover: &Path, engine: Option<Engine>) -> Self {
        let (address, engine) = (address.to_string(), engine.map(|engine| engine.to_string()));
        let mut variables = vec![(ADDRESS, &*address), (PATH, handover.to_str().unwrap())];
        variables.extend(engine.as_deref().map(|engine| (ENGINE, engine)));
        let (child, said) = run_test(PROCESS, &variables);
        Self { child, said }
    }

    async fn listening(address: &Address, handover: &Path, engine: Engine) -> Self {
        let mut process = Self::start(address, handover, Some(engine));
        line_after(&mut process.said, "listening on ").await.expect("the process serves");
        process
    }

    async fn ends_without_a_cut(mut self) {
        assert_eq!(line_after(&mut self.said, "connections cut: ").await.as_deref(), Some("0"));
        assert!(self.child.wait().await.unwrap().success());
    }
}

/// Makes a call over a new connection each, until stopped.
fn keep_connecting(address: &Address) -> (Arc<AtomicBool>, JoinHandle<u32>) {
    let is_over = Arc::new(AtomicBool::new(false));
    let (address, stop) = (address.clone(), is_over.clone());
    let connecting = tokio::spawn(async move {
        let mut calls = 0;
        while !stop.load(Ordering::Relaxed) {
            let channel = Channel::connect(&address).await.expect("no connection is refused");
            TestClient::new(channel).say(words("hi")).await.expect("no call fails");
            calls += 1;
        }
        calls
    });
    (is_over, connecting)
}

fn check_restarts(kind: Kind, engines: [Engine; 4]) {
    in_real_time(async {
        let address = lasting_address(kind);
        let directory = Directory::new("handover");
        let path = directory.path().join("next");
        let mut process = Process::listening(&address, &path, engines[0]).await;
        let mut load = Load::on(&address).await;
        let (is_over, connecting) = keep_connecting(&address);
        for engine in &engines[1..] {
            load.goes_on(CALLS_EACH).await;
            let next = Process::listening(&address, &path, *engine).await;
            std::mem::replace(&mut process, next).ends_without_a_cut().await;
        }
        load.goes_on(CALLS_EACH).await;
        is_over.store(true, Ordering::Relaxed);
        assert!(connecting.await.unwrap() > 0);
        load.end().await;
    });
}

#[test]
fn processes_replaced_under_load_refuse_no_tcp_connection_and_fail_no_call() {
    check_restarts(Kind::Tcp, [Engine::Tokio, Engine::PerCore, Engine::PerCore, Engine::Tokio]);
}

#[test]
fn processes_replaced_under_load_refuse_no_unix_connection_and_fail_no_call() {
    check_restarts(Kind::UnixPath, [Engine::PerCore, Engine::Tokio, Engine::Tokio, Engine::PerCore]);
}

#[test]
fn a_process_stays_in_service_if_the_next_one_ends_before_it_serves() {
    in_real_time(async {
        let address = lasting_address(Kind::UnixPath);
        let directory = Directory::new("handover");
        let path = directory.path().join("next");
        let process = Process::listening(&address, &path, Engine::Tokio).await;
        let mut load = Load::on(&address).await;
        let mut failing = Process::start(&address, &path, None);
        line_after(&mut failing.said, "ends before it serves").await.unwrap();
        failing.child.wait().await.unwrap();
        load.goes_on(CALLS_EACH).await;
        let next = Process::listening(&address, &path, Engine::Tokio).await;
        process.ends_without_a_cut().await;
        load.goes_on(CALLS_EACH).await;
        load.end().await;
        drop(next);
    });
}

async fn serve(on: impl ListenOn, engine: Engine) -> Server {
    Server::builder().engine(engine).add_service(TestServer::new(TestService::default())).bind(on).await.unwrap()
}

#[test]
fn listeners_are_passed_between_all_engines() {
    in_real_time(async {
        for (before, after) in engines().flat_map(|before| engines().map(move |after| (before, after))) {
            let directory = Directory::new("handover");
            let file = directory.path().join("calls");
            let addresses = [Address::Tcp(([127, 0, 0, 1], 0).into()), Address::Unix(file.clone())];
            let path = directory.path().join("next");

            let mut handover = Handover::join(&path).await.unwrap();
            assert!(!handover.has_previous());
            let first = serve(handover.targets(&addresses).unwrap(), before).await;
            let served = first.local_addrs().to_vec();
            let passing = tokio::spawn(async move {
                first.hand_over(handover).await;
                first.shutdown(10 * SECOND).await
            });

            let mut handover = Handover::join(&path).await.unwrap();
            assert!(handover.has_previous());
            let second = serve(handover.targets(&addresses).unwrap(), after).await;
            assert_eq!(second.local_addrs(), served, "port 0 is the port of the previous process");
            let passing_on = tokio::spawn(async move {
                second.hand_over(handover).await;
                second
            });
            assert_eq!(passing.await.unwrap(), 0);
            for address in &served {
                let client = TestClient::new(Channel::connect(address).await.unwrap());
                assert_eq!(client.say(words("hi")).await.unwrap().into_inner(), words("hi"), "{before} {after}");
            }

            // The last process does not name the Unix socket, so it ends.
            let mut handover = Handover::join(&path).await.unwrap();
            let third = serve(handover.targets(&addresses[0]).unwrap(), before).await;
            let waiting = tokio::spawn(async move { third.hand_over(handover).await });
            drop(passing_on.await.unwrap());
            Channel::connect(&served[0]).await.unwrap();
            // Between fork and exec, children of other tests hold copies of all sockets.
            while std::os::unix::net::UnixStream::connect(&file).is_ok() {
                yield_now().await;
            }
            waiting.abort();
            waiting.await.unwrap_err();
            assert!(!path.exists(), "the handover socket ends with its last process");
        }
    });
}

#[test]
fn the_last_process_removes_the_socket_file() {
    in_real_time(async {
        let (file, path) = (unused_path(), unused_path());
        let address = Address::Unix(file.clone());
        let mut handover = Handover::join(&path).await.unwrap();
        let first = serve(handover.targets(&address).unwrap(), Engine::PerCore).await;
        let passing = tokio::spawn(async move { first.hand_over(handover).await });
        let mut handover = Handover::join(&path).await.unwrap();
        let second = serve(handover.targets(&address).unwrap(), Engine::Tokio).await;
        {
            let mut waiting = std::pin::pin!(second.hand_over(handover));
            tokio::select! {
                passed = passing => passed.unwrap(),
                () = &mut waiting => unreachable!("there is no further process"),
            }
            assert!(file.exists());
        }
        drop(second);
        while file.exists() || path.exists() {
            yield_now().await;
        }
    });
}

/// Serves one connection to a path with these bytes.
fn answer(bytes: &'static [u8]) -> PathBuf {
    let path = unused_path();
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(bytes).unwrap();
        io::copy(&mut stream, &mut io::sink()).unwrap();
    });
    path
}

#[test]
fn another_server_at_the_path_is_an_error() {
    in_real_time(async {
        for bytes in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"\x01\x00\x01a\x00", b"\x00\x00\x00"] {
            let path = answer(bytes);
            let error = Handover::join(&path).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        }
    });
}

#[test]
fn another_client_at_the_path_changes_nothing() {
    in_real_time(async {
        let path = unused_path();
        let mut handover = Handover::join(&path).await.unwrap();
        let address = Address::Tcp(([127, 0, 0, 1], 0).into());
        let first = serve(handover.targets(&address).unwrap(), Engine::Tokio).await;
        let passing = tokio::spawn(async move { first.hand_over(handover).await });
        for bytes in [&b""[..], b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", b"frisbee handover 1\nX"] {
            let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
            stream.write_all(bytes).unwrap();
        }
        let mut handover = Handover::join(&path).await.unwrap();
        let second = serve(handover.targets(&address).unwrap(), Engine::Tokio).await;
        let waiting = tokio::spawn(async move { second.hand_over(handover).await });
        passing.await.unwrap();
        waiting.abort();
    });
}
