//! A publish and subscribe client in Go, based on frisbee-go alone, against our broker.

use std::time::Duration;

use frisbee::{Dispatch, Server};
use frisbee_pubsub::{Broker, BrokerLimits, Policy};

use crate::clients::{GoClient, run_clients};

#[tokio::test(flavor = "multi_thread")]
async fn go_clients_pass_against_our_broker() {
    run_clients("pubsub-client", &[Dispatch::InPlace, Dispatch::Ordered], Dispatch::InPlace, serve).await;
}

async fn serve(client: GoClient) {
    let broker = Broker::builder().limits(BrokerLimits { queue_len_max: 100_000, ..BrokerLimits::default() }).build();
    let mut builder = Server::builder(broker.router()).dispatch(client.dispatch).engine(client.engine);
    if let Some(identity) = client.identity() {
        builder = builder.tls(identity.server());
    }
    let server = builder.bind("tcp://127.0.0.1:0").await.unwrap();
    let answering = broker.client().await.unwrap();
    let mut requests = answering.subscribe("upper").policy(Policy::Block).await.unwrap();
    let answers = tokio::spawn(async move {
        while let Some(request) = requests.next_message().await {
            answering.respond(&request, request.payload.to_ascii_uppercase()).await.unwrap();
        }
    });
    client.run(server.local_addr().to_string().replace("tcp://", ""), |_| true).await;
    answers.abort();
    assert_eq!(server.shutdown(Duration::from_secs(5)).await, 0, "connections outlived their client");
    assert_eq!(broker.metrics().queued_len, 0);
}
