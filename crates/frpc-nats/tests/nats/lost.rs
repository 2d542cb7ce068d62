//! Calls of dead servers and slow calls, in virtual time.

use std::time::Duration;

use async_nats::HeaderMap;
use frpc::{Channel, Code, Request};
use frpc_nats::{NatsCluster, NatsServer};
use futures_util::StreamExt;
use support::{
    DAY, NatsBroker, SECOND,
    calls::{TestClient, TestServer, TestService, Words, ask, asking, each_kind, may_have_executed, words},
    in_virtual_time, settle,
};
use tokio::time::{Instant, sleep};

async fn serve(broker: &NatsBroker, service: &TestService) -> NatsServer {
    let cluster = NatsCluster::new(broker.addr().to_string());
    NatsServer::builder("test").serve(&cluster, TestServer::new(service.clone())).await.unwrap()
}

async fn connect(broker: &NatsBroker) -> TestClient {
    let channel = Channel::builder().transport(frpc_nats::transport());
    let channel = channel.connect(format!("nats://{}/test", broker.addr())).await.unwrap();
    TestClient::new(channel.with_timeout(DAY))
}

#[test]
fn a_call_of_a_dead_server_fails_within_seven_seconds() {
    in_virtual_time(async {
        for others in 0..2 {
            for age in [Duration::ZERO, 100 * SECOND] {
                let broker = NatsBroker::start().await;
                let service = TestService::default();
                let server = serve(&broker, &service).await;
                let client = connect(&broker).await;
                let call = asking(&client, "wait");
                service.gate.arrival().await;
                let mut living = Vec::new();
                for _ in 0..others {
                    living.push(serve(&broker, &service).await);
                }
                sleep(age).await;
                assert!(!call.is_finished(), "a living server has it");
                let since = Instant::now();
                drop(server);
                let status = call.await.unwrap().unwrap_err();
                assert!(may_have_executed(&status), "{status}");
                assert!(status.message().contains("no server has claimed"), "{status}");
                assert!((2 * SECOND..=7 * SECOND).contains(&since.elapsed()), "{:?}", since.elapsed());
                if others > 0 {
                    assert_eq!(ask(&client, "hello").await.unwrap(), "hello");
                }
            }
        }
    });
}

#[test]
fn slow_calls_of_every_kind_are_not_lost() {
    in_virtual_time(async {
        let broker = NatsBroker::start().await;
        let _server = serve(&broker, &TestService::default()).await;
        let client = connect(&broker).await;
        for answer in each_kind(&client, "sleep 1000").await {
            assert!(answer.unwrap().ends_with("sleep 1000"));
        }
    });
}

#[test]
fn a_shutdown_waits_for_slow_calls() {
    in_virtual_time(async {
        let broker = NatsBroker::start().await;
        let service = TestService::default();
        let server = serve(&broker, &service).await;
        let client = connect(&broker).await;
        let call = asking(&client, "sleep 100");
        settle().await;
        assert_eq!(server.shutdown(DAY).await, 0);
        assert_eq!(call.await.unwrap().unwrap(), "sleep 100");
    });
}

#[test]
fn servers_of_other_clients_may_take_their_time() {
    in_virtual_time(async {
        let broker = NatsBroker::start().await;
        let other = async_nats::connect(broker.addr().to_string()).await.unwrap();
        let mut requests = other.subscribe("test.calls.Test.Say").await.unwrap();
        other.flush().await.unwrap();
        settle().await;
        let client = connect(&broker).await;
        let call = asking(&client, "hello");
        let request = requests.next().await.unwrap();
        sleep(1000 * SECOND).await;
        other.publish(request.reply.unwrap(), request.payload).await.unwrap();
        assert_eq!(call.await.unwrap().unwrap(), "hello");
        // Without probes, only the deadline ends a call.
        let mut request = Request::new(words("hello"));
        request.set_timeout(100 * SECOND);
        assert_eq!(client.say(request).await.unwrap_err().code(), Code::DeadlineExceeded);
    });
}

#[test]
fn an_answer_of_frpc_tells_that_servers_answer_probes() {
    in_virtual_time(async {
        let broker = NatsBroker::start().await;
        let server = async_nats::connect(broker.addr().to_string()).await.unwrap();
        let mut requests = server.subscribe("test.calls.Test.Say").await.unwrap();
        server.flush().await.unwrap();
        settle().await;
        let client = connect(&broker).await;
        let call = asking(&client, "hello");
        let request = requests.next().await.unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("Rpc-Call", "unary");
        server.publish_with_headers(request.reply.unwrap(), headers, request.payload).await.unwrap();
        assert_eq!(call.await.unwrap().unwrap(), "hello");
        // It dies before its first probe.
        let status = ask(&client, "hello").await.unwrap_err();
        assert!(may_have_executed(&status) && status.message().contains("no server has claimed"), "{status}");
    });
}

#[test]
fn fast_calls_take_two_messages() {
    in_virtual_time(async {
        let broker = NatsBroker::start().await;
        let _server = serve(&broker, &TestService::default()).await;
        let client = connect(&broker).await;
        ask(&client, "hello").await.unwrap();
        sleep(10 * SECOND).await;
        let before = broker.messages();
        for _ in 0..100 {
            assert_eq!(client.say(Words { text: "hello".into() }).await.unwrap().into_inner().text, "hello");
        }
        sleep(10 * SECOND).await;
        assert_eq!(broker.messages() - before, 200);
    });
}

#[test]
fn dropping_the_last_channel_closes_the_connection() {
    in_virtual_time(async {
        let broker = NatsBroker::start().await;
        let _server = serve(&broker, &TestService::default()).await;
        let client = connect(&broker).await;
        let other = client.clone();
        drop(client);
        assert_eq!(ask(&other, "hello").await.unwrap(), "hello");
        assert_eq!(broker.connections(), 2);
        drop(other);
        settle().await;
        assert_eq!(broker.connections(), 1);
    });
}
