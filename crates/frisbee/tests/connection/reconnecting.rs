//! A client that connects again when its connection is lost.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use frisbee::{
    Client, Config, Connection, NotSent, OutboxLimit, Outcome, Packet, ReconnectState, Reconnecting, Router, SendError,
    Server, WhenFull,
};
use support::{EventLog, SECOND, in_virtual_time, settle};
use tokio::{
    io::AsyncWriteExt,
    runtime::Builder,
    time::{Instant, sleep, timeout},
};

use crate::scripts::{client, only_connection, packet, quiet, server, zeros};

/// Logs received packets under a name.
#[derive(Clone)]
struct Listener(&'static str, EventLog);

impl Router for Listener {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        self.1.add(format!("{} hears {}: {}", self.0, packet.id, String::from_utf8_lossy(&packet.content)));
        Outcome::Nothing
    }

    fn event(&self, _: &Connection, event: frisbee::Event<'_>) {
        let frisbee::Event::Opened = event else { return };
        self.1.add(format!("{} opened", self.0));
    }
}

async fn listening(name: &'static str, log: &EventLog, address: &str) -> Server {
    let config = Config { extended: true, ..quiet() };
    server(Listener(name, log.clone())).config(config).bind(address).await.unwrap()
}

fn extended() -> Client<()> {
    client(()).config(Config { extended: true, ..quiet() })
}

/// Starts a connection that sends a hello before other packets.
fn greeting(address: &str) -> Reconnecting {
    let greet = async |connection: Connection| connection.send(packet(0, "hello")).await.map(drop);
    extended().reconnecting().on_connected(greet).start(address).unwrap()
}

/// Collects the states of a connection as words, up to and including `last`.
async fn states_until(link: &Reconnecting, last: &str) -> Vec<String> {
    let mut states = link.states();
    let mut seen = Vec::new();
    while let Some(state) = states.next().await {
        seen.push(match state {
            ReconnectState::Connecting(None) => "connecting".to_owned(),
            ReconnectState::Connecting(Some(error)) => format!("not connected: {:?}", error.kind()),
            ReconnectState::Connected(_) => "connected".to_owned(),
            ReconnectState::Ended(error) => format!("ended: {:?}", error.map(|error| error.kind())),
            _ => unreachable!("an unknown state"),
        });
        if seen.last().is_some_and(|seen| seen == last) {
            break;
        }
    }
    seen
}

#[test]
fn reconnects_and_runs_setup_before_other_packets() {
    in_virtual_time(async {
        let (log, address) = (EventLog::default(), "mem:lost-and-found");
        let first = listening("first", &log, address).await;
        let link = greeting(address);
        link.send(packet(1, "one")).await.unwrap();
        settle().await;
        assert_eq!(log.take(), ["first opened", "first hears 0: hello", "first hears 1: one"]);
        let lost = link.connection().unwrap();
        drop(first);
        lost.closed().await;
        assert!(matches!(lost.send(packet(1, "lost")).await, Err(SendError::Closed)));

        let sending: Vec<_> = [2, 3]
            .map(|id| {
                let link = link.clone();
                tokio::spawn(async move { link.send(packet(id, "waits")).await })
            })
            .into();
        sleep(60 * SECOND).await;
        assert!(sending.iter().all(|sending| !sending.is_finished()));
        assert!(matches!(link.try_send(packet(4, "does not wait")), Err(NotSent::NotConnected)));
        assert!(link.connection().is_none());

        let _second = listening("second", &log, address).await;
        for sending in sending {
            sending.await.unwrap().unwrap();
        }
        link.try_send(packet(5, "at once")).unwrap();
        settle().await;
        let heard = log.take();
        assert_eq!(heard[..2], ["second opened", "second hears 0: hello"]);
        assert_eq!(heard.len(), 5);
        assert_eq!(heard[4], "second hears 5: at once");
        assert_ne!(link.connection(), Some(lost));
    });
}

#[test]
fn senders_wait_up_to_the_limit_or_not_at_all() {
    in_virtual_time(async {
        for (limit, waits) in [(0, false), (163, false), (164, true)] {
            let link = extended().reconnecting().waiting_len_max(limit).start("mem:nobody-there").unwrap();
            settle().await;
            let sent = timeout(60 * SECOND, link.send(packet(1, zeros(100)))).await;
            assert_eq!(sent.is_err(), waits, "of {limit} bytes: {sent:?}");
            assert!(waits || matches!(sent.unwrap(), Err(NotSent::NotConnected)));
            // A sender that gave up frees its room.
            let again = timeout(60 * SECOND, link.send(packet(1, zeros(100)))).await;
            assert_eq!(again.is_err(), waits, "of {limit} bytes: {again:?}");
        }
    });
}

#[test]
fn unsendable_packets_are_not_retried() {
    in_virtual_time(async {
        let (log, address) = (EventLog::default(), "mem:no-good");
        let _server = listening("server", &log, address).await;
        let link = extended().reconnecting().start(address).unwrap();
        let connection = link.connected().await.unwrap();
        let too_large = link.send(packet(1, zeros(6 << 20))).await.unwrap_err();
        assert!(matches!(too_large, NotSent::Failed(SendError::ContentTooLarge { .. })), "{too_large}");
        connection.set_outbox(OutboxLimit { len_max: 1, when_full: WhenFull::Refuse });
        link.try_send(packet(1, zeros(1 << 20))).unwrap();
        let full = link.try_send(packet(2, "hi")).unwrap_err();
        assert!(matches!(full, NotSent::Failed(SendError::OutboxFull)), "{full}");
        assert_eq!(link.connection(), Some(connection));
    });
}

#[test]
fn failed_setup_closes_the_connection_and_retries_later() {
    in_virtual_time(async {
        let (log, address, is_ready) = (EventLog::default(), "mem:set-up", Arc::new(AtomicBool::new(false)));
        let server = listening("server", &log, address).await;
        let ready = is_ready.clone();
        let set_up = move |_: Connection| {
            let is_ready = ready.load(Ordering::Relaxed);
            async move { if is_ready { Ok(()) } else { Err("not now") } }
        };
        let link = extended().reconnecting().on_connected(set_up).start(address).unwrap();
        sleep(60 * SECOND).await;
        assert!(link.connection().is_none());
        assert_eq!(server.metrics().connections, 0, "each is closed");
        let attempts = server.metrics().accepted;
        assert!((15..40).contains(&attempts), "{attempts} attempts, 10 ms apart first and 5 s at most");
        is_ready.store(true, Ordering::Relaxed);
        link.connected().await.unwrap();
        assert_eq!(server.metrics().connections, 1);
    });
}

#[test]
fn a_panicking_or_hanging_setup_is_retried() {
    in_virtual_time(async {
        let (log, address) = (EventLog::default(), "mem:hang");
        let server = listening("server", &log, address).await;
        let panics = extended().reconnecting().on_connected(async |_| panic!("as told") as io::Result<()>);
        let panics = panics.start(address).unwrap();
        let seen = states_until(&panics, "not connected: Other").await;
        assert_eq!(seen.last().unwrap(), "not connected: Other");
        drop(panics);
        settle().await;
        let before = server.metrics().accepted;

        let hangs = extended().reconnecting().setup_timeout(30 * SECOND);
        let hangs =
            hangs.on_connected(async |_| std::future::pending::<io::Result<()>>().await).start(address).unwrap();
        let since = Instant::now();
        let seen = states_until(&hangs, "not connected: TimedOut").await;
        assert_eq!(seen.last().unwrap(), "not connected: TimedOut");
        assert!((30 * SECOND..31 * SECOND).contains(&since.elapsed()));
        // A setup fails as soon as its connection is lost, before its timeout.
        while server.metrics().accepted < before + 2 {
            settle().await;
        }
        only_connection(&server).await.close();
        states_until(&hangs, "not connected: Other").await;
        assert!(since.elapsed() < 32 * SECOND, "{:?}", since.elapsed());
    });
}

#[test]
fn backoff_resets_only_after_the_peer_was_heard() {
    in_virtual_time(async {
        let (log, address) = (EventLog::default(), "mem:pauses");
        let link = extended().reconnecting().start(address).unwrap();
        // Long enough for pauses of 5 s.
        sleep(60 * SECOND).await;
        let server = listening("server", &log, address).await;
        link.connected().await.unwrap().recognized().await.unwrap();
        settle().await;
        let since = Instant::now();
        for says_something in [true, false] {
            let connection = only_connection(&server).await;
            if says_something {
                connection.send(packet(1, "hi")).await.unwrap();
                settle().await;
            }
            connection.close();
            states_until(&link, "connecting").await;
            link.connected().await.unwrap();
            assert!(since.elapsed() < SECOND / 2, "{:?}", since.elapsed());
        }

        struct Refusing;
        impl Router for Refusing {
            async fn route(&self, _: Packet, _: &Connection) -> Outcome {
                Outcome::Nothing
            }

            fn event(&self, connection: &Connection, event: frisbee::Event<'_>) {
                let frisbee::Event::Opened = event else { return };
                connection.close();
            }
        }
        drop(server);
        let server = Server::builder(Refusing).bind(address).await.unwrap();
        sleep(60 * SECOND).await;
        let attempts = server.metrics().accepted;
        assert!((12..40).contains(&attempts), "{attempts} attempts");
    });
}

#[test]
fn states_report_the_progress_of_the_connection() {
    in_virtual_time(async {
        let (log, address) = (EventLog::default(), "mem:states");
        let link = greeting(address);
        let mut states = link.states();
        assert!(matches!(states.next().await, Some(ReconnectState::Connecting(_))));
        assert_eq!(
            states_until(&link, "not connected: ConnectionRefused").await.last().unwrap(),
            "not connected: ConnectionRefused"
        );
        let server = listening("server", &log, address).await;
        assert_eq!(states_until(&link, "connected").await.last().unwrap(), "connected");
        assert_eq!(states_until(&link, "connected").await, ["connected"], "which it is");
        drop(server);
        link.connection().unwrap().closed().await;
        assert_eq!(states_until(&link, "connecting").await.last().unwrap(), "connecting");
        link.close();
        assert_eq!(states_until(&link, "ended: None").await.last().unwrap(), "ended: None");
        let mut left = link.states();
        assert!(matches!(left.next().await, Some(ReconnectState::Ended(None))));
        assert!(left.next().await.is_none());
        assert!(matches!(link.connected().await, Err(NotSent::Ended(None))));
        assert!(matches!(link.send(packet(1, "late")).await, Err(NotSent::Ended(None))));
    });
}

#[test]
fn dropping_the_last_handle_flushes_and_closes() {
    in_virtual_time(async {
        let (log, address) = (EventLog::default(), "mem:last-handle");
        let server = listening("server", &log, address).await;
        let link = greeting(address);
        let other = link.clone();
        link.connected().await.unwrap();
        drop(link);
        settle().await;
        assert_eq!(server.metrics().connections, 1);
        other.send(packet(1, "last words")).await.unwrap();
        drop(other);
        settle().await;
        assert_eq!(server.metrics().connections, 0);
        assert_eq!(log.take().last().unwrap(), "server hears 1: last words");
        sleep(60 * SECOND).await;
        assert_eq!(server.metrics().accepted, 1);
    });
}

#[test]
fn replaces_a_draining_server_once_another_is_available() {
    in_virtual_time(async {
        let (log, address) = (EventLog::default(), "mem:lame-duck");
        let first = listening("first", &log, address).await;
        let link = greeting(address);
        link.connected().await.unwrap().recognized().await.unwrap();
        settle().await;
        log.take();
        let shutdown = tokio::spawn(first.shutdown(60 * SECOND));
        settle().await;
        // Attempts to reach another server fail meanwhile.
        sleep(2 * SECOND).await;
        link.try_send(packet(1, "to the first")).unwrap();
        settle().await;
        assert!(!shutdown.is_finished() && log.take() == ["first hears 1: to the first"]);
        let since = Instant::now();
        let _second = listening("second", &log, address).await;
        assert_eq!(shutdown.await.unwrap(), 0);
        assert!(since.elapsed() < 3 * SECOND, "it was left, or it would have taken longer: {:?}", since.elapsed());
        link.send(packet(2, "to the second")).await.unwrap();
        settle().await;
        assert_eq!(log.take(), ["second opened", "second hears 0: hello", "second hears 2: to the second"]);
    });
}

#[test]
fn permanent_failures_differ_from_temporary_ones() {
    struct Http;
    impl Router for Http {
        async fn route(&self, _: Packet, _: &Connection) -> Outcome {
            Outcome::Nothing
        }

        fn event(&self, connection: &Connection, event: frisbee::Event<'_>) {
            let frisbee::Event::Opened = event else { return };
            let raw = connection.takeover();
            tokio::spawn(
                async move { raw.await.unwrap().write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap() },
            );
        }
    }
    in_virtual_time(async {
        let _server = Server::builder(Http).bind("mem:http").await.unwrap();
        let link = Client::new(()).check_peer().reconnecting().start("mem:http").unwrap();
        let ended = link.connected().await.unwrap_err();
        assert!(matches!(&ended, NotSent::Ended(Some(error)) if error.kind() == io::ErrorKind::InvalidData), "{ended}");
        assert!(ended.to_string().contains("HTTP"), "{ended}");

        // After a first connection, a wrong peer is a temporary failure: it may have taken the address by mistake.
        let (log, address) = (EventLog::default(), "mem:not-http");
        let server = listening("server", &log, address).await;
        let link = Client::new(()).check_peer().reconnecting().start(address).unwrap();
        link.connected().await.unwrap();
        drop(server);
        let wrong = Server::builder(Http).bind(address).await.unwrap();
        states_until(&link, "not connected: InvalidData").await;
        drop(wrong);
        let _server = listening("server", &log, address).await;
        link.send(packet(1, "here you are")).await.unwrap();
    });
}

#[test]
fn invalid_settings_return_an_error_immediately() {
    in_virtual_time(async {
        let error = extended().reconnecting().setup_timeout(Duration::ZERO).start("mem:settings").unwrap_err();
        assert!(error.to_string().contains("setup_timeout"), "{error}");
        let error = extended().timeout(Duration::ZERO).reconnecting().start("mem:settings").unwrap_err();
        assert!(error.to_string().contains("timeout"), "{error}");
        assert!(extended().reconnecting().start("no address at all").is_err());
    });
}

#[test]
fn links_end_with_their_runtime() {
    let runtime = || Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    for is_connected in [true, false] {
        let home = runtime();
        let link = home.block_on(async {
            let address = format!("mem:ended-{is_connected}");
            let link = greeting(&address);
            if is_connected {
                let _server = listening("server", &EventLog::default(), &address).await;
                link.connected().await.unwrap();
            }
            link
        });
        drop(home);
        runtime().block_on(async {
            for error in [link.connected().await.unwrap_err(), link.send(packet(1, "late")).await.unwrap_err()] {
                assert!(matches!(&error, NotSent::Ended(Some(_))) && error.to_string().contains("runtime"), "{error}");
            }
            assert!(states_until(&link, "").await.last().unwrap().starts_with("ended"));
        });
    }
}
