//! Lost connections, and their effects on publishers and subscribers.

use std::time::Duration;

use frisbee_pubsub::{Client, PublishError, RefusalCode, RequestError, SubscriptionEnd};
use support::{MILLI, SECOND, assert_elapsed, calls::quiet, in_virtual_time, settle};
use tokio::{runtime::Builder, time::Instant};

use crate::party::{Party, heard, serve};

#[test]
fn subscriptions_resume_and_report_the_reconnection() {
    in_virtual_time(async {
        let Party { broker, server, address } = Party::new().await;
        let client = crate::party::client_of(&address).await;
        let mut plain = client.subscribe("a").await.unwrap();
        let mut group = client.subscribe("a").group("g").await.unwrap();
        broker.publish("a", "1").await.unwrap();
        settle().await;
        server.connections().iter().for_each(frisbee::Connection::close);
        settle().await;
        tokio::time::sleep(SECOND).await;
        broker.publish("a", "2").await.unwrap();
        assert_eq!(heard(&mut plain).await, "1 reconnected 2");
        assert_eq!(heard(&mut group).await, "1 reconnected 2");
        assert_eq!(client.publish_acknowledged("a", "3").await.unwrap(), Some(2));
        assert_eq!(broker.metrics().patterns, 2, "nothing is left of those on the connection before");
    });
}

#[test]
fn publishing_resumes_after_a_broker_restart() {
    in_virtual_time(async {
        let Party { server, address, .. } = Party::new().await;
        let client = crate::party::client_of(&address).await;
        let mut subscription = client.subscribe("a").await.unwrap();
        server.shutdown(Duration::ZERO).await;
        settle().await;
        assert!(client.try_publish("a", "0").is_err(), "there is no connection");
        let waiting = tokio::spawn({
            let client = client.clone();
            async move { client.publish_acknowledged("a", "1").await }
        });
        settle().await;
        let party = Party {
            server: serve(&frisbee_pubsub::Broker::new(), &address).await,
            address,
            broker: frisbee_pubsub::Broker::new(),
        };
        waiting.await.unwrap().unwrap();
        assert!(heard(&mut subscription).await.starts_with("reconnected"));
        drop(party);
    });
}

#[test]
fn flush_reports_messages_in_flight_at_a_loss() {
    in_virtual_time(async {
        let party = Party::new().await;
        let client = party.client().await;
        client.publish("a", "1").await.unwrap();
        client.flush().await.unwrap();
        client.publish("a", "2").await.unwrap();
        party.server.connections().iter().for_each(frisbee::Connection::close);
        tokio::time::sleep(SECOND).await;
        let error = client.flush().await.unwrap_err();
        assert!(matches!(error, PublishError::Lost { may_have_left: true }), "{error}");
        client.publish("a", "3").await.unwrap();
        client.flush().await.unwrap();
    });
}

#[test]
fn publishing_waits_for_a_connection_up_to_the_limit() {
    in_virtual_time(async {
        let Party { server, address, .. } = Party::new().await;
        let settings = frisbee::Client::new(()).config(quiet());
        let client = Client::builder().frisbee(settings).wait_max(2 * SECOND).connect(&address).await.unwrap();
        server.shutdown(Duration::ZERO).await;
        settle().await;
        let begun = Instant::now();
        let error = client.publish("a", "1").await.unwrap_err();
        assert!(matches!(error, PublishError::NotConnected), "{error}");
        assert_elapsed(begun, 2 * SECOND);
    });
}

#[test]
fn cancelled_requests_do_not_affect_later_ones() {
    in_virtual_time(async {
        let Party { server, address, broker } = Party::new().await;
        let client = crate::party::client_of(&address).await;
        server.shutdown(Duration::ZERO).await;
        settle().await;
        let impatient = client.with_request_limit(MILLI);
        for _ in 0..300 {
            let error = impatient.request("q", "?").await.unwrap_err();
            assert!(matches!(error, RequestError::TimedOut), "{error}");
        }
        let _server = serve(&broker, &address).await;
        let error = client.request("q", "?").await.unwrap_err();
        assert!(matches!(error, RequestError::NoResponders), "{error}");
        assert_eq!(broker.metrics().patterns, 1, "all requests share one subscription");
    });
}

#[test]
fn a_request_fails_when_its_connection_is_lost() {
    in_virtual_time(async {
        let party = Party::new().await;
        let (asking, answering) = (party.client().await, party.client().await);
        let _requests = answering.subscribe("q").await.unwrap();
        let asked = tokio::spawn(async move { asking.request("q", "?").await });
        settle().await;
        party.server.connections().iter().for_each(frisbee::Connection::close);
        let error = asked.await.unwrap().unwrap_err();
        assert!(matches!(error, RequestError::Publish(PublishError::Lost { may_have_left: true })), "{error}");
    });
}

#[test]
fn requests_work_after_a_reconnect() {
    in_virtual_time(async {
        let party = Party::new().await;
        let (asking, answering) = (party.client().await, party.client().await);
        let mut requests = answering.subscribe("q").await.unwrap();
        tokio::spawn(async move {
            while let Some(request) = requests.next_message().await {
                answering.respond(&request, "!").await.unwrap();
            }
        });
        for _ in 0..3 {
            assert_eq!(asking.request("q", "?").await.unwrap().payload, "!");
            party.server.connections().iter().for_each(frisbee::Connection::close);
            tokio::time::sleep(SECOND).await;
        }
    });
}

#[test]
fn a_subscription_rejected_by_the_next_broker_ends() {
    in_virtual_time(async {
        let Party { server, address, .. } = Party::new().await;
        let client = crate::party::client_of(&address).await;
        let mut subscription = client.subscribe("a").await.unwrap();
        server.shutdown(Duration::ZERO).await;
        let strict =
            frisbee_pubsub::Broker::builder().authorize(|_: &frisbee::Connection, _, _: &str| Err("no".into())).build();
        let _server = serve(&strict, &address).await;
        while subscription.next().await.is_some() {}
        let end = subscription.end().unwrap();
        assert!(matches!(end, SubscriptionEnd::Refused(refusal) if refusal.code == RefusalCode::Denied), "{end}");
    });
}

#[test]
fn a_client_over_a_custom_stream_ends_with_it() {
    in_virtual_time(async {
        let party = Party::new().await;
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        party.server.attach(theirs);
        let settings = frisbee::Client::new(()).config(quiet());
        let client = Client::builder().frisbee(settings).attach(ours).await.unwrap();
        let mut subscription = client.subscribe("a").await.unwrap();
        party.broker.publish("a", "1").await.unwrap();
        settle().await;
        party.server.connections().iter().for_each(frisbee::Connection::close);
        assert_eq!(heard(&mut subscription).await, "1 end: the connection was lost");
        assert!(matches!(client.publish("a", "2").await, Err(PublishError::Closed)));
    });
}

#[test]
fn connecting_to_a_server_without_a_broker_fails() {
    in_virtual_time(async {
        let address = support::calls::unused_address();
        let _server = frisbee::Server::builder(()).config(quiet()).bind(&address).await.unwrap();
        let settings = frisbee::Client::new(()).config(quiet());
        let error = Client::builder().frisbee(settings).connect(&address).await.unwrap_err();
        assert!(matches!(error, frisbee_pubsub::ConnectError::NoBroker), "{error}");
    });
}

#[test]
fn acknowledged_messages_survive_server_restarts() {
    in_virtual_time(async {
        let Party { broker, server, address } = Party::new().await;
        let publisher = crate::party::client_of(&address).await;
        // The journal is a client in the broker's process. The broker continues; only its servers are replaced.
        let mut journal = broker.client().await.unwrap().subscribe("a").window(1 << 20).await.unwrap();
        let publishing = tokio::spawn(async move {
            let (mut acknowledged, mut unknown) = (Vec::new(), Vec::new());
            for number in 0..2000_u32 {
                match publisher.publish_acknowledged("a", number.to_string()).await {
                    Ok(subscriptions) => acknowledged.push((number, subscriptions)),
                    Err(PublishError::Lost { may_have_left }) => unknown.push((number, may_have_left)),
                    Err(error) => panic!("{error}"),
                }
                if number % 20 == 0 {
                    tokio::time::sleep(support::MILLI).await;
                }
            }
            (acknowledged, unknown)
        });
        let mut server = server;
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            server.shutdown(Duration::from_millis(1)).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
            server = serve(&broker, &address).await;
        }
        let (acknowledged, unknown) = publishing.await.unwrap();
        assert_eq!(acknowledged.len() + unknown.len(), 2000, "each is acknowledged or reported");
        assert!(unknown.len() <= 3, "{unknown:?}: one for each time at most");
        settle().await;
        let heard: Vec<u32> = heard(&mut journal).await.split(' ').map(|number| number.parse().unwrap()).collect();
        assert!(heard.is_sorted_by(|one, next| one < next), "in order, and none twice");
        for (number, subscriptions) in acknowledged {
            assert_eq!(subscriptions, Some(1));
            assert!(heard.binary_search(&number).is_ok(), "{number} was acknowledged");
        }
    });
}

#[test]
fn clients_end_with_their_runtime() {
    let runtime = || Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let home = runtime();
    let (_party, client, mut subscription) = home.block_on(async {
        let party = Party::new().await;
        let client = party.client().await;
        let subscription = client.subscribe("a").await.unwrap();
        (party, client, subscription)
    });
    drop(home);
    in_virtual_time(async move {
        assert!(subscription.next().await.is_none());
        assert!(matches!(subscription.end(), Some(SubscriptionEnd::Lost)), "{:?}", subscription.end());
        let begun = Instant::now();
        assert!(matches!(client.publish("a", "1").await, Err(PublishError::Closed)));
        assert!(client.publish_acknowledged("a", "2").await.is_err() && client.request("a", "?").await.is_err());
        assert_elapsed(begun, Duration::ZERO);
    });
}
