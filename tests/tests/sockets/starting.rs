//! Servers competing for an address, and servers that fail to start or are dropped.

use std::{
    fs,
    io::ErrorKind,
    net::TcpListener,
    os::unix::net::UnixListener,
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};

use frisbee::{
    Address, Client, Config, ConnectRetry, Connection, Engine, ListenTarget, Packet, Router, Server, ServerLimits,
    SocketOptions,
};
use support::{
    SECOND, engines, in_real_time,
    sockets::{ECHO, Inbox, Kind, WHERE, packet, test_server, unused_address, unused_path},
};
use tokio::{io::duplex, runtime};

use crate::addresses::check_serving;

const KINDS: [Kind; 4] = [Kind::Tcp, Kind::UnixPath, Kind::UnixAbstract, Kind::Mem];

/// Checks that no server listens at an address.
async fn check_nobody(address: &Address) {
    let error = Client::new(())
        .retry(ConnectRetry { attempts: 1, ..ConnectRetry::default() })
        .connect(address)
        .await
        .unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound), "{error}");
}

#[test]
fn a_server_listens_on_several_addresses() {
    for engine in engines() {
        in_real_time(async {
            let server = test_server().engine(engine).bind(KINDS.map(unused_address)).await.unwrap();
            assert_eq!(server.local_addrs().len(), KINDS.len());
            assert_eq!(server.local_addr(), &server.local_addrs()[0]);
            let addresses = server.local_addrs().to_vec();
            for address in &addresses {
                let (router, mut inbox) = Inbox::new();
                let connection = Client::new(router).connect(address).await.unwrap();
                connection.send(packet(1, ECHO, "hi")).await.unwrap();
                assert_eq!(inbox.next().await, Some(packet(1, ECHO, "hi")));
            }
            drop(server);
            for address in &addresses {
                check_nobody(address).await;
            }
        });
    }
}

#[test]
fn a_failed_bind_of_several_addresses_leaves_nothing() {
    for engine in engines() {
        for taken in [Kind::Tcp, Kind::UnixPath, Kind::UnixAbstract, Kind::Mem] {
            in_real_time(async {
                let holder = test_server().bind(unused_address(taken)).await.unwrap();
                let first = TcpListener::bind("127.0.0.1:0").unwrap();
                let path = unused_path();
                let mut free = vec![Address::from(first.local_addr().unwrap()), Address::Unix(path.clone())];
                free.extend([unused_address(Kind::UnixAbstract), unused_address(Kind::Mem)]);
                let mut targets = vec![ListenTarget::from(first)];
                targets.extend(free[1..].iter().cloned().map(ListenTarget::from));
                targets.push(holder.local_addr().clone().into());
                let error = test_server().engine(engine).bind(targets).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::AddrInUse);
                assert!(error.to_string().contains(&holder.local_addr().to_string()), "{error}");
                for address in &free {
                    check_nobody(address).await;
                }
                assert!(!path.exists());
                check_serving(&holder).await;
            });
        }
    }
}

#[test]
fn an_empty_list_of_addresses_is_rejected() {
    in_real_time(async {
        let error = test_server().bind(Vec::<Address>::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn existing_listeners_can_be_served() {
    for engine in engines() {
        in_real_time(async {
            let tcp = || TcpListener::bind("127.0.0.1:0").unwrap();
            check_serving(&test_server().engine(engine).bind(tcp()).await.unwrap()).await;
            let of_tokio = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            check_serving(&test_server().engine(engine).bind(of_tokio).await.unwrap()).await;
            check_serving(&test_server().engine(engine).bind([tcp(), tcp()]).await.unwrap()).await;

            let path = unused_path();
            let server = test_server().engine(engine).bind(UnixListener::bind(&path).unwrap()).await.unwrap();
            assert_eq!(server.local_addr(), &Address::Unix(path.clone()));
            check_serving(&server).await;
            drop(server);
            assert!(path.exists(), "it belongs to whoever made the listener");
            fs::remove_file(&path).unwrap();
            let of_tokio = tokio::net::UnixListener::bind(&path).unwrap();
            check_serving(&test_server().engine(engine).bind(of_tokio).await.unwrap()).await;
            fs::remove_file(&path).unwrap();
        });
    }
}

#[test]
fn dropping_a_server_frees_its_address_immediately() {
    for engine in engines() {
        for kind in KINDS {
            in_real_time(async {
                let mut address = unused_address(kind);
                for _ in 0..20 {
                    let server = test_server().engine(engine).bind(&address).await.unwrap();
                    address = server.local_addr().clone();
                    let _connection = Client::new(()).connect(&address).await.unwrap();
                    drop(server);
                    if let Address::Unix(path) = &address {
                        assert!(!path.exists());
                    }
                    if let Address::Tcp(addr) = &address {
                        drop(TcpListener::bind(addr).unwrap());
                    }
                }
            });
        }
    }
}

#[test]
fn a_server_can_be_dropped_outside_a_runtime() {
    for engine in engines() {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = runtime.block_on(test_server().engine(engine).bind("127.0.0.1:0")).unwrap();
        let addr = server.local_addr().socket_addr().unwrap();
        drop(server);
        TcpListener::bind(addr).unwrap();
    }
}

#[test]
fn the_address_is_free_after_the_serving_runtime_ended() {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = runtime.block_on(test_server().bind("127.0.0.1:0")).unwrap();
    drop(runtime);
    TcpListener::bind(server.local_addr().socket_addr().unwrap()).unwrap();
}

#[test]
fn a_port_is_shared_only_if_all_servers_agree() {
    for first in engines() {
        for second in engines() {
            in_real_time(async {
                let server = test_server().engine(first).bind("127.0.0.1:0").await.unwrap();
                let address = server.local_addr();
                let error = test_server().engine(second).bind(address).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::AddrInUse);
                assert!(error.to_string().contains(&address.to_string()), "{error}");
                check_serving(&server).await;

                let shared = SocketOptions { reuse_port: true, ..SocketOptions::default() };
                let server = test_server().engine(first).sockets(shared.clone()).bind("127.0.0.1:0").await.unwrap();
                let error = test_server().engine(second).bind(server.local_addr()).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::AddrInUse);
                let other = test_server().engine(second).sockets(shared).bind(server.local_addr()).await.unwrap();
                assert_eq!(other.local_addr(), server.local_addr());
            });
        }
    }
}

#[test]
fn threads_share_the_port_of_their_server() {
    let threads = thread::available_parallelism().unwrap().get();
    for engine in engines().filter(|engine| *engine != Engine::Tokio && threads > 1) {
        in_real_time(async {
            let server = test_server().engine(engine).bind("127.0.0.1:0").await.unwrap();
            let mut seen = std::collections::BTreeSet::new();
            for _ in 0..200 {
                let (router, mut inbox) = Inbox::new();
                let connection = Client::new(router).connect(server.local_addr()).await.unwrap();
                connection.send(packet(1, WHERE, "")).await.unwrap();
                seen.insert(inbox.next().await.unwrap().content.into_bytes());
                if seen.len() == threads {
                    return;
                }
            }
            panic!("served by {seen:?} only");
        });
    }
}

/// Makes several servers bind at the same time, each with its own thread and runtime. Checks that exactly one gets the
/// address.
fn check_race(engine: Engine, address: &Address) {
    const SERVERS: usize = 4;
    let (start, end) = (Arc::new(Barrier::new(SERVERS)), Arc::new(Barrier::new(SERVERS)));
    let servers = std::array::from_fn::<_, SERVERS, _>(|_| {
        let (start, end, address) = (start.clone(), end.clone(), address.clone());
        thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                start.wait();
                let server = test_server().engine(engine).bind(&address).await;
                let bound = server.as_ref().map(|_| ()).map_err(std::io::Error::kind);
                end.wait();
                if let Ok(server) = server {
                    check_serving(&server).await;
                }
                bound
            })
        })
    });
    let bound = servers.map(|server| server.join().unwrap());
    assert_eq!(bound.iter().filter(|bound| bound.is_ok()).count(), 1, "{bound:?}");
    assert_eq!(bound.iter().filter(|bound| **bound == Err(ErrorKind::AddrInUse)).count(), SERVERS - 1, "{bound:?}");
}

#[test]
fn one_of_several_servers_replaces_a_stale_socket_file() {
    for engine in engines() {
        for _ in 0..25 {
            let path = unused_path();
            drop(UnixListener::bind(&path).unwrap());
            check_race(engine, &Address::Unix(path.clone()));
            assert!(!path.exists());
        }
    }
}

#[test]
fn one_of_several_servers_gets_a_port() {
    for engine in engines() {
        for _ in 0..10 {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let address = runtime.block_on(async {
                let server = test_server().engine(engine).bind("127.0.0.1:0").await.unwrap();
                server.local_addr().clone()
            });
            check_race(engine, &address);
        }
    }
}

#[test]
fn a_server_removes_only_its_own_socket_file() {
    for engine in engines() {
        in_real_time(async {
            let path = unused_path();
            let old = test_server().engine(engine).bind(Address::Unix(path.clone())).await.unwrap();
            fs::remove_file(&path).unwrap();
            let new = test_server().engine(engine).bind(Address::Unix(path.clone())).await.unwrap();
            drop(old);
            check_serving(&new).await;
            drop(new);
            assert!(!path.exists());
        });
    }
}

#[test]
fn a_link_to_a_stale_socket_is_not_replaced() {
    in_real_time(async {
        let (path, link) = (unused_path(), unused_path());
        drop(UnixListener::bind(&path).unwrap());
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let error = test_server().bind(Address::Unix(link.clone())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert!(link.is_symlink() && path.exists());
        fs::remove_file(&link).unwrap();
        fs::remove_file(&path).unwrap();
    });
}

#[test]
fn a_peer_over_a_unix_socket_has_credentials() {
    for engine in engines() {
        for kind in [Kind::UnixPath, Kind::UnixAbstract, Kind::Tcp] {
            in_real_time(async {
                let server = test_server().engine(engine).bind(unused_address(kind)).await.unwrap();
                let (router, mut inbox) = Inbox::new();
                let connection = Client::new(router).engine(engine).connect(server.local_addr()).await.unwrap();
                connection.send(packet(1, ECHO, "hi")).await.unwrap();
                inbox.next().await.unwrap();
                for connection in [&connection, &server.connections()[0]] {
                    let peer = connection.peer_credentials();
                    assert_eq!(peer.is_some(), kind != Kind::Tcp);
                    if let Some(peer) = peer {
                        let user = rustix::process::getuid().as_raw();
                        let group = rustix::process::getgid().as_raw();
                        assert_eq!((peer.uid, peer.gid), (user, group));
                        assert_eq!(peer.pid, Some(std::process::id().cast_signed()));
                    }
                }
            });
        }
    }
}

#[test]
fn a_custom_stream_can_have_an_address() {
    in_real_time(async {
        let server = test_server().without_listener();
        let (ours, theirs) = duplex(1000);
        let peer: std::net::SocketAddr = "192.0.2.1:5000".parse().unwrap();
        server.attach_from(theirs, peer);
        let (router, mut inbox) = Inbox::new();
        let connection = Client::new(router).attach_to(ours, Address::Mem("far".into())).await.unwrap();
        connection.send(packet(1, ECHO, "hi")).await.unwrap();
        inbox.next().await.unwrap();
        assert_eq!(connection.peer_addr(), &Address::Mem("far".into()));
        assert_eq!(server.connections()[0].peer_addr(), &Address::Tcp(peer));
    });
}

#[test]
fn invalid_limits_are_rejected_before_listening() {
    for engine in engines() {
        in_real_time(async {
            let address = unused_address(Kind::UnixPath);
            let keepalive = SocketOptions { keepalive: Some(SECOND / 2), ..SocketOptions::default() };
            for (setting, server) in [
                ("handlers_max", test_server().limits(ServerLimits { handlers_max: 0, ..ServerLimits::default() })),
                (
                    "connections_max",
                    test_server().limits(ServerLimits { connections_max: 0, ..ServerLimits::default() }),
                ),
                ("keepalive", test_server().sockets(keepalive)),
                ("handlers_max", test_server().config(Config { handlers_max: 0, ..Config::default() })),
                (
                    "silence_max",
                    test_server().config(Config { silence_max: Some(Duration::ZERO), ..Config::default() }),
                ),
            ] {
                let error = server.engine(engine).bind(&address).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidInput);
                assert!(error.to_string().starts_with(setting), "{error}");
                check_nobody(&address).await;
            }
        });
    }
}

#[test]
fn a_client_rejects_invalid_limits() {
    in_real_time(async {
        let server = test_server().bind("127.0.0.1:0").await.unwrap();
        for (setting, client) in [
            ("timeout", Client::new(()).timeout(Duration::ZERO)),
            ("content_len_max", Client::new(()).config(Config { content_len_max: 0, ..Config::default() })),
        ] {
            let error = client.connect(server.local_addr()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(&format!("(attempts: 0): {setting} ")), "{error}");
            let error = client.attach(duplex(10).0).await.unwrap_err();
            assert!(error.to_string().contains(setting), "{error}");
        }
        assert_eq!(server.metrics().accepted, 0);
    });
}

#[test]
#[should_panic(expected = "handlers_max must not be zero")]
fn a_server_without_listener_rejects_invalid_limits() {
    test_server().limits(ServerLimits { handlers_max: 0, ..ServerLimits::default() }).without_listener();
}

/// A router that refuses to serve.
struct Unwilling;

impl Router for Unwilling {
    async fn route(&self, packet: Packet, _: &Connection) -> frisbee::Outcome {
        frisbee::Outcome::Reply(packet)
    }

    fn describe(&self) -> Result<frisbee::RouterInfo, Box<dyn std::error::Error + Send + Sync>> {
        Err("not today".into())
    }
}

#[test]
fn a_router_can_refuse_to_serve() {
    in_real_time(async {
        let router = Arc::new(frisbee::HandlerTable::over(Unwilling).on(ECHO, async |packet: Packet| packet));
        let error = Server::builder(router.clone()).bind("127.0.0.1:0").await.unwrap_err();
        assert_eq!(error.to_string(), "not today");
        let server = test_server().bind("127.0.0.1:0").await.unwrap();
        let error = Client::new(router).connect(server.local_addr()).await.unwrap_err();
        assert!(error.to_string().contains("not today"), "{error}");
    });
}

#[test]
fn the_longest_durations_mean_no_limit() {
    for engine in engines() {
        in_real_time(async {
            let forever = Config {
                ping_interval: Some(Duration::MAX / 2),
                silence_max: Some(Duration::MAX),
                handlers_stall_max: Duration::MAX,
                stream_stall_max: Duration::MAX,
                write_stall_max: Duration::MAX,
                linger_max: Duration::MAX,
                handshake_max: Duration::MAX,
                ..Config::default()
            };
            let sockets = SocketOptions { keepalive: Some(Duration::MAX), ..SocketOptions::default() };
            let server = test_server().engine(engine).config(forever.clone()).sockets(sockets.clone());
            let server = server.bind("127.0.0.1:0").await.unwrap();
            let (router, mut inbox) = Inbox::new();
            let client = Client::new(router)
                .config(forever)
                .sockets(sockets)
                .timeout(Duration::MAX)
                .retry(ConnectRetry { pause: Duration::MAX, ..ConnectRetry::default() });
            let connection = client.connect(server.local_addr()).await.unwrap();
            connection.send(packet(1, ECHO, "hi")).await.unwrap();
            assert_eq!(inbox.next().await, Some(packet(1, ECHO, "hi")));
            assert_eq!(server.shutdown(Duration::MAX).await, 0);
        });
    }
}
