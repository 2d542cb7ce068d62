//! Publish and subscribe together with RPC, on one port and one connection.

use frisbee_pubsub::{Broker, Client};
use frpc::{Channel, Server, Unimplemented};
use support::{
    calls::{TestClient, TestServer, TestService, ask, quiet, unused_address},
    in_virtual_time, settle,
};

use crate::party::{heard, numbers};

#[test]
fn calls_and_messages_share_a_connection() {
    in_virtual_time(async {
        let (broker, address) = (Broker::new(), unused_address());
        let service = TestServer::new(TestService::default());
        let router = broker.over(Unimplemented);
        let server =
            Server::builder().config(quiet()).add_service(service).router(router).bind(&address).await.unwrap();
        let inbox = Client::builder().router();
        let client = inbox.client();
        let channel = Channel::builder().config(quiet()).router(inbox).connect(&address).await.unwrap();
        let calls = TestClient::new(channel);
        let mut subscription = client.subscribe("news").await.unwrap();
        let calling = tokio::spawn(async move {
            for number in 0..200 {
                assert_eq!(ask(&calls, &number.to_string()).await.unwrap(), number.to_string());
            }
            calls
        });
        for number in 0..200 {
            client.publish("news", number.to_string()).await.unwrap();
        }
        let calls = calling.await.unwrap();
        assert_eq!(heard(&mut subscription).await, numbers(0, 200));
        assert_eq!(server.connections().len(), 1);

        server.connections()[0].close();
        settle().await;
        assert_eq!(ask(&calls, "again").await.unwrap(), "again", "which makes another connection");
        assert_eq!(client.publish_acknowledged("news", "1").await.unwrap(), Some(1));
        assert_eq!(heard(&mut subscription).await, "reconnected 1");
        client.close().await;
        assert_eq!(ask(&calls, "still").await.unwrap(), "still", "the connection is that of the channel");
        assert_eq!(broker.metrics().patterns, 0);
    });
}

#[test]
fn a_plain_client_reaches_the_broker_through_services() {
    in_virtual_time(async {
        let (broker, address) = (Broker::new(), unused_address());
        let service = TestServer::new(TestService::default());
        let router = broker.over(Unimplemented);
        let _server =
            Server::builder().config(quiet()).add_service(service).router(router).bind(&address).await.unwrap();
        let client = crate::party::client_of(&address).await;
        let mut subscription = client.subscribe("a.>").await.unwrap();
        broker.publish("a.b", "x".repeat(100_000)).await.unwrap();
        broker.publish("a.c", "1").await.unwrap();
        assert_eq!(subscription.next_message().await.unwrap().payload.len(), 100_000);
        assert_eq!(heard(&mut subscription).await, "1", "what is small does not overtake what is large");
    });
}
