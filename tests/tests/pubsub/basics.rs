//! Subjects, groups, requests, retained values, acknowledgements and permissions.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use frisbee::Connection;
use frisbee_pubsub::{
    Action, Broker, BrokerLimits, Client, Publication, PublishError, RefusalCode, RequestError, SubscribeError,
    Subscription, SubscriptionEnd,
};
use support::{SECOND, assert_elapsed, in_virtual_time, settle};
use tokio::time::Instant;

use crate::party::{Party, heard, numbers};

#[test]
fn messages_reach_all_matching_patterns() {
    in_virtual_time(async {
        let party = Party::new().await;
        let (publisher, subscriber) = (party.client().await, party.client().await);
        let mut exact = subscriber.subscribe("orders.eu.created").await.unwrap();
        let mut star = subscriber.subscribe("orders.*.created").await.unwrap();
        let mut rest = subscriber.subscribe("orders.>").await.unwrap();
        let mut other = publisher.subscribe("payments.>").await.unwrap();
        for (subject, payload) in
            [("orders.eu.created", "1"), ("orders.us.created", "2"), ("orders.eu.paid", "3"), ("orders", "4")]
        {
            publisher.publish(subject, payload).await.unwrap();
        }
        assert_eq!(heard(&mut exact).await, "1");
        assert_eq!(heard(&mut star).await, "1 2");
        assert_eq!(heard(&mut rest).await, "1 2 3");
        assert_eq!(heard(&mut other).await, "");
        assert_eq!(party.broker.metrics().prefixes[0].published, 4);
        assert_eq!((party.broker.metrics().prefixes[0].deliveries, party.broker.metrics().patterns), (6, 4));
    });
}

#[test]
fn subscribers_of_one_pattern_each_get_all_messages() {
    in_virtual_time(async {
        let party = Party::new().await;
        let client = party.client().await;
        let mut first = client.subscribe("a").await.unwrap();
        let mut second = client.subscribe("a").await.unwrap();
        client.publish("a", "1").await.unwrap();
        assert_eq!((heard(&mut first).await, heard(&mut second).await), ("1".into(), "1".into()));
        drop(first);
        settle().await;
        let mut third = client.subscribe("a").await.unwrap();
        assert_eq!(client.publish_acknowledged("a", "2").await.unwrap(), Some(2));
        assert_eq!((heard(&mut second).await, heard(&mut third).await), ("2".into(), "2".into()));
    });
}

#[test]
fn a_large_message_arrives_whole() {
    in_virtual_time(async {
        let party = Party::new().await;
        let client = party.client().await;
        let mut subscription = client.subscribe(">").await.unwrap();
        let payload = "x".repeat(300_000);
        client.publish("a.b", payload.clone()).await.unwrap();
        let message = subscription.next_message().await.unwrap();
        assert_eq!((&*message.subject, message.payload.len()), ("a.b", payload.len()));
        party.broker.publish("c", payload.clone()).await.unwrap();
        assert_eq!(subscription.next_message().await.unwrap().payload, payload);
        let error = client.publish("a", "x".repeat(6 << 20)).await.unwrap_err();
        assert!(matches!(error, PublishError::TooLarge { .. }), "{error}");
    });
}

#[test]
fn an_acknowledgement_counts_the_reached_subscriptions() {
    in_virtual_time(async {
        let party = Party::new().await;
        let client = party.client().await;
        assert_eq!(client.publish_acknowledged("a", "").await.unwrap(), Some(0));
        let _subscriptions = (
            client.subscribe("a").await.unwrap(),
            client.subscribe("*").group("g").await.unwrap(),
            client.subscribe("*").group("g").await.unwrap(),
        );
        assert_eq!(client.publish_acknowledged("a", "").await.unwrap(), Some(2));
        assert_eq!(party.broker.publish("a", "").await.unwrap(), 2);
    });
}

#[test]
fn each_message_reaches_one_member_of_a_group() {
    in_virtual_time(async {
        let party = Party::new().await;
        let (one, other) = (party.client().await, party.client().await);
        let mut first = one.subscribe("jobs").group("workers").await.unwrap();
        let mut second = other.subscribe("jobs").group("workers").await.unwrap();
        let mut watcher = other.subscribe("jobs").await.unwrap();
        for number in 0..6 {
            one.publish("jobs", number.to_string()).await.unwrap();
        }
        assert_eq!((heard(&mut first).await, heard(&mut second).await), ("0 2 4".into(), "1 3 5".into()));
        assert_eq!(heard(&mut watcher).await, numbers(0, 6));
    });
}

#[test]
fn full_group_members_are_skipped() {
    in_virtual_time(async {
        let party = Party::new().await;
        let client = party.client().await;
        let mut busy = client.subscribe("jobs").group("workers").window(1).await.unwrap();
        let mut idle = client.subscribe("jobs").group("workers").await.unwrap();
        for number in 0..7 {
            party.broker.publish("jobs", number.to_string()).await.unwrap();
        }
        assert_eq!(heard(&mut idle).await, "1 2 3 4 5 6");
        assert_eq!(heard(&mut busy).await, "0");
    });
}

/// Returns a group of two members, each with room for one message and five more messages queued.
async fn full_group(party: &Party) -> [(Client, Subscription); 2] {
    let mut members = Vec::new();
    for _ in 0..2 {
        let client = party.client().await;
        let subscription = client.subscribe("jobs").group("workers").window(1).await.unwrap();
        members.push((client, subscription));
    }
    for number in 0..12 {
        party.broker.publish("jobs", number.to_string()).await.unwrap();
    }
    members.try_into().unwrap()
}

#[test]
fn messages_queued_for_a_leaving_member_are_redelivered() {
    in_virtual_time(async {
        let party = Party::new().await;
        let [first, (client, mut second)] = full_group(&party).await;
        assert!(party.broker.metrics().queued_len > 0);
        drop(first);
        assert_eq!(heard(&mut second).await, "1 3 5 7 9 11 2 4 6 8 10", "all but the one that was sent");
        drop((client, second));
        settle().await;
        let [(_client, first), (_other, mut second)] = full_group(&party).await;
        drop(first);
        assert_eq!(heard(&mut second).await, "1 3 5 7 9 11 2 4 6 8 10", "its connection is still there");
        assert_eq!((party.broker.metrics().missing, party.broker.metrics().queued_len), (0, 0));
    });
}

#[test]
fn messages_queued_for_the_last_member_count_as_missing() {
    in_virtual_time(async {
        let party = Party::new().await;
        drop(full_group(&party).await);
        settle().await;
        let metrics = party.broker.metrics();
        assert_eq!((metrics.missing, metrics.queued_len, metrics.patterns), (10, 0, 0));
    });
}

#[test]
fn requests_without_responders_fail_immediately() {
    in_virtual_time(async {
        let party = Party::new().await;
        let (asking, answering) = (party.client().await, party.client().await);
        let begun = Instant::now();
        let error = asking.request("time", "?").await.unwrap_err();
        assert!(matches!(error, RequestError::NoResponders), "{error}");
        assert_elapsed(begun, Duration::ZERO);

        let mut requests = answering.subscribe("time").await.unwrap();
        let server = tokio::spawn(async move {
            while let Some(request) = requests.next_message().await {
                if request.payload != "quiet" {
                    answering.respond(&request, request.payload.repeat(2)).await.unwrap();
                }
            }
        });
        let (one, other) = tokio::join!(asking.request("time", "a"), asking.request("time", "b"));
        assert_eq!((&*one.unwrap().payload, &*other.unwrap().payload), (&b"aa"[..], &b"bb"[..]));

        let begun = Instant::now();
        let error = asking.with_request_limit(3 * SECOND).request("time", "quiet").await.unwrap_err();
        assert!(matches!(error, RequestError::TimedOut), "{error}");
        assert_elapsed(begun, 3 * SECOND);
        server.abort();
    });
}

#[test]
fn the_retained_value_is_delivered_first_and_once() {
    in_virtual_time(async {
        let party = Party::new().await;
        let client = party.client().await;
        for (subject, payload) in [("status.a", "1"), ("status.b", "2"), ("status.a", "3"), ("other", "4")] {
            client.send_acknowledged(Publication::new(subject, payload).retain()).await.unwrap();
        }
        let mut subscription = client.subscribe("status.*").await.unwrap();
        client.send(Publication::new("status.a", "5").retain()).await.unwrap();
        assert_eq!(heard(&mut subscription).await, "(3) (2) 5");
        client.send(Publication::new("status.b", "").retain()).await.unwrap();
        settle().await;
        let mut late = client.subscribe(">").await.unwrap();
        assert_eq!(heard(&mut late).await, "(4) (5)");
        assert_eq!(party.broker.metrics().retained, 2);
    });
}

#[test]
fn retained_values_without_space_are_rejected() {
    in_virtual_time(async {
        let party = Party::with(BrokerLimits { retained_max: 1, ..BrokerLimits::default() }).await;
        let client = party.client().await;
        client.send_acknowledged(Publication::new("a", "1").retain()).await.unwrap();
        let error = client.send_acknowledged(Publication::new("b", "2").retain()).await.unwrap_err();
        assert!(
            matches!(&error, PublishError::Refused(refusal) if refusal.code == RefusalCode::LimitReached),
            "{error}"
        );
    });
}

#[test]
fn unauthorized_actions_are_rejected_with_the_reason() {
    in_virtual_time(async {
        let authorize = |_: &Connection, action, subject: &str| match action {
            Action::Publish if subject.starts_with("system.") => Err("only the system does that".into()),
            Action::Subscribe if subject.contains('>') => Err("not everything".into()),
            Action::Retain => Err("nothing is kept".into()),
            _ => Ok(()),
        };
        let party = Party::of(Broker::builder().authorize(authorize).build()).await;
        let client = party.client().await;
        let mut subscription = client.subscribe("*.*").await.unwrap();
        for _ in 0..2 {
            let error = client.publish_acknowledged("system.halt", "").await.unwrap_err();
            assert_eq!(error.to_string(), "the broker denied permission: only the system does that");
        }
        let error = client.send_acknowledged(Publication::new("a.b", "1").retain()).await.unwrap_err();
        assert_eq!(error.to_string(), "the broker denied permission: nothing is kept");
        let error = client.subscribe("a.>").await.unwrap_err();
        assert!(matches!(&error, SubscribeError::Refused(refusal) if refusal.code == RefusalCode::Denied), "{error}");
        client.publish("system.halt", "1").await.unwrap();
        client.publish_acknowledged("a.b", "2").await.unwrap();
        party.broker.publish("system.halt", "3").await.unwrap();
        assert_eq!(heard(&mut subscription).await, "2 3", "the process itself may do everything");
    });
}

#[test]
fn unawaited_rejections_show_at_flush_and_in_metrics() {
    in_virtual_time(async {
        let authorize = |_: &Connection, _, subject: &str| match subject {
            "secret" => Err("not for you".to_owned()),
            _ => Ok(()),
        };
        let party = Party::of(Broker::builder().authorize(authorize).build()).await;
        let client = party.client().await;
        for subject in ["open", "secret", "open", "secret", "open"] {
            client.publish(subject, "").await.unwrap();
        }
        let error = client.flush().await.unwrap_err();
        assert_eq!(error.to_string(), "the broker denied permission: not for you");
        client.flush().await.expect("it was told once");
        client.publish("open", "").await.unwrap();
        client.flush().await.expect("nothing of it was refused");
        let error = client.publish_acknowledged("secret", "").await.unwrap_err();
        assert!(matches!(error, PublishError::Refused(_)), "{error}");
        client.flush().await.expect("that was told already");
        assert_eq!(party.broker.metrics().refused, 3);
    });
}

#[test]
fn in_process_clients_can_have_an_identity() {
    struct Name(&'static str);
    in_virtual_time(async {
        let authorize = |connection: &Connection, _, subject: &str| match connection.state() {
            Some(Name(name)) if subject.starts_with(name) => Ok(()),
            _ => Err("it is somebody else's".to_owned()),
        };
        let broker = Broker::builder().authorize(authorize).build();
        let (ada, bob) = (broker.client_as(Name("ada")).await.unwrap(), broker.client_as(Name("bob")).await.unwrap());
        let anybody = broker.client().await.unwrap();
        let mut messages = bob.subscribe("bob.>").await.unwrap();
        bob.publish_acknowledged("bob.home", "1").await.unwrap();
        for client in [ada.clone(), anybody] {
            assert!(client.publish_acknowledged("bob.home", "2").await.is_err());
            assert!(client.subscribe("bob.>").await.is_err());
        }
        ada.publish_acknowledged("ada.home", "3").await.unwrap();
        assert_eq!(heard(&mut messages).await, "1");
    });
}

#[test]
fn authorization_may_publish_with_its_own_broker() {
    in_virtual_time(async {
        let ours = Arc::new(OnceLock::<Broker>::new());
        let authorize = {
            let ours = ours.clone();
            move |_: &Connection, action, subject: &str| {
                let broker = ours.get().expect("it is made");
                broker.try_publish("audit", format!("{action:?}:{subject}:{}", broker.metrics().patterns)).unwrap();
                broker.try_send(Publication::new("last", subject.to_owned()).retain()).unwrap();
                Ok(())
            }
        };
        let party = Party::of(Broker::builder().authorize(authorize).build()).await;
        ours.set(party.broker.clone()).unwrap();
        let client = party.client().await;
        let mut audit = client.subscribe("audit").await.unwrap();
        client.publish("a", "").await.unwrap();
        client.send_acknowledged(Publication::new("b", "1").retain()).await.unwrap();
        client.subscribe(">").await.unwrap();
        assert_eq!(heard(&mut audit).await, "Publish:a:1 Publish:b:1 Retain:b:1 Subscribe:>:1");
    });
}

#[test]
fn unauthorized_values_are_not_retained() {
    in_virtual_time(async {
        let authorize = |_: &Connection, action, _: &str| match action {
            Action::Publish => Err("nobody publishes".into()),
            _ => Ok(()),
        };
        let party = Party::of(Broker::builder().authorize(authorize).build()).await;
        let client = party.client().await;
        let error = client.send_acknowledged(Publication::new("a.b", "1").retain()).await.unwrap_err();
        assert_eq!(error.to_string(), "the broker denied permission: nobody publishes");
        assert_eq!(party.broker.metrics().retained, 0);
        assert_eq!(heard(&mut client.subscribe("a.*").await.unwrap()).await, "");
    });
}

#[test]
fn authorization_is_cached_until_cleared() {
    in_virtual_time(async {
        let (may, asked) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        let authorize = {
            let (may, asked) = (may.clone(), asked.clone());
            move |_: &Connection, _, _: &str| {
                asked.fetch_add(1, Ordering::Relaxed);
                if may.load(Ordering::Relaxed) { Ok(()) } else { Err("not now".into()) }
            }
        };
        let party = Party::of(Broker::builder().authorize(authorize).build()).await;
        let client = party.client().await;
        for _ in 0..10 {
            client.publish_acknowledged("a", "").await.unwrap();
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        may.store(false, Ordering::Relaxed);
        client.publish_acknowledged("a", "").await.unwrap();
        party.broker.reauthorize();
        assert!(client.publish_acknowledged("a", "").await.is_err());
    });
}

#[test]
fn subscriptions_of_a_connection_are_limited() {
    in_virtual_time(async {
        let party =
            Party::with(BrokerLimits { subscriptions_max: 2, patterns_max: 3, ..BrokerLimits::default() }).await;
        let (one, other) = (party.client().await, party.client().await);
        let first = one.subscribe("a").await.unwrap();
        let _second = one.subscribe("b").await.unwrap();
        let error = one.subscribe("c").await.unwrap_err();
        assert!(error.to_string().contains("subscriptions_max"), "{error}");
        let _third = other.subscribe("c").await.unwrap();
        let error = other.subscribe("d").await.unwrap_err();
        assert!(error.to_string().contains("patterns_max"), "{error}");
        drop(first);
        settle().await;
        let _fourth = other.subscribe("d").await.unwrap();
        assert_eq!(party.broker.metrics().patterns, 3);
    });
}

#[test]
fn pattern_shapes_are_limited() {
    in_virtual_time(async {
        let party = Party::with(BrokerLimits { shapes_max: 2, all_shapes_max: 3, ..BrokerLimits::default() }).await;
        let (one, other) = (party.client().await, party.client().await);
        let first = one.subscribe("*.a").await.unwrap();
        let _second = one.subscribe("a.*").await.unwrap();
        let _same = (one.subscribe("*.b.c").await.unwrap(), one.subscribe("a.b.>").await.unwrap());
        let error = one.subscribe("*.*").await.unwrap_err();
        assert!(error.to_string().contains("(shapes_max)"), "{error}");
        let _third = other.subscribe("*.*").await.unwrap();
        let error = other.subscribe("a.b.*").await.unwrap_err();
        assert!(error.to_string().contains("(all_shapes_max)"), "{error}");
        let _fourth = other.subscribe("*.a").await.unwrap();
        drop((first, _same));
        settle().await;
        let _fifth = one.subscribe("*.*.>").await.unwrap();
    });
}

#[test]
fn closing_a_client_flushes_and_ends_its_subscriptions() {
    in_virtual_time(async {
        let party = Party::new().await;
        let (one, other) = (party.client().await, party.client().await);
        let (mut own, mut others) = (one.subscribe("a").await.unwrap(), other.subscribe("a").await.unwrap());
        one.publish("a", "1").await.unwrap();
        one.close().await;
        assert_eq!(heard(&mut others).await, "1");
        while own.next().await.is_some() {}
        assert!(matches!(own.end(), Some(SubscriptionEnd::Closed)));
        assert!(matches!(one.publish("a", "2").await, Err(PublishError::Closed)));
        assert!(matches!(one.subscribe("a").await, Err(SubscribeError::Closed)));
        assert_eq!(party.broker.metrics().patterns, 1);
    });
}

#[test]
fn a_subscription_outlives_the_handle_of_its_client() {
    in_virtual_time(async {
        let party = Party::new().await;
        let client = party.client().await;
        let mut subscription = client.subscribe("a").await.unwrap();
        drop(client);
        party.broker.publish("a", "1").await.unwrap();
        assert_eq!(heard(&mut subscription).await, "1");
        drop(subscription);
        settle().await;
        assert!(party.server.connections().is_empty(), "and the connection does not outlive both");
        assert_eq!(party.broker.metrics().patterns, 0);
    });
}

#[test]
fn invalid_subjects_and_patterns_are_not_sent() {
    in_virtual_time(async {
        let party = Party::new().await;
        let client = party.client().await;
        assert!(matches!(client.publish("a.*", "").await, Err(PublishError::InvalidSubject(_))));
        assert!(matches!(client.subscribe("a..b").await, Err(SubscribeError::InvalidPattern(_))));
        assert!(matches!(client.subscribe("a").group("two.tokens").await, Err(SubscribeError::InvalidPattern(_))));
        assert!(matches!(client.request("", "").await, Err(RequestError::Publish(PublishError::InvalidSubject(_)))));
    });
}
