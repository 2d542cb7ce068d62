//! The words of NATS: subjects, queue groups, requests.

use frisbee::Server;
use frisbee_pubsub::{Broker, Client};

use crate::Outcome;

pub(crate) async fn run() -> Outcome {
    // ANCHOR: broker
    let server = Server::builder(Broker::new().router()).bind("tcp://127.0.0.1:0").await?;
    let client = Client::connect(server.local_addr()).await?;

    let mut orders = client.subscribe("orders.*.created").await?;
    client.publish("orders.eu.created", "a book").await?;
    println!("{:?}", orders.next_message().await.map(|message| message.payload));

    let mut questions = client.subscribe("vat.rate").group("accountants").await?;
    let answering = client.clone();
    tokio::spawn(async move {
        while let Some(question) = questions.next_message().await {
            // The requester may be gone.
            let _ = answering.respond(&question, "7 %").await;
        }
    });
    println!("{:?}", client.request("vat.rate", "books").await?.payload);
    // ANCHOR_END: broker
    Ok(())
}
