//! A broker with an in-memory server and clients.

use frisbee::{Address, Server};
use frisbee_pubsub::{Broker, BrokerLimits, Client, Subscription, SubscriptionEvent};
use support::{
    calls::{quiet, unused_address},
    settle,
};
use tokio::time::timeout;

/// A broker with its server.
pub(crate) struct Party {
    pub(crate) broker: Broker,
    pub(crate) server: Server,
    pub(crate) address: Address,
}

impl Party {
    pub(crate) async fn new() -> Self {
        Self::of(Broker::new()).await
    }

    pub(crate) async fn with(limits: BrokerLimits) -> Self {
        Self::of(Broker::builder().limits(limits).build()).await
    }

    pub(crate) async fn of(broker: Broker) -> Self {
        Self::at(unused_address(), broker).await
    }

    /// Serves at an address of any kind.
    pub(crate) async fn at(address: Address, broker: Broker) -> Self {
        let server = serve(&broker, &address).await;
        let address = server.local_addr().clone();
        Self { broker, server, address }
    }

    pub(crate) async fn client(&self) -> Client {
        client_of(&self.address).await
    }
}

/// Serves a broker at an in-memory address, without timers.
pub(crate) async fn serve(broker: &Broker, address: &Address) -> Server {
    Server::builder(broker.router()).config(quiet()).bind(address).await.unwrap()
}

/// Returns a client without timers.
pub(crate) async fn client_of(address: &Address) -> Client {
    let settings = frisbee::Client::new(()).config(quiet());
    Client::builder().frisbee(settings).connect(address).await.unwrap()
}

/// Returns the available events in words.
pub(crate) async fn heard(subscription: &mut Subscription) -> String {
    settle().await;
    let mut words = Vec::new();
    while let Ok(event) = timeout(support::MILLI, subscription.next()).await {
        match event {
            Some(event) => words.push(word(event)),
            None => {
                words.push(format!("end: {}", subscription.end().unwrap()));
                break;
            }
        }
    }
    words.join(" ")
}

pub(crate) fn word(event: SubscriptionEvent) -> String {
    match event {
        SubscriptionEvent::Message(message) => {
            let payload = String::from_utf8_lossy(&message.payload).into_owned();
            if message.is_retained { format!("({payload})") } else { payload }
        }
        SubscriptionEvent::Missing(count) => format!("missing:{count}"),
        SubscriptionEvent::Reconnected => "reconnected".into(),
        _ => unreachable!("there are no others"),
    }
}

/// Returns the numbers from `from` to before `to`, in the format of [`heard`].
pub(crate) fn numbers(from: u32, to: u32) -> String {
    (from..to).map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
}
