//! Binding and connecting: addresses, leftover socket files, and helpful errors.

use std::{fs, io::ErrorKind, os::unix::net::UnixListener};

use frisbee::{Address, Client, ConnectRetry, Server, SocketOptions};
use socket2::{Domain, Socket, Type};
use support::{
    SECOND, engines, in_real_time,
    sockets::{ECHO, Inbox, Kind, packet, test_server, unused_address, unused_path},
};

/// Checks that a server answers.
pub(crate) async fn check_serving(server: &Server) {
    let (router, mut inbox) = Inbox::new();
    let connection = Client::new(router).connect(server.local_addr()).await.unwrap();
    connection.send(packet(1, ECHO, "hi")).await.unwrap();
    assert_eq!(inbox.next().await, Some(packet(1, ECHO, "hi")));
}

#[test]
fn host_names_are_resolved() {
    in_real_time(async {
        let server = test_server().bind("tcp://localhost:0").await.unwrap();
        let addr = server.local_addr().socket_addr().unwrap();
        assert!(addr.ip().is_loopback() && addr.port() != 0);
        let (router, mut inbox) = Inbox::new();
        let connection = Client::new(router).connect(format!("localhost:{}", addr.port())).await.unwrap();
        connection.send(packet(1, ECHO, "hi")).await.unwrap();
        assert!(inbox.next().await.is_some());
        assert!(connection.local_addr().socket_addr().unwrap().ip().is_loopback());
    });
}

#[test]
fn each_side_knows_the_address_of_the_other() {
    in_real_time(async {
        let server = test_server().bind("127.0.0.1:0").await.unwrap();
        let (router, mut inbox) = Inbox::new();
        let connection = Client::new(router).connect(server.local_addr()).await.unwrap();
        connection.send(packet(1, ECHO, "hi")).await.unwrap();
        inbox.next().await.unwrap();
        let other = &server.connections()[0];
        assert_eq!(connection.peer_addr(), server.local_addr());
        assert_eq!(connection.peer_addr(), other.local_addr());
        assert_eq!(connection.local_addr(), other.peer_addr());
    });
}

#[test]
fn an_unknown_host_is_named_in_the_error() {
    in_real_time(async {
        let error = Client::new(())
            .retry(ConnectRetry { attempts: 1, ..ConnectRetry::default() })
            .connect("tcp://frisbee.invalid:1")
            .await
            .unwrap_err();
        assert!(error.to_string().contains("tcp://frisbee.invalid:1"), "{error}");
        let error = test_server().bind("tcp://frisbee.invalid:1").await.unwrap_err();
        assert!(error.to_string().contains("tcp://frisbee.invalid:1"), "{error}");
    });
}

#[test]
fn an_address_in_use_is_named_in_the_error() {
    for kind in [Kind::Tcp, Kind::UnixPath, Kind::UnixAbstract, Kind::Mem] {
        in_real_time(async {
            let server = test_server().bind(unused_address(kind)).await.unwrap();
            let address = server.local_addr();
            let error = test_server().bind(address).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AddrInUse);
            assert!(error.to_string().contains(&address.to_string()), "{error}");
            check_serving(&server).await;
        });
    }
}

#[test]
fn stale_socket_files_are_replaced_and_own_ones_removed() {
    for engine in engines() {
        in_real_time(async {
            let path = unused_path();
            drop(UnixListener::bind(&path).unwrap());
            assert!(path.exists());
            let server = test_server().engine(engine).bind(Address::Unix(path.clone())).await.unwrap();
            check_serving(&server).await;
            server.shutdown(15 * SECOND).await;
            assert!(!path.exists());
        });
    }
}

#[test]
fn a_regular_file_is_not_replaced() {
    in_real_time(async {
        let path = unused_path();
        fs::write(&path, "precious").unwrap();
        let error = test_server().bind(Address::Unix(path.clone())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_file(&path).unwrap();
    });
}

#[test]
fn clients_retry_until_the_server_listens() {
    in_real_time(async {
        // A bound socket without listening reserves the port for the server and refuses connections.
        let holder = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        holder.set_reuse_address(true).unwrap();
        holder.set_reuse_port(true).unwrap();
        holder.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        let address = holder.local_addr().unwrap().as_socket().unwrap();
        let error = Client::new(())
            .retry(ConnectRetry { attempts: 1, ..ConnectRetry::default() })
            .connect(address)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);

        let connecting = tokio::spawn(async move { Client::new(()).connect(address).await });
        tokio::task::yield_now().await;
        let sockets = SocketOptions { reuse_port: true, ..SocketOptions::default() };
        let server = test_server().sockets(sockets).bind(address).await.unwrap();
        connecting.await.unwrap().unwrap();
        drop(server);
    });
}

#[test]
fn a_server_without_listener_has_no_address() {
    in_real_time(async {
        let server = test_server().without_listener();
        assert_eq!(server.local_addr(), &Address::Unnamed);
        assert_eq!(server.shutdown(15 * SECOND).await, 0);
    });
}
