//! Clusters whose servers die under load.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use frpc::{Channel, Code, Server};
use frpc_nats::{Announcement, NatsCluster, NatsServer, NatsTransport};
use support::{
    NatsProgram, SECOND,
    calls::{TestClient, TestServer, TestService, ask},
    in_real_time_within, until,
};
use tokio::task::JoinSet;

/// The outcomes of calls in one way.
#[derive(Default)]
struct Outcomes {
    answered: AtomicUsize,
    failed: AtomicUsize,
}

#[test]
fn no_direct_call_fails_while_each_server_of_the_cluster_dies_in_turn() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time_within(120 * SECOND, async {
        let mut cluster: Vec<_> = program.start_cluster(3).await.into_iter().map(Some).collect();
        let urls: Vec<_> = cluster.iter().flatten().map(support::NatsServer::url).collect();
        let nats = NatsCluster::new(urls.join(","));
        let server = Server::builder().add_service(TestServer::new(TestService::default()));
        let server = server.bind("tcp://127.0.0.1:0").await.unwrap();
        let announced = Announcement::builder("test", server.local_addr()).unwrap().ttl(2 * SECOND).replicas(3);
        let announced = loop {
            // The leader may not know the other servers yet, and a bucket needs three.
            if let Ok(announced) = announced.clone().start(&nats).await {
                break announced;
            }
        };
        let through_nats = NatsServer::builder("test").serve(&nats, server.endpoint()).await.unwrap();

        let transport = NatsTransport::new().cluster("three", nats.clone());
        let connect = |scheme: &str| {
            let channel = Channel::builder().transport(transport.clone()).resolver(transport.clone());
            channel.connect(format!("{scheme}://three/test"))
        };
        let (direct, through) = (connect("nats+direct").await.unwrap(), connect("nats").await.unwrap());
        let (is_over, directly, passed) =
            (Arc::<AtomicBool>::default(), Arc::<Outcomes>::default(), Arc::<Outcomes>::default());
        let mut callers = JoinSet::new();
        for (channel, outcomes) in [(direct.clone(), &directly), (through.with_timeout(SECOND), &passed)] {
            for _ in 0..4 {
                let client = TestClient::new(channel.clone());
                let (is_over, outcomes) = (is_over.clone(), outcomes.clone());
                callers.spawn(async move {
                    while !is_over.load(Ordering::Relaxed) {
                        let outcome = match ask(&client, "hello").await {
                            Ok(answer) => {
                                assert_eq!(answer, "hello");
                                &outcomes.answered
                            }
                            Err(status) => {
                                let code = status.code();
                                assert!(matches!(code, Code::Unavailable | Code::DeadlineExceeded), "{status}");
                                assert!(status.call_error().is_some(), "{status:?}");
                                &outcomes.failed
                            }
                        };
                        outcome.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        }
        let answered = |outcomes: &Outcomes| outcomes.answered.load(Ordering::Relaxed);
        for dying in &mut cluster {
            let before = [answered(&directly), answered(&passed)];
            until(|| answered(&directly) > before[0] + 100 && answered(&passed) > before[1] + 100).await;
            let mut server = dying.take().unwrap();
            server.kill().await;
            let before = [answered(&directly), answered(&passed)];
            until(|| answered(&directly) > before[0] + 100 && answered(&passed) > before[1] + 100).await;
            let mut server = server.restart().await;
            server.has_leader().await;
            *dying = Some(server);
        }
        // The watch has survived: another server is found, and the first one is left.
        let service = TestService::default();
        let other = Server::builder().add_service(TestServer::new(service.clone()));
        let other = other.bind("tcp://127.0.0.1:0").await.unwrap();
        let also = Announcement::builder("test", other.local_addr()).unwrap().replicas(3);
        let also = loop {
            // The bucket may have no leader yet.
            if let Ok(also) = also.clone().start(&nats).await {
                break also;
            }
        };
        until(|| !service.log.take().is_empty()).await;
        announced.withdraw().await;
        is_over.store(true, Ordering::Relaxed);
        while let Some(caller) = callers.join_next().await {
            caller.unwrap();
        }
        assert_eq!(directly.failed.load(Ordering::Relaxed), 0);
        println!(
            "direct: {} answered; through NATS: {} answered, {} failed",
            answered(&directly),
            answered(&passed),
            passed.failed.load(Ordering::Relaxed)
        );
        drop((also, through_nats));
    });
}
