//! Shutting down during handshakes, during traffic, and during both.

use frisbee::{Client, Config, ConnectRetry, Server};
use support::{
    SECOND, engines, in_real_time, in_virtual_time, localhost,
    sockets::{ECHO, IDENTITY, TestRouter, packet, test_server},
    until,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    net::TcpStream,
    time::Instant,
};

#[test]
fn shutdown_gives_handshakes_one_second() {
    in_virtual_time(async {
        let server = test_server().tls(IDENTITY.server()).without_listener();
        let (mut mute, theirs) = duplex(1000);
        server.attach(theirs);
        let since = Instant::now();
        assert_eq!(server.shutdown(20 * SECOND).await, 0);
        assert!((SECOND..2 * SECOND).contains(&since.elapsed()));
        assert_eq!(mute.read(&mut [0]).await.unwrap(), 0);
    });
}

#[test]
fn shutdown_aborts_socket_handshakes_at_its_deadline() {
    in_real_time(async {
        let server = test_server().tls(IDENTITY.server()).bind("127.0.0.1:0").await.unwrap();
        let mut mute = TcpStream::connect(server.local_addr().socket_addr().unwrap()).await.unwrap();
        until(|| server.metrics().connections == 1).await;
        assert_eq!(server.shutdown(SECOND / 10).await, 1);
        assert_eq!(mute.read(&mut [0]).await.unwrap_or(0), 0);
    });
}

#[test]
fn a_handshake_ending_during_shutdown_does_not_delay_it() {
    in_virtual_time(async {
        let (router, mut reports) = TestRouter::with_hooks();
        let server = Server::builder(router).tls(IDENTITY.server()).without_listener();
        let (ours, theirs) = duplex(1000);
        server.attach(theirs);
        let shutdown = tokio::spawn(server.shutdown(60 * SECOND));
        tokio::task::yield_now().await;
        let client = Client::new(()).tls_with_name(IDENTITY.client(), localhost());
        let since = Instant::now();
        let connection = client.attach(ours).await.unwrap();
        connection.closed().await;
        assert_eq!(shutdown.await.unwrap(), 0);
        assert!(since.elapsed() < SECOND);
        assert_eq!(reports.recv().await.unwrap(), "opened");
        assert_eq!(reports.recv().await.unwrap(), "closed: Shutdown");
    });
}

#[test]
fn shutdown_is_seen_right_after_a_reply() {
    in_real_time(async {
        let quiet = Config { ping_interval: None, silence_max: None, ..Config::default() };
        for _ in 0..1000 {
            let server = test_server().config(quiet.clone()).bind("127.0.0.1:0").await.unwrap();
            let mut peer = TcpStream::connect(server.local_addr().socket_addr().unwrap()).await.unwrap();
            let packet = [0, 0x0f, 0, 1, 0, 20, 0, 0, 0, 0];
            peer.write_all(&packet).await.unwrap();
            peer.read_exact(&mut [0; 10]).await.unwrap();
            let closing = tokio::spawn(async move { peer.read(&mut [0]).await.unwrap() });
            assert_eq!(server.shutdown(10 * SECOND).await, 0);
            assert_eq!(closing.await.unwrap(), 0);
        }
    });
}

#[test]
fn shutdown_frees_the_address() {
    for engine in engines() {
        in_real_time(async {
            let mut address: frisbee::Address = "tcp://127.0.0.1:0".parse().unwrap();
            for _ in 0..10 {
                let server = test_server().engine(engine).bind(address).await.unwrap();
                address = server.local_addr().clone();
                let connection = Client::new(()).connect(&address).await.unwrap();
                connection.send(packet(1, ECHO, "hi")).await.unwrap();
                assert_eq!(server.shutdown(15 * SECOND).await, 0);
                // If an old listener still shared the port, it would accept connections and never serve them.
                assert!(
                    Client::new(())
                        .retry(ConnectRetry { attempts: 1, ..ConnectRetry::default() })
                        .connect(&address)
                        .await
                        .is_err()
                );
            }
        });
    }
}
