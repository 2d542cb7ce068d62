//! Direct calls to announced servers.

use frpc::{Channel, Server};
use frpc_nats::Announcement;
use support::{
    NatsProgram, SECOND,
    calls::{TestClient, TestServer, TestService, ask},
    in_real_time, until,
};
use tokio::runtime::Builder;

use crate::common::{Setup, cluster};

async fn serve(service: &TestService) -> Server {
    let server = Server::builder().add_service(TestServer::new(service.clone()));
    server.bind("tcp://127.0.0.1:0").await.unwrap()
}

async fn announce(nats: &support::NatsServer, server: &Server) -> Announcement {
    let announcement = Announcement::builder("test", server.local_addr()).unwrap();
    announcement.zone("a").weight(2).ttl(SECOND).start(&cluster(nats)).await.unwrap()
}

async fn connect(nats: &support::NatsServer) -> Channel {
    let target = format!("nats+direct://{}/test", nats.addr);
    Channel::builder().resolver(frpc_nats::transport()).connect(target).await.unwrap()
}

#[test]
fn announced_servers_are_called_directly_until_they_withdraw() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let nats = program.start("one", "").await;
        let services = [TestService::default(), TestService::default()];
        let [first, second] = [serve(&services[0]).await, serve(&services[1]).await];
        let announced = announce(&nats, &first).await;
        let client = TestClient::new(connect(&nats).await);
        assert_eq!(ask(&client, "hello").await.unwrap(), "hello");
        assert_eq!(services[0].log.take().len(), 1);

        // Another server joins.
        let also = announce(&nats, &second).await;
        while services[1].log.take().is_empty() {
            assert_eq!(ask(&client, "hello").await.unwrap(), "hello");
        }
        // The first leaves, while no call fails.
        announced.withdraw().await;
        until(|| first.connections().is_empty()).await;
        services[0].log.take();
        for _ in 0..20 {
            assert_eq!(ask(&client, "hello").await.unwrap(), "hello");
        }
        assert!(services[0].log.take().is_empty());
        also.set_load(0.5);
        drop(also);
    });
}

#[test]
fn the_entry_of_a_dead_server_expires() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let nats = program.start("one", "").await;
        let services = [TestService::default(), TestService::default()];
        let [first, second] = [serve(&services[0]).await, serve(&services[1]).await];
        let dead = announce(&nats, &first).await;
        let alive = announce(&nats, &second).await;
        let client = TestClient::new(connect(&nats).await);
        until(|| !first.connections().is_empty() && !second.connections().is_empty()).await;
        // Without withdrawal, as after a crash. The server itself stays, so only the expiry removes it.
        drop(dead);
        until(|| first.connections().is_empty()).await;
        assert_eq!(ask(&client, "hello").await.unwrap(), "hello");
        assert!(!second.connections().is_empty(), "a renewed entry stays");
        drop(alive);
    });
}

#[test]
fn direct_calls_survive_the_end_of_nats() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let mut nats = program.start("one", "").await;
        let service = TestService::default();
        let server = serve(&service).await;
        let _announced = announce(&nats, &server).await;
        let client = TestClient::new(connect(&nats).await);
        assert_eq!(ask(&client, "hello").await.unwrap(), "hello");
        nats.kill().await;
        // Longer than the time to live: an unreachable bucket says nothing about the server.
        let end = tokio::time::Instant::now() + 3 * SECOND;
        while tokio::time::Instant::now() < end {
            assert_eq!(ask(&client, "hello").await.unwrap(), "hello");
        }
    });
}

#[test]
fn a_channel_without_servers_fails_with_the_reason() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let nats = program.start("one", "").await;
        let connect = |target: String| async move {
            Channel::builder().resolver(frpc_nats::transport()).connect(target).await.unwrap_err().to_string()
        };
        let why = connect(format!("nats+direct://{}/test", nats.addr)).await;
        assert!(why.contains("key-value bucket"), "{why}");
        let why = connect(format!("nats+direct://{}/te.st", nats.addr)).await;
        assert!(why.contains("no name"), "{why}");
    });
}

#[test]
fn channels_outlive_the_runtimes_of_their_connections() {
    let Some(program) = NatsProgram::find() else { return };
    let runtime = || Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let serving = runtime();
    let (setup, server, _announced) = serving.block_on(async {
        let service = TestService::default();
        let server = serve(&service).await;
        let setup = Setup::start(program, server.endpoint()).await;
        let announced = announce(&setup.nats, &server).await;
        (setup, server, announced)
    });
    let home = runtime();
    let (through, direct) = home.block_on(async { (setup.connect().await, connect(&setup.nats).await) });
    for here in [home, runtime(), runtime()] {
        for channel in [&through, &direct] {
            assert_eq!(here.block_on(ask(&TestClient::new(channel.clone()), "hello")).unwrap(), "hello");
        }
    }
    drop(server);
}
