//! Servers on listeners of a service manager.

use std::{
    env, fs, io,
    net::{TcpListener, UdpSocket},
    os::{
        fd::{IntoRawFd, OwnedFd},
        unix::{net::UnixListener, process::CommandExt},
    },
    process::{self, Output, Stdio},
};

use frpc::{Address, Channel, Engine, ListenOn, Server, SystemdListeners};
use rustix::io::dup;
use support::{
    Directory, SECOND,
    calls::{TestClient, TestServer, TestService, words},
    in_real_time, in_real_time_within, is_installed,
    sockets::unused_path,
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

const PROCESS: &str = "systemd::serve_on_passed_listeners";
const TAKE: &str = "FRISBEE_TAKE";
const VARIABLES: &str = "FRISBEE_VARIABLES";

/// A server on listeners of its parent. Without the variable, this test has nothing to do.
#[test]
fn serve_on_passed_listeners() {
    let Ok(take) = env::var(TAKE) else { return };
    in_real_time_within(600 * SECOND, async {
        let mut listeners = match SystemdListeners::from_env() {
            Ok(listeners) => listeners,
            Err(error) => return println!("failed: {error}"),
        };
        assert!(listeners.is_empty() || SystemdListeners::from_env().is_err(), "they have one owner");
        let names: Vec<String> = listeners.names().map(str::to_owned).collect();
        println!("names: {names:?}");
        let targets = match &*take {
            "all" => listeners.into_targets(),
            name => match name.parse() {
                Ok(index) => listeners.take_at(index).map(|target| vec![target]),
                Err(_) => listeners.take(name),
            },
        };
        let targets = match targets {
            Ok(targets) => targets,
            Err(error) => return println!("failed: {error}"),
        };
        let service = TestServer::new(TestService::default());
        let server = Server::builder().engine(Engine::PerCore).add_service(service).bind(targets).await.unwrap();
        println!("listening on {:?}", server.local_addrs());
        std::future::pending().await
    });
}

/// Becomes a service with the sockets at standard input and error, and these variables.
#[test]
fn become_a_service() {
    let Ok(variables) = env::var(VARIABLES) else { return };
    // The lowest free descriptors.
    let passed = [dup(io::stdin()).unwrap(), dup(io::stderr()).unwrap()].map(IntoRawFd::into_raw_fd);
    assert_eq!(passed, [3, 4]);
    let variables = variables.replace("OWN", &process::id().to_string());
    let mut command = process::Command::new(env::current_exe().unwrap());
    command.args(["--exact", "--nocapture", PROCESS]).env_remove(VARIABLES);
    command.envs(variables.split_whitespace().map(|variable| variable.split_once('=').unwrap()));
    panic!("{}", command.stdin(Stdio::null()).stderr(Stdio::null()).exec());
}

/// Starts this program like a service manager, with up to two descriptors from number 3 on.
fn pass(sockets: impl IntoIterator<Item = OwnedFd>, variables: &str, take: &str) -> Child {
    let mut sockets = sockets.into_iter();
    let mut stdio = || sockets.next().map_or_else(Stdio::null, Stdio::from);
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "--nocapture", "systemd::become_a_service"]).env(VARIABLES, variables).env(TAKE, take);
    command.stdin(stdio()).stderr(stdio()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
}

async fn check_call(address: impl Into<Address>) {
    let client = TestClient::new(Channel::connect(&address.into()).await.unwrap());
    assert_eq!(client.say(words("hi")).await.unwrap().into_inner(), words("hi"));
}

async fn failure(child: Child) -> String {
    let Output { stdout, .. } = child.wait_with_output().await.unwrap();
    let said = String::from_utf8(stdout).unwrap();
    let (_, failure) = said.split_once("failed: ").unwrap_or_else(|| panic!("{said}"));
    failure.lines().next().unwrap().to_owned()
}

const BOTH: &str = "LISTEN_PID=OWN LISTEN_FDS=2 LISTEN_FDNAMES=rpc:admin";

#[test]
fn serves_listeners_by_name_and_index_and_all() {
    in_real_time(async {
        for take in ["all", "rpc", "0", "1"] {
            let path = unused_path();
            let (tcp, unix) = (TcpListener::bind("127.0.0.1:0").unwrap(), UnixListener::bind(&path).unwrap());
            let address = Address::Tcp(tcp.local_addr().unwrap());
            // Connections wait in the queue of the listener until the service accepts them.
            let _process = pass([tcp.into(), unix.into()], BOTH, take);
            if take != "1" {
                check_call(address).await;
            }
            if take == "all" || take == "1" {
                check_call(Address::Unix(path.clone())).await;
            }
            fs::remove_file(path).expect("the file belongs to the service manager");
        }
    });
}

#[test]
fn absent_or_wrong_sockets_are_errors_with_a_reason() {
    in_real_time(async {
        let tcp = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
        let udp = || OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap());
        let file = || OwnedFd::from(fs::File::open("/dev/null").unwrap());
        let connection = || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            OwnedFd::from(std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap())
        };
        for (second, variables, take, reason) in [
            (tcp(), "", "all", "LISTEN_FDS is not set"),
            (tcp(), "LISTEN_PID=1 LISTEN_FDS=2", "rpc", "LISTEN_PID is 1"),
            (tcp(), "LISTEN_PID=OWN LISTEN_FDS=many", "rpc", "LISTEN_FDS is no number"),
            (tcp(), BOTH, "web", "no socket named \"web\"; left are 0 (rpc), 1 (admin)"),
            (tcp(), BOTH, "2", "no socket with index 2"),
            (udp(), BOTH, "admin", "socket 1 of the service manager (admin) is not a stream socket"),
            (file(), BOTH, "1", "is not a socket"),
            (connection(), BOTH, "all", "is a connection and not a listener"),
            (tcp(), "LISTEN_PID=OWN LISTEN_FDS=900", "0", "LISTEN_FDS: descriptor 5 "),
        ] {
            let said = failure(pass([tcp(), second], variables, take)).await;
            assert!(said.contains(reason), "{said:?} lacks {reason:?}");
        }
    });
}

#[test]
fn serves_the_socket_of_systemd() {
    let program = "/usr/bin/systemd-socket-activate";
    if !is_installed(fs::exists(program).unwrap(), "systemd-socket-activate", "apt-get install systemd") {
        return;
    }
    in_real_time(async {
        let directory = Directory::new("systemd");
        let path = directory.path().join("rpc");
        let mut command = Command::new(program);
        command.arg("-l").arg(&path).args(["--fdname=rpc", "-E", &format!("{TAKE}=rpc")]);
        command.arg(env::current_exe().unwrap()).args(["--exact", "--nocapture", PROCESS]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut manager = command.spawn().unwrap();
        let mut log = BufReader::new(manager.stderr.take().unwrap()).lines();
        while let Some(line) = log.next_line().await.unwrap() {
            if line.contains("Listening on ") {
                break;
            }
        }
        check_call(Address::Unix(path)).await;
    });
}
