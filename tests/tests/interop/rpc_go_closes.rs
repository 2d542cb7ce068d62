//! Go RPC clients that close their connection as soon as they have their answer.

use std::{collections::BTreeMap, env, net::SocketAddr};

use frisbee::HeaderFormat;
use frpc::{CallSettings, Dispatch, Server};
use support::{
    GoPeers,
    interop::{
        Service,
        schema::{interop_server::InteropServer, second_server::SecondServer},
    },
};

/// frisbee-go hangs forever in its close if a stream frame arrives meanwhile. With `CLOSES=800` in the environment, the
/// test closes this number of connections after each kind of call, also with a Go server, and prints the number of
/// hangs.
#[tokio::test(flavor = "multi_thread")]
async fn go_clients_closing_immediately_do_not_hang() {
    let Some(go) = GoPeers::find() else { return };
    let closes = env::var("CLOSES").ok();
    for header in [HeaderFormat::Magic10, HeaderFormat::Plain8] {
        if let Some(closes) = &closes {
            let server = go.serve("rpc-server", header, false, &[]).await;
            let hung = hung_closes(go, header, &["-connections", closes], server.addr).await;
            println!("{header:?}, server in Go: {hung:?}");
        }
        for dispatch in [Dispatch::InPlace, Dispatch::Spawned] {
            let builder = Server::builder().calls(CallSettings { dispatch, ..CallSettings::default() });
            let builder = builder.add_service(InteropServer::new(Service)).add_service(SecondServer::new(Service));
            let server = builder.bind("tcp://127.0.0.1:0").await.expect("some port is free");
            let addr = server.local_addr().socket_addr().expect("it listens on TCP");
            match &closes {
                Some(closes) => {
                    let hung = hung_closes(go, header, &["-connections", closes], addr).await;
                    println!("{header:?}, ours, {dispatch:?}: {hung:?}");
                }
                None => {
                    let hung = hung_closes(go, header, &["-quick", "-connections", "40"], addr).await;
                    assert!(hung.values().all(|hung| *hung == 0), "{header:?}, {dispatch:?}: {hung:?}");
                }
            }
        }
    }
}

/// Makes a Go client close many connections after calls of each kind. Returns the number of hangs.
async fn hung_closes(go: GoPeers, header: HeaderFormat, flags: &[&str], addr: SocketAddr) -> BTreeMap<String, u32> {
    let mut client = go.command("rpc-closer", header);
    let output = client.args(flags).arg(addr.to_string()).output().await.expect("the client was built");
    let report = String::from_utf8(output.stdout).expect("its output is text");
    assert!(report.contains(" passed, "), "the client ended with {report:?}");
    let results = report.lines().filter_map(|line| line.strip_prefix("ok   ").or(line.strip_prefix("FAIL ")));
    let count = |result: &str| {
        let (kind, rest) = result.split_once(" (").expect("a name and the time it took");
        let hung = match rest.split_once("): ") {
            None => 0,
            Some((_, error)) => {
                let count = error.split_once(" of ").and_then(|(count, _)| count.parse().ok());
                count.unwrap_or_else(|| panic!("{kind}: {error}"))
            }
        };
        (kind.to_owned(), hung)
    };
    results.map(count).collect()
}
