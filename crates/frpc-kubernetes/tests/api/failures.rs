//! API servers that fail, refuse, lie or send too much.

use std::time::Duration;

use frpc::fleet::Endpoints;
use frpc_kubernetes::ResolverSettings;
use serde_json::{Value, json};
use support::{MILLI, in_real_time};
use tokio::time::{Instant, sleep};

use crate::{Found, fake::FakeApi, hasty, pods, zone};

fn slice(name: &str, version: u64, numbers: std::ops::Range<u16>) -> Value {
    let endpoints: Vec<_> = numbers
        .map(|number| {
            let address = format!("10.1.0.{}", number + 1);
            json!({"addresses": [address], "zone": zone(number)})
        })
        .collect();
    json!({
        "metadata": {"name": name, "resourceVersion": version.to_string()}, "addressType": "IPv4",
        "endpoints": endpoints, "ports": [{"name": "grpc", "port": 7300}]
    })
}

fn list(version: u64, slices: &[Value]) -> String {
    json!({"metadata": {"resourceVersion": version.to_string()}, "items": slices}).to_string()
}

fn event(kind: &str, object: Value) -> String {
    json!({"type": kind, "object": object}).to_string() + "\n"
}

fn at(numbers: std::ops::Range<u16>) -> Endpoints {
    Endpoints::new(pods(numbers))
}

#[test]
fn a_lost_watch_continues_after_the_last_event() {
    in_real_time(async {
        let mut api = FakeApi::listen().await;
        let mut found = Found::by(&api.resolver(hasty()));
        let (first, ()) = tokio::join!(found.next(), api.list(list(5, &[slice("a", 4, 0..1)])));
        assert_eq!(first.unwrap(), at(0..1));
        let script = async {
            let mut watch = api.watch("5").await;
            watch.send(event("MODIFIED", slice("a", 7, 0..2))).await;
            watch.send("{\"type\":\"MODI").await;
            drop(watch);
            // The half event is nothing. It comes again.
            let mut watch = api.watch("7").await;
            watch.send(event("MODIFIED", slice("a", 8, 0..3))).await;
            watch
        };
        let (watch, ()) = tokio::join!(script, found.until(at(0..3)));
        // A regular end is no error, and a bookmark alone moves the version.
        let script = async {
            let mut watch = watch;
            watch.send(event("BOOKMARK", json!({"metadata": {"resourceVersion": "100"}}))).await;
            watch.end().await;
            let mut watch = api.watch("100").await;
            watch.send(event("DELETED", slice("a", 101, 0..3))).await;
            watch
        };
        let (_watch, next) = tokio::join!(script, found.next());
        assert_eq!(next.unwrap(), Endpoints::default());
    });
}

#[test]
fn the_longest_times_mean_no_limit() {
    in_real_time(async {
        let mut api = FakeApi::listen().await;
        let longest = ResolverSettings { answer_max: Duration::MAX, watch_max: Duration::MAX, ..hasty() };
        let mut found = Found::by(&api.resolver(longest));
        let script = async {
            api.list(list(5, &[slice("a", 4, 0..1)])).await;
            let mut watch = api.next().await;
            let event = event("MODIFIED", slice("a", 7, 0..2));
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            assert!(watch.send(&format!("{head}{:x}\r\n{event}\r\n", event.len())).await);
            watch
        };
        let (_watch, ()) = tokio::join!(script, found.until(at(0..2)));
    });
}

#[test]
fn a_version_that_is_gone_makes_a_new_list() {
    in_real_time(async {
        let mut api = FakeApi::listen().await;
        let mut found = Found::by(&api.resolver(hasty()));
        let script = async {
            // Gone in the middle of the pages.
            let page =
                json!({"metadata": {"resourceVersion": "5", "continue": "a+b/c="}, "items": [slice("a", 4, 0..1)]});
            api.list(page.to_string()).await;
            let asked = api.next().await;
            assert_eq!(asked.query, "&limit=50&continue=a%2Bb%2Fc%3D");
            asked.answer(410, "{}").await;
            api.list(list(6, &[slice("a", 4, 0..2)])).await;
        };
        let (first, ()) = tokio::join!(found.next(), script);
        assert_eq!(first.unwrap(), at(0..2));
        let script = async {
            api.next().await.answer(410, "{\"kind\":\"Status\",\"code\":410}").await;
            api.list(list(9, &[slice("b", 8, 2..3)])).await;
            // A watch that ends without any event may not know its version either.
            api.watch("9").await.end().await;
            api.list(list(9, &[slice("b", 8, 2..4)])).await;
        };
        let ((), ()) = tokio::join!(script, found.until(at(2..4)));
    });
}

#[test]
fn refusals_say_what_to_do() {
    in_real_time(async {
        let mut api = FakeApi::listen().await;
        let mut found = Found::by(&api.resolver(hasty()));
        for (status, body, why) in [
            (500, "{\"message\":\"\\u001b[2J\"}", "answered 500: \\u{1b}[2J"),
            (200, "{\"metadata\":\"\\u0007\"}", r#"string "\\u{7}", expected"#),
            (401, "{\"message\":\"Unauthorized\"}", "answered 401: Unauthorized; the token or the client certificate"),
            (403, "{\"message\":\"no\"}", "answered 403: no; the account needs the verbs list and watch"),
            (503, "<html>", "answered 503: "),
            (200, "<html>", "the list is not valid"),
            (200, "{\"metadata\":{\"resourceVersion\":\"1&watch=0\"}}", "the version of the slices is not valid"),
            (200, "{}", "the version of the slices is not valid"),
        ] {
            let (error, ()) = tokio::join!(found.error(), async { api.next().await.answer(status, body).await });
            assert!(error.contains(why), "{error}");
        }
        // An event without an object of the watch, and then all is well.
        let (first, ()) = tokio::join!(found.next(), api.list(list(5, &[slice("a", 4, 0..1)])));
        assert_eq!(first.unwrap(), at(0..1));
        let error = event("ERROR", json!({"kind": "Status", "code": 500, "message": "etcd is gone"}));
        for (line, why) in [
            (error, "answered 500: etcd is gone"),
            (event("RENAMED", json!({})), "unknown type \"RENAMED\""),
            (event("ADDED", json!({})), "has no name"),
            ("nonsense\n".to_owned(), "not valid"),
        ] {
            let is_refused = why.contains("500");
            let (error, watch) = tokio::join!(found.error(), async {
                let mut watch = api.watch("5").await;
                watch.send(line).await;
                watch
            });
            assert!(error.contains(why), "{error}");
            drop(watch);
            if is_refused {
                // The same set again is none.
                let mut next = Box::pin(found.next());
                tokio::select! {
                    next = &mut next => panic!("{next:?}"),
                    () = api.list(list(5, &[slice("a", 4, 0..1)])) => {}
                }
                // The next watch belongs to this future, which must not be dropped before.
                let watch = async { api.watch("5").await };
                let watch = tokio::select! {
                    next = &mut next => panic!("{next:?}"),
                    watch = watch => watch,
                };
                drop(watch);
                assert!(next.await.is_err(), "the watch was cut");
            }
        }
    });
}

#[test]
fn endpoints_and_events_are_limited() {
    in_real_time(async {
        let mut api = FakeApi::listen().await;
        let settings = ResolverSettings { endpoints_max: 3, answer_len_max: 10_000, ..hasty() };
        let mut found = Found::by(&api.resolver(settings));
        let (error, ()) = tokio::join!(found.error(), api.list(list(5, &[slice("a", 4, 0..2), slice("b", 4, 2..4)])));
        assert!(error.contains("more than 3 endpoints"), "{error}");
        let (error, ()) = tokio::join!(found.error(), api.list(vec![b' '; 10_001]));
        assert!(error.contains("longer than 10000 bytes"), "{error}");
        let (first, ()) = tokio::join!(found.next(), api.list(list(5, &[slice("a", 4, 0..2)])));
        assert_eq!(first.unwrap(), at(0..2));
        // A line without an end.
        let (error, watch) = tokio::join!(found.error(), async {
            let mut watch = api.watch("5").await;
            for _ in 0..11 {
                watch.send([b' '; 1000]).await;
            }
            watch
        });
        assert!(error.contains("an event of the watch is longer than 10000 bytes"), "{error}");
        watch.closed().await;
        // Too many endpoints by an event. What was lost is listed again.
        let (error, watch) = tokio::join!(found.error(), async {
            let mut watch = api.watch("5").await;
            watch.send(event("ADDED", slice("b", 6, 2..4))).await;
            watch
        });
        assert!(error.contains("more than 3 endpoints"), "{error}");
        watch.closed().await;
        let ((), ()) = tokio::join!(api.list(list(7, &[slice("b", 7, 2..4)])), found.until(at(2..4)));
    });
}

#[test]
fn a_missing_port_is_an_error_until_it_appears() {
    in_real_time(async {
        let mut api = FakeApi::listen().await;
        let mut found = Found::by(&api.resolver(hasty()));
        let mut other = slice("a", 4, 0..1);
        other["ports"] = json!([{"name": "admin", "port": 9900}]);
        let (error, ()) = tokio::join!(found.error(), api.list(list(5, &[other])));
        assert_eq!(error, "the Service orders has no port \"grpc\", but: admin");
        let script = async {
            let mut watch = api.watch("5").await;
            watch.send(event("MODIFIED", slice("a", 6, 0..1))).await;
            watch
        };
        let (_watch, next) = tokio::join!(script, found.next());
        assert_eq!(next.unwrap(), at(0..1));
    });
}

#[test]
fn a_server_that_only_begins_is_asked_again_after_pauses() {
    in_real_time(async {
        let mut api = FakeApi::listen().await;
        let pause = 20 * MILLI;
        let mut found = Found::by(&api.resolver(ResolverSettings { retry_pause: pause, ..hasty() }));
        let (first, ()) = tokio::join!(found.next(), api.list(list(5, &[slice("a", 4, 0..1)])));
        assert_eq!(first.unwrap(), at(0..1));
        let begun = Instant::now();
        let script = async {
            for _ in 0..5 {
                let mut watch = api.watch("5").await;
                watch.send(event("BOOKMARK", json!({"metadata": {"resourceVersion": "5"}}))).await;
                watch.end().await;
            }
            let mut watch = api.watch("5").await;
            watch.send(event("MODIFIED", slice("a", 7, 0..2))).await;
            watch
        };
        let (_watch, ()) = tokio::join!(script, found.until(at(0..2)));
        assert!(begun.elapsed() >= 5 * pause / 2, "{:?}", begun.elapsed());
    });
}

#[test]
fn lists_end() {
    in_real_time(async {
        let mut api = FakeApi::listen().await;
        let mut found = Found::by(&api.resolver(hasty()));
        let page = |next: &str| json!({"metadata": {"resourceVersion": "5", "continue": next}}).to_string();
        let (error, ()) = tokio::join!(found.error(), async {
            for number in 0..200 {
                api.next().await.answer(200, page(&number.to_string())).await;
            }
        });
        assert!(error.contains("more than 200 pages"), "{error}");
        let (error, ()) = tokio::join!(found.error(), api.list(page(&"x".repeat(5000))));
        assert!(error.contains("continuation of the list"), "{error}");
        // Each part of this answer arrives in time.
        let mut found = Found::by(&api.resolver(ResolverSettings { answer_max: 20 * MILLI, ..hasty() }));
        let drip = async {
            let mut asked = api.next().await;
            asked.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
            while asked.send("1\r\n \r\n").await {
                sleep(MILLI).await;
            }
        };
        let (error, ()) = tokio::join!(found.error(), drip);
        assert!(error.contains("did not end in time"), "{error}");
    });
}
