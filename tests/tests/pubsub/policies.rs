//! Slow subscribers: the effects of each policy on them and on publishers. Every message is accounted for.

use frisbee_pubsub::{BrokerLimits, Client, Policy, Subscription, SubscriptionEnd};
use support::{SECOND, assert_elapsed, in_virtual_time, settle};
use tokio::{task::JoinHandle, time::Instant};

use crate::party::{Party, heard, numbers};

/// Cost of a message with subject `a` and a two-byte payload: number, flags, subject, payload and 64.
const COST: usize = 4 + 1 + 2 + 2 + 64;

const WINDOW: u32 = 5 * 73;

/// Returns a subscriber with room for five messages and five more at the broker.
async fn slow(party: &Party, policy: Policy) -> (Client, Subscription) {
    let client = party.client().await;
    let subscription = client.subscribe(">").policy(policy).window(WINDOW).await.unwrap();
    (client, subscription)
}

async fn small() -> Party {
    Party::with(BrokerLimits { queue_len_max: 5 * COST, ..BrokerLimits::default() }).await
}

async fn publish(party: &Party, from: u32, to: u32) {
    for number in from..to {
        party.broker.publish("a", number.to_string()).await.unwrap();
    }
    settle().await;
}

#[test]
fn drop_newest_reports_losses_in_order() {
    in_virtual_time(async {
        let party = small().await;
        let (_client, mut subscription) = slow(&party, Policy::DropNewest).await;
        publish(&party, 10, 30).await;
        assert_eq!(party.broker.metrics().missing, 10);
        assert_eq!(heard(&mut subscription).await, numbers(10, 20) + " missing:10");
        publish(&party, 30, 33).await;
        assert_eq!(heard(&mut subscription).await, numbers(30, 33));
        assert_eq!(party.broker.metrics().queued_len, 0);
    });
}

#[test]
fn drop_oldest_reports_losses_in_order() {
    in_virtual_time(async {
        let party = small().await;
        let (_client, mut subscription) = slow(&party, Policy::DropOldest).await;
        publish(&party, 10, 30).await;
        assert_eq!(heard(&mut subscription).await, numbers(10, 15) + " missing:10 " + &numbers(25, 30));
        assert_eq!((party.broker.metrics().missing, party.broker.metrics().queued_len), (10, 0));
    });
}

#[test]
fn keep_latest_keeps_the_last_value_of_each_subject() {
    in_virtual_time(async {
        let party = small().await;
        let (_client, mut subscription) = slow(&party, Policy::KeepLatest).await;
        publish(&party, 10, 15).await;
        for number in 20..30 {
            for subject in ["x", "y"] {
                party.broker.publish(subject, format!("{number}{subject}")).await.unwrap();
            }
        }
        assert_eq!(heard(&mut subscription).await, numbers(10, 15) + " missing:9 29x missing:9 29y");
    });
}

#[test]
fn growing_values_stay_within_the_queue_limit() {
    in_virtual_time(async {
        let party = Party::with(BrokerLimits { queue_len_max: 10_000, ..BrokerLimits::default() }).await;
        let (_client, mut subscription) = slow(&party, Policy::KeepLatest).await;
        publish(&party, 10, 15).await;
        for len in [10, 5_000] {
            for subject in ["u", "v", "w", "x", "y", "z"] {
                party.broker.publish(subject, format!("{subject:->len$}")).await.unwrap();
            }
        }
        let queued = party.broker.metrics().queued_len;
        assert!(queued <= 10_000, "{queued} bytes wait");
        let heard = heard(&mut subscription).await.replace('-', "");
        assert_eq!(heard, numbers(10, 15) + " missing:11 z", "each of the others gave way to the next");
    });
}

#[test]
fn blocking_queues_share_the_message_content() {
    in_virtual_time(async {
        let party = Party::with(BrokerLimits { publish_window: 20_000, ..BrokerLimits::default() }).await;
        let mut slow_ones = Vec::new();
        for _ in 0..50 {
            slow_ones.push(slow(&party, Policy::Block).await);
        }
        let publisher = party.client().await;
        let publishing = publishing(publisher, 100);
        settle().await;
        let queued = party.broker.metrics().queued_len;
        assert!((20_000..100_000).contains(&queued), "{queued} bytes wait, which is not 50 times the window");
        drop(slow_ones);
        publishing.await.unwrap();
        settle().await;
        assert_eq!(party.broker.metrics().queued_len, 0);
    });
}

#[test]
fn publishers_wait_while_the_total_queue_limit_is_reached() {
    in_virtual_time(async {
        let party = Party::with(BrokerLimits { queued_len_max: 200_000, ..BrokerLimits::default() }).await;
        let subscriber = party.client().await;
        let mut subscription = subscriber.subscribe("a").policy(Policy::Block).window(10_000).await.unwrap();
        let (publisher, other) = (party.client().await, party.client().await);
        let publishing = publishing(publisher, 2_000);
        settle().await;
        let queued = party.broker.metrics().queued_len;
        assert!((200_000..300_000).contains(&queued), "{queued} bytes wait, of a window of 1 MiB");
        other.publish_acknowledged("b", "").await.expect("it has nothing that waits");
        for number in 0..2_000 {
            let message = subscription.next().await.unwrap().message().expect("nothing is missing");
            assert_eq!(String::from_utf8_lossy(&message.payload).parse(), Ok(number));
        }
        publishing.await.unwrap();
        settle().await;
        assert_eq!(party.broker.metrics().queued_len, 0);
    });
}

#[test]
fn a_disconnected_slow_subscriber_learns_the_reason() {
    in_virtual_time(async {
        let party = small().await;
        let (client, mut subscription) = slow(&party, Policy::Disconnect).await;
        let mut other = client.subscribe("a").await.unwrap();
        publish(&party, 10, 30).await;
        let words = heard(&mut subscription).await;
        assert_eq!(words, numbers(10, 15) + " end: the subscriber took messages too slowly (6 missing)");
        assert!(matches!(subscription.end(), Some(SubscriptionEnd::TooSlow { missing: 6 })));
        assert_eq!(heard(&mut other).await, numbers(10, 30), "on the same connection");
        assert_eq!(party.broker.metrics().patterns, 1);
    });
}

/// Publishes numbered messages of 1,000 bytes.
fn publishing(client: Client, count: u32) -> JoinHandle<()> {
    tokio::spawn(async move {
        for number in 0..count {
            client.publish("a", format!("{number:01000}")).await.unwrap();
        }
    })
}

#[test]
fn publishers_wait_for_a_blocking_subscriber() {
    in_virtual_time(async {
        let party = Party::with(BrokerLimits { publish_window: 20_000, ..BrokerLimits::default() }).await;
        let (publisher, subscriber) = (party.client().await, party.client().await);
        let mut subscription = subscriber.subscribe("a").policy(Policy::Block).window(10_000).await.unwrap();
        let mut fast = subscriber.subscribe("a").await.unwrap();
        let publishing = publishing(publisher.clone(), 500);
        settle().await;
        assert!(!publishing.is_finished());
        let queued = party.broker.metrics().queued_len;
        assert!((8_000..25_000).contains(&queued), "{queued} bytes wait at the broker");
        let seen = heard(&mut fast).await.split(' ').count();
        assert!((20..40).contains(&seen), "a fast subscriber has all {seen} that were published");
        for number in 0..500 {
            let message = subscription.next().await.unwrap().message().expect("nothing is missing");
            assert_eq!(String::from_utf8_lossy(&message.payload).parse(), Ok(number));
        }
        publishing.await.unwrap();
        settle().await;
        assert_eq!((party.broker.metrics().missing, party.broker.metrics().queued_len), (0, 0));
        assert!(publisher.try_publish("a", "more").is_ok(), "the credit came back");
    });
}

#[test]
fn the_broker_process_waits_like_other_publishers() {
    in_virtual_time(async {
        let party = Party::with(BrokerLimits { publish_window: 20_000, ..BrokerLimits::default() }).await;
        let subscriber = party.client().await;
        let mut subscription = subscriber.subscribe("a").policy(Policy::Block).window(10_000).await.unwrap();
        let broker = party.broker.clone();
        let publishing = tokio::spawn(async move {
            for number in 0..100 {
                broker.publish("a", format!("{number:01000}")).await.unwrap();
            }
        });
        settle().await;
        assert!(!publishing.is_finished());
        assert!(party.broker.try_publish("b", "").is_err(), "it has too much under way");
        for number in 0..100 {
            let message = subscription.next().await.unwrap().message().expect("nothing is missing");
            assert_eq!(String::from_utf8_lossy(&message.payload).parse(), Ok(number));
        }
        publishing.await.unwrap();
    });
}

#[test]
fn a_stalled_blocking_subscriber_is_ended() {
    in_virtual_time(async {
        let limits = BrokerLimits { publish_window: 20_000, stall_max: 3 * SECOND, ..BrokerLimits::default() };
        let party = Party::with(limits).await;
        let (publisher, subscriber) = (party.client().await, party.client().await);
        let mut subscription = subscriber.subscribe("a").policy(Policy::Block).window(10_000).await.unwrap();
        let begun = Instant::now();
        publishing(publisher, 200).await.unwrap();
        assert_elapsed(begun, 3 * SECOND);
        let mut got = 0;
        while let Some(event) = subscription.next().await {
            got += u64::from(event.message().is_some());
        }
        let Some(SubscriptionEnd::TooSlow { missing }) = subscription.end() else { panic!("{subscription:?}") };
        assert!(*missing > 0 && got + missing < 200, "{got} and {missing}: the rest came when it was over");
        assert_eq!(party.broker.metrics().queued_len, 0);
    });
}

#[test]
fn a_slow_blocking_subscriber_is_not_ended() {
    in_virtual_time(async {
        let limits = BrokerLimits { publish_window: 20_000, stall_max: 3 * SECOND, ..BrokerLimits::default() };
        let party = Party::with(limits).await;
        let (publisher, subscriber) = (party.client().await, party.client().await);
        let mut subscription = subscriber.subscribe("a").policy(Policy::Block).window(2_000).await.unwrap();
        let publishing = publishing(publisher, 60);
        for _ in 0..60 {
            tokio::time::sleep(SECOND).await;
            assert!(subscription.next().await.unwrap().message().is_some());
        }
        publishing.await.unwrap();
    });
}

#[test]
fn the_total_queue_length_is_limited() {
    in_virtual_time(async {
        let party = Party::with(BrokerLimits { queued_len_max: 50 * COST, ..BrokerLimits::default() }).await;
        let mut subscriptions = Vec::new();
        for _ in 0..20 {
            subscriptions.push(slow(&party, Policy::DropNewest).await);
        }
        publish(&party, 10, 99).await;
        let metrics = party.broker.metrics();
        assert!(metrics.queued_len <= 50 * COST, "{} bytes", metrics.queued_len);
        let mut told = 0;
        for (_, subscription) in &mut subscriptions {
            for word in heard(subscription).await.split(' ') {
                told += word.strip_prefix("missing:").map_or(1, |count| count.parse().unwrap());
            }
        }
        assert_eq!(told, 20 * 89, "each message of each is there or told missing");
    });
}
