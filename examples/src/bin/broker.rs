//! A broker in a few lines: publish and subscribe with wildcards, a request, and a slow subscriber that is told about
//! missing messages.

use std::error::Error;

use frisbee::Server;
use frisbee_pubsub::{Broker, BrokerLimits, Client, Policy, Publication, RequestError, SubscriptionEvent, TopicEvent};
use orders::{OrderCreated, topics::ORDER_CREATED};

/// Generated from `proto/orders.proto`.
pub mod orders {
    frpc::include_proto!("orders");
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The broker, with a limit on the messages queued for a slow subscriber.
    let limits = BrokerLimits { queue_len_max: 1000, ..BrokerLimits::default() };
    let broker = Broker::builder().limits(limits).build();
    let server = Server::builder(broker.router()).bind("tcp://127.0.0.1:0").await?;

    // The clients: a publisher and a subscriber.
    let (shop, accounting) = (Client::connect(server.local_addr()).await?, Client::connect(server.local_addr()).await?);
    shop.send_acknowledged(Publication::new("shop.state", "open").retain()).await?;
    let mut orders = ORDER_CREATED.subscribe(&accounting).await?;
    let mut states = accounting.subscribe("shop.>").await?;
    ORDER_CREATED.publish_under(&shop, "orders.eu.created", &OrderCreated { what: "a book".into() }).await?;
    if let Some(TopicEvent::Message(order, message)) = orders.next().await {
        println!("accounting hears of {} ({})", order.what, message.subject);
    }
    println!("and that the shop is {:?}", states.next_message().await.ok_or("the broker is gone")?.payload);

    // A request fails immediately if there is no responder.
    if let Err(RequestError::NoResponders) = shop.request("vat.rate", "books").await {
        println!("nobody knows the rate yet");
    }
    let mut questions = accounting.subscribe("vat.rate").group("accountants").await?;
    let answering = accounting.clone();
    tokio::spawn(async move {
        while let Some(question) = questions.next_message().await {
            // The requester may be gone.
            let _ = answering.respond(&question, "7 %").await;
        }
    });
    println!("the rate is {:?}", shop.request("vat.rate", "books").await?.payload);

    // ANCHOR: slow
    // A slow subscriber with a window of a few messages. The broker keeps the latest ones.
    let mut prices = accounting.subscribe("prices.*").policy(Policy::DropOldest).window(500).await?;
    for cents in 0..100 {
        shop.publish("prices.book", format!("{cents}")).await?;
    }
    shop.publish_acknowledged("prices.book", "last").await?;
    while let Some(event) = prices.next().await {
        match event {
            SubscriptionEvent::Missing(count) => println!("{count} prices are missing here"),
            SubscriptionEvent::Message(message) if message.payload == "last" => break,
            _ => {}
        }
    }
    // ANCHOR_END: slow
    println!("{:#?}", broker.metrics());
    Ok(())
}
