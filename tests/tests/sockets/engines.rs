//! Engines on kernels with and without io_uring, and faults specific to io_uring.
#![expect(unsafe_code, reason = "only the kernel can refuse a system call")]

use std::{
    cell::Cell,
    env, fs,
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    os::fd::AsRawFd,
    sync::mpsc,
    thread,
};

use bytes::Bytes;
use frisbee::{
    Address, Client, CloseReason, Config, Connection, Dispatch, Engine, HandlerTable, Operation, Outcome, Packet, Raw,
    RingError, Router, Server,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{
    Gate, SECOND, can_be_had, engines, in_real_time, rings,
    sockets::{BYE, ECHO, Inbox, TAKE, packet, pattern, test_server, unused_path},
    until,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::Command,
    runtime,
    sync::mpsc::{UnboundedSender, unbounded_channel},
    time::timeout,
};

use crate::addresses::check_serving;

#[test]
fn engine_auto_does_not_use_io_uring() {
    assert_eq!(Engine::default(), Engine::Tokio);
    assert_eq!(Engine::Auto.choose().unwrap(), Engine::PerCore);
    in_real_time(async {
        let server = test_server().engine(Engine::Auto).bind("127.0.0.1:0").await.unwrap();
        assert_eq!(server.engine(), Engine::PerCore);
        check_serving(&server).await;
        let connection = Client::new(()).engine(Engine::Auto).connect(server.local_addr()).await.unwrap();
        assert_eq!(connection.runtime().id(), runtime::Handle::current().id(), "its callers are there");
    });
}

#[test]
fn connections_are_balanced_over_engine_threads() {
    for engine in engines().filter(|engine| *engine != Engine::Tokio) {
        in_real_time(async {
            let path = unused_path();
            for target in ["127.0.0.1:0".to_owned(), format!("unix:{}", path.display())] {
                let server = test_server().engine(engine).bind(target).await.unwrap();
                let threads = thread::available_parallelism().unwrap().get();
                let mut connections = Vec::new();
                for _ in 0..8 * threads {
                    connections.push(Client::new(()).connect(server.local_addr()).await.unwrap());
                }
                until(|| server.connections().len() == connections.len()).await;
                let on = |runtime| server.connections().iter().filter(|one| one.runtime().id() == runtime).count();
                assert!(server.connections().iter().all(|one| on(one.runtime().id()) == 8), "{engine}");
                // Replacements for closed connections must go to the same thread.
                let gone = server.connections()[0].runtime().id();
                server.connections().iter().filter(|one| one.runtime().id() == gone).for_each(Connection::close);
                until(|| server.metrics().connections == connections.len() - 8).await;
                for _ in 0..8 {
                    connections.push(Client::new(()).connect(server.local_addr()).await.unwrap());
                }
                until(|| server.connections().len() == 8 * threads).await;
                assert_eq!(on(gone), 8, "{engine}");
                check_serving(&server).await;
            }
        });
    }
}

#[test]
fn engines_have_names() {
    let names = ["tokio", "per-core", "uring", "uring-portable", "tokio-uring", "auto"];
    for name in names {
        assert_eq!(name.parse::<Engine>().unwrap().to_string(), name);
    }
    let error = "epoll".parse::<Engine>().unwrap_err().to_string();
    assert!(names.iter().all(|name| error.contains(name)), "{error}");
}

#[test]
fn falls_back_without_io_uring() {
    alone("falls_back_without_io_uring", || {
        check_refusal(&[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register]);
    });
}

#[test]
fn falls_back_if_io_uring_does_nothing() {
    alone("falls_back_if_io_uring_does_nothing", || check_refusal(&[libc::SYS_io_uring_enter]));
}

#[test]
fn io_uring_of_older_kernels_is_supported() {
    // Do not check this in the child process, because `can_be_had` caches its result.
    if env::var_os(ALONE).is_none() && !can_be_had(Engine::Uring) {
        return;
    }
    alone("io_uring_of_older_kernels_is_supported", || {
        refuse(&[libc::SYS_io_uring_register], libc::EINVAL);
        in_real_time(async {
            let server = test_server().engine(Engine::Uring).bind("127.0.0.1:0").await.unwrap();
            check_serving(&server).await;
        });
    });
}

#[test]
fn a_partly_started_server_leaves_no_resources() {
    alone("a_partly_started_server_leaves_no_resources", || {
        in_real_time(async {
            for engine in engines().filter(|engine| *engine != Engine::Tokio) {
                // The first round creates resources that stay for the lifetime of the process.
                test_server().engine(engine).bind("127.0.0.1:0").await.unwrap().shutdown(SECOND).await;
                until(|| threads_of_engines() == 0).await;
                let path = unused_path();
                let before = fs::read_dir("/proc/self/fd").unwrap().count();
                let limit = getrlimit(Resource::Nofile);
                let mut failures = 0;
                loop {
                    let lowest_free = fs::File::open("/dev/null").unwrap().as_raw_fd();
                    let current = Some(u64::try_from(lowest_free + failures).unwrap());
                    setrlimit(Resource::Nofile, Rlimit { current, ..limit }).unwrap();
                    let targets = [Address::Tcp(([127, 0, 0, 1], 0).into()), Address::Unix(path.clone())];
                    let bound = test_server().engine(engine).bind(targets).await;
                    setrlimit(Resource::Nofile, limit).unwrap();
                    match bound {
                        Ok(server) => {
                            check_serving(&server).await;
                            break;
                        }
                        Err(error) => println!("{engine} with {failures} descriptors: {error}"),
                    }
                    failures += 1;
                    assert_eq!(fs::read_dir("/proc/self/fd").unwrap().count(), before, "sockets are left");
                    assert!(!path.exists(), "a file is left");
                    // A joined thread may remain listed for a moment.
                    until(|| threads_of_engines() == 0).await;
                }
                assert!(failures > 3, "{engine} needs more than {failures} descriptors");
            }
        });
    });
}

fn threads_of_engines() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let is_ours = |task: &fs::DirEntry| {
        // A thread may have ended since the directory was read. Its name is gone then.
        fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("frisbee-"))
    };
    tasks.filter_map(Result::ok).filter(is_ours).count()
}

#[test]
fn io_uring_recovers_from_a_lack_of_descriptors() {
    alone("io_uring_recovers_from_a_lack_of_descriptors", || {
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).unwrap();
        for engine in [Engine::Uring, Engine::UringPortable] {
            assert!(engine.choose().is_err());
        }
        setrlimit(Resource::Nofile, limit).unwrap();
        for engine in rings() {
            in_real_time(async {
                let server = test_server().engine(engine).bind("127.0.0.1:0").await.unwrap();
                check_serving(&server).await;
            });
        }
    });
}

#[test]
fn connections_work_after_io_uring_is_refused_later() {
    let refusals = [(libc::EINVAL, ErrorKind::InvalidInput), (libc::EBUSY, ErrorKind::ResourceBusy)];
    for (engine, (refusal, kind)) in rings().flat_map(|engine| refusals.map(|refusal| (engine, refusal))) {
        in_real_time(async {
            let (sender, mut reasons) = unbounded_channel();
            let server = Server::builder(Refuser { refusal, reasons: sender }).engine(engine).config(quiet());
            let server = server.bind("127.0.0.1:0").await.unwrap();
            let mut users = Vec::new();
            for _ in 0..32 {
                let (router, inbox) = Inbox::new();
                users.push((Client::new(router).connect(server.local_addr()).await.unwrap(), inbox));
            }
            // Send on all connections until each thread is busy enough to enter its ring.
            for id in (1..=u16::MAX).cycle() {
                let operation = if id % 50 == 0 { REFUSE } else { ECHO };
                for (connection, _) in &users {
                    // The check below covers the end of a connection.
                    let _ = connection.send(packet(id, operation, "")).await;
                }
                let mut left = Vec::new();
                for (connection, mut inbox) in users {
                    if inbox.next().await.is_some() {
                        left.push((connection, inbox));
                        continue;
                    }
                    let reason = reasons.recv().await.unwrap();
                    let CloseReason::Io(error) = &reason else { panic!("{reason}") };
                    let error = error.get_ref().unwrap().downcast_ref::<RingError>().unwrap();
                    assert_eq!(error.kind(), kind, "{error}");
                }
                users = left;
                if users.is_empty() {
                    break;
                }
            }
            check_serving(&server).await;
        });
    }
}

/// Makes the kernel refuse the ring of its thread on request. Answers all packets.
struct Refuser {
    refusal: libc::c_int,
    reasons: UnboundedSender<CloseReason>,
}

impl Router for Refuser {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        // One filter per thread is enough, and the kernel limits their number.
        if packet.operation == REFUSE && !IS_REFUSED.replace(true) {
            refuse(&[libc::SYS_io_uring_enter], self.refusal);
        }
        Outcome::Reply(packet)
    }

    fn event(&self, _: &Connection, event: frisbee::Event<'_>) {
        let frisbee::Event::Closed(reason) = event else { return };
        // The test may have dropped its receiver.
        let _ = self.reasons.send(reason.clone());
    }
}

const REFUSE: Operation = BYE;

thread_local! {
    static IS_REFUSED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a test in its own process.
fn alone(name: &str, test: impl FnOnce()) {
    if env::var_os(ALONE).is_some() {
        return test();
    }
    in_real_time(async {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "--nocapture", &format!("engines::{name}")]).env(ALONE, "").kill_on_drop(true);
        let output = command.output().await.unwrap();
        let told = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
        print!("{told}");
        assert!(output.status.success() && told.contains("1 passed"), "it failed in a process of its own");
    });
}

const ALONE: &str = "FRISBEE_TEST_ALONE";

/// Checks the behavior of each engine while these system calls are not permitted.
fn check_refusal(calls: &[libc::c_long]) {
    refuse(calls, libc::EPERM);
    in_real_time(async {
        let server = test_server().engine(Engine::Auto).bind("127.0.0.1:0").await.unwrap();
        assert_eq!(server.engine(), Engine::PerCore);
        check_serving(&server).await;

        for engine in [Engine::Uring, Engine::UringPortable, Engine::TokioUring] {
            let error = test_server().engine(engine).bind("127.0.0.1:0").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            assert_refused(&error.to_string());
            let error = Client::new(()).engine(engine).connect(server.local_addr()).await.unwrap_err();
            assert_refused(&error.to_string());
            assert!(error.to_string().contains("(attempts: 0)"), "nothing was tried again: {error}");
        }

        check_serving(&test_server().bind("127.0.0.1:0").await.unwrap()).await;
    });
}

fn assert_refused(error: &str) {
    assert!(error.contains("io_uring is not available") && error.contains(REFUSAL), "{error}");
}

const REFUSAL: &str = "Operation not permitted";

/// Makes the kernel refuse system calls of this thread and of all threads it starts later.
fn refuse(calls: &[libc::c_long], error: libc::c_int) {
    let instruction = |code: u32, k, jf| libc::sock_filter { code: code.try_into().unwrap(), jt: 0, jf, k };
    let answer = |answer| instruction(libc::BPF_RET | libc::BPF_K, answer, 0);
    let mut program = vec![instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for call in calls {
        program.push(instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, u32::try_from(*call).unwrap(), 1));
        program.push(answer(libc::SECCOMP_RET_ERRNO | error.unsigned_abs()));
    }
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: program.len().try_into().unwrap(), filter: program.as_mut_ptr() };
    // SAFETY: the kernel copies the program during the call, and the instructions live until the end of this function.
    let is_set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    assert!(is_set, "{}", std::io::Error::last_os_error());
}

/// Hands over the raw connections to the test.
struct Giver {
    raws: mpsc::Sender<Raw>,
    /// Passed before the packet ahead of the takeover is answered.
    gate: Option<Gate>,
}

impl Router for Giver {
    async fn route(&self, packet: Packet, connection: &Connection) -> Outcome {
        if packet.operation == ECHO {
            if let Some(gate) = &self.gate {
                gate.passed().await;
            }
            return Outcome::Reply(packet);
        }
        self.raws.send(connection.takeover().await.unwrap()).unwrap();
        Outcome::Nothing
    }
}

#[test]
fn a_connection_taken_off_its_ring_keeps_every_byte() {
    let gates = [None, Some(Gate::default())];
    for (engine, gate) in rings().flat_map(|engine| gates.clone().map(|gate| (engine, gate))) {
        in_real_time(async {
            let (sender, raws) = mpsc::channel();
            let giver = Giver { raws: sender, gate: gate.clone() };
            let server = Server::builder(giver).dispatch(Dispatch::Ordered).config(quiet()).engine(engine);
            let server = server.bind("127.0.0.1:0").await.unwrap();
            let addr = server.local_addr().socket_addr().unwrap();
            let elsewhere = thread::spawn(move || raws.into_iter().enumerate().for_each(answer_raw));
            for _ in 0..ROUNDS {
                let client = thread::spawn(move || ask_raw(addr));
                if let Some(gate) = &gate {
                    gate.arrival().await;
                    gate.open(1);
                }
                tokio::task::spawn_blocking(|| client.join().unwrap()).await.unwrap();
            }
            assert_eq!(server.shutdown(60 * SECOND).await, 0);
            tokio::task::spawn_blocking(|| elsewhere.join().unwrap()).await.unwrap();
        });
    }
}

#[test]
fn a_taken_over_connection_outlives_its_server() {
    for engine in engines() {
        in_real_time(async {
            let server = test_server().engine(engine).bind("127.0.0.1:0").await.unwrap();
            let connection = Client::new(()).connect(server.local_addr()).await.unwrap();
            connection.send(packet(1, ECHO, "")).await.unwrap();
            until(|| server.metrics().counters.packets_out > 0).await;
            let mut raw = server.connections()[0].takeover().await.unwrap();
            assert_eq!(server.shutdown(60 * SECOND).await, 0);
            let mut peer = connection.takeover().await.unwrap();
            peer.write_all(b"still there?").await.unwrap();
            peer.shutdown().await.unwrap();
            let mut heard = Vec::new();
            raw.read_to_end(&mut heard).await.unwrap();
            assert_eq!(heard, b"still there?");
        });
    }
}

#[test]
fn takeover_waits_a_limited_time_for_a_stalled_peer() {
    for engine in engines() {
        in_real_time(async {
            let config = Config { write_stall_max: SECOND, ..quiet() };
            let server = test_server().config(config).engine(engine).bind("127.0.0.1:0").await.unwrap();
            let addr = server.local_addr().socket_addr().unwrap();
            // Send packets until they queue, then send fewer: these have left the outbox, but not all of them have left
            // this process.
            let mut fits = usize::MAX;
            let (_peer, connection) = loop {
                let peer = idle(addr);
                until(|| server.connections().len() == 1).await;
                let connection = server.connections().pop().unwrap();
                let waits = || connection.metrics().outbox_len > 0;
                let mut count = 0;
                while count < fits && timeout(SECOND / 10, until(|| !waits())).await.is_ok() {
                    connection.try_send(packet(1, ECHO, pattern(1000))).unwrap();
                    count += 1;
                }
                if count == fits {
                    break (peer, connection);
                }
                fits = count.saturating_sub(8);
                drop(peer);
                connection.closed().await;
                until(|| server.connections().is_empty()).await;
            };
            let taken = connection.takeover().await;
            assert!(matches!(taken, Ok(_) | Err(CloseReason::WriteStalled { .. })), "{engine}: {taken:?}");
        });
    }
}

const ROUNDS: usize = 20;

/// Sends packets and raw bytes in one write, and expects the reply and the raw bytes.
fn ask_raw(addr: SocketAddr) {
    let (echo, take) = (empty(ECHO), empty(TAKE));
    let mut socket = TcpStream::connect(addr).unwrap();
    socket.write_all(&[&echo[..], &take, &raw_bytes()].concat()).unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    let mut heard = Vec::new();
    socket.read_to_end(&mut heard).unwrap();
    assert!(heard == [&echo[..], &raw_bytes()].concat(), "{} bytes came back", heard.len());
}

/// Reads everything and sends it back. Alternates between the raw stream, and its socket together with the bytes
/// already read from it.
fn answer_raw((number, mut raw): (usize, Raw)) {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut heard = Vec::new();
        if number.is_multiple_of(2) {
            raw.read_to_end(&mut heard).await.unwrap();
            raw.write_all(&heard).await.unwrap();
            raw.shutdown().await.unwrap();
        } else {
            let (mut socket, unread) = raw.into_tcp().unwrap();
            heard.extend(unread);
            socket.read_to_end(&mut heard).await.unwrap();
            socket.write_all(&heard).await.unwrap();
        }
        assert!(heard == raw_bytes(), "{} bytes were there", heard.len());
    });
}

/// Bytes that are no packets.
fn raw_bytes() -> Bytes {
    pattern(1 << 20)
}

/// Encodes a packet without content.
fn empty(operation: Operation) -> [u8; 10] {
    let [high, low] = operation.number().to_be_bytes();
    [0, 0x0f, 0, 1, high, low, 0, 0, 0, 0]
}

fn quiet() -> Config {
    Config { ping_interval: None, silence_max: None, ..Config::default() }
}

#[test]
fn dropping_a_server_wakes_all_waiters() {
    for engine in engines() {
        in_real_time(async {
            for _ in 0..ROUNDS {
                let server = test_server().engine(engine).bind("127.0.0.1:0").await.unwrap();
                let mut clients = Vec::new();
                for id in 0..10 {
                    let (router, mut inbox) = Inbox::new();
                    let connection = Client::new(router).engine(engine).connect(server.local_addr()).await.unwrap();
                    let ask = packet(id, ECHO, pattern(usize::from(id) * 20_000));
                    connection.send(ask.clone()).await.unwrap();
                    assert_eq!(inbox.next().await, Some(ask.clone()));
                    clients.push(tokio::spawn(async move {
                        while connection.send(ask.clone()).await.is_ok() && inbox.next().await.is_some() {}
                        connection.closed().await;
                    }));
                }
                drop(server);
                for client in clients {
                    client.await.unwrap();
                }
            }
        });
    }
}

#[test]
fn an_idle_connection_holds_little_memory() {
    alone("an_idle_connection_holds_little_memory", || {
        if !can_be_had(Engine::Uring) {
            return;
        }
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
        in_real_time(async {
            let router = HandlerTable::new().on(ECHO, async |packet: Packet| packet);
            let server =
                Server::builder(router).engine(Engine::Uring).config(quiet()).bind("127.0.0.1:0").await.unwrap();
            let addr = server.local_addr().socket_addr().unwrap();
            let _warm: Vec<_> = (0..200).map(|_| idle(addr)).collect();
            let before = resident_len();
            // Many, because the memory of the rest of the process changes too.
            let len = limit.maximum.map_or(3000, |max| 3000.min(usize::try_from(max).unwrap_or(usize::MAX) / 3));
            let idle: Vec<_> = (0..len).map(|_| idle(addr)).collect();
            let each = (resident_len() - before) / idle.len();
            println!("an idle connection holds {each} bytes");
            assert!(each <= IDLE_LEN_MAX, "{each} bytes");
        });
    });
}

/// Futures are larger in unoptimized builds.
const IDLE_LEN_MAX: usize = if cfg!(debug_assertions) { 5 } else { 4 } * 1024;

/// Returns a client that has received an answer and stays idle.
fn idle(addr: SocketAddr) -> TcpStream {
    let mut socket = TcpStream::connect(addr).unwrap();
    socket.write_all(&empty(ECHO)).unwrap();
    let mut reply = [0; 10];
    socket.read_exact(&mut reply).unwrap();
    assert_eq!(reply, empty(ECHO));
    socket
}

/// Returns the resident memory of this process.
fn resident_len() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    1024 * line.trim_end_matches(" kB").trim().parse::<usize>().unwrap()
}
