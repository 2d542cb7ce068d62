//! Streams of services as subscriptions.

use frpc_jsonrpc::JsonRpcSettings;
use serde_json::json;
use support::{Gate, SECOND, calls::TestService, in_virtual_time, settle};

use crate::caller::{Caller, error, request, serve, serve_with, wire};

#[test]
fn a_stream_becomes_notifications_with_an_end() {
    in_virtual_time(async {
        let server =
            serve_with(&TestService::default(), wire(&Gate::default()).alias("n_subscribe", "calls.Test/Count"));
        let mut caller = Caller::connect(&server);
        for (id, method, name) in [("1", "Test.Count", "Test.Count"), ("2", "n_subscribe", "n_subscription")] {
            assert_eq!(caller.ask(method, json!(["a, b"])).await["result"], id);
            for text in ["a", "b"] {
                let params = json!({"subscription": id, "result": {"text": text}});
                assert_eq!(caller.hear().await, json!({"jsonrpc": "2.0", "method": name, "params": params}));
            }
            // Ethereum clients would mistake the end for a failure.
            if name == method {
                let params = json!({"subscription": id, "end": true});
                assert_eq!(caller.hear().await, json!({"jsonrpc": "2.0", "method": name, "params": params}));
            }
        }
        for id in ["1", "2"] {
            assert_eq!(caller.ask("unsubscribe", json!([id])).await["result"], false);
        }
    });
}

#[test]
fn a_failed_stream_reports_its_error() {
    in_virtual_time(async {
        let server = serve();
        let mut caller = Caller::connect(&server);
        assert_eq!(caller.ask("Test.Count", json!(["a, fail 5 gone"])).await["result"], "1");
        caller.hear().await;
        let end = caller.hear().await;
        assert_eq!(
            (&end["params"]["error"]["code"], &end["params"]["error"]["message"]),
            (&json!(-32005), &json!("gone"))
        );
        assert_eq!(error(&caller.ask("Test.Count", json!(["first fail 5 gone"])).await), (-32005, "not_found"));
    });
}

#[test]
fn a_subscription_ends_when_unsubscribed() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve_with(&service, wire(&Gate::default()));
        let mut caller = Caller::connect(&server);
        for (method, params) in [
            ("unsubscribe", json!(["1"])),
            ("any_unsubscribe", json!([2])),
            ("rpc.unsubscribe", json!({"subscription": "3"})),
        ] {
            caller.ask("Test.Count", json!(["wait"])).await;
            settle().await;
            assert_eq!(caller.ask(method, params.clone()).await["result"], true, "{method}");
            assert_eq!(caller.ask(method, params).await["result"], false, "{method}");
            settle().await;
            assert!(service.log.take().iter().any(|event| event.starts_with("dropped count")));
        }
        assert_eq!(error(&caller.ask("unsubscribe", json!([])).await), (-32602, "invalid_argument"));
        assert_eq!(caller.ask("unsubscribe", json!(["x"])).await["result"], false);
    });
}

#[test]
fn an_endless_stream_waits_for_its_reader() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve_with(
            &service,
            wire(&Gate::default()).settings(JsonRpcSettings {
                answers_len_max: 1000,
                write_stall_max: 5 * SECOND,
                ..JsonRpcSettings::default()
            }),
        );
        let mut caller = Caller::with_buffer(&server, 1000);
        caller.say(request("Test.Count", json!(["endless a"]), 1)).await;
        settle().await;
        let made = service.made();
        assert!((10..40).contains(&made), "{made}");
        for _ in 0..100 {
            caller.hear().await;
        }
        assert!(service.made() >= 100);
        assert_eq!(server.metrics().connections, 1);
        tokio::time::sleep(6 * SECOND).await;
        settle().await;
        assert_eq!(server.metrics().connections, 0, "the peer does not read");
    });
}

#[test]
fn subscriptions_are_limited_and_rejected_in_batches() {
    in_virtual_time(async {
        let server = serve_with(
            &TestService::default(),
            wire(&Gate::default()).settings(JsonRpcSettings { subscriptions_max: 1, ..JsonRpcSettings::default() }),
        );
        let mut caller = Caller::connect(&server);
        caller.say(format!("[{}]", request("Test.Count", json!(["wait"]), 1))).await;
        assert_eq!(error(&caller.hear().await[0]), (-32009, "failed_precondition"));
        assert_eq!(caller.ask("Test.Count", json!(["wait"])).await["result"], "1");
        assert_eq!(error(&caller.ask("Test.Count", json!(["wait"])).await), (-32008, "resource_exhausted"));
        let shutdown = tokio::spawn(server.shutdown(9 * SECOND));
        let end = caller.hear().await;
        assert_eq!(end["params"]["error"]["data"]["code"], "unavailable", "{end}");
        assert_eq!(caller.hear_all().await, "");
        assert_eq!(shutdown.await.unwrap(), 0);
    });
}
