//! Methods of services over JSON-RPC.

use frpc_jsonrpc::JsonRpcSettings;
use serde_json::{Value, json};
use support::{Gate, SECOND, calls::TestService, in_virtual_time, settle};

use crate::caller::{Caller, error, request, serve, serve_with, wire};

#[test]
fn methods_accept_several_names_and_kinds_of_params() {
    in_virtual_time(async {
        let gate = Gate::default();
        let server =
            serve_with(&TestService::default(), wire(&gate).alias("say", "calls.Test/Say").alias("add", "sum"));
        let mut caller = Caller::connect(&server);
        for method in ["calls.Test/Say", "calls.Test.Say", "Test.Say", "say"] {
            for params in [json!({"text": "hi"}), json!(["hi"])] {
                let answer = caller.ask(method, params).await;
                assert_eq!(answer, json!({"jsonrpc": "2.0", "result": {"text": "hi"}, "id": 1}), "{method}");
            }
        }
        assert_eq!(caller.ask("add", json!([1, 2])).await["result"], 3);
        assert_eq!(caller.ask("Test.Say", json!([])).await["result"], json!({}));
        caller.say(r#"{"jsonrpc":"2.0","method":"Test.Say","id":1}"#).await;
        assert_eq!(caller.hear().await["result"], json!({}));
        for method in ["Say", "calls.Test", "calls.Test.say", "/calls.Test/Say", ""] {
            assert_eq!(error(&caller.ask(method, json!([])).await), (-32601, "unimplemented"), "{method}");
        }
    });
}

#[test]
fn wrong_params_are_invalid_arguments_and_named() {
    in_virtual_time(async {
        let server = serve();
        let mut caller = Caller::connect(&server);
        let answer = caller.ask("Test.Say", json!({"text": 5})).await;
        assert_eq!(error(&answer), (-32602, "invalid_argument"));
        assert!(answer["error"]["message"].as_str().unwrap().contains("calls.Words.text"), "{answer}");
        let answer = caller.ask("Test.Say", json!(["a", "b"])).await;
        assert_eq!(error(&answer), (-32602, "invalid_argument"));
        assert!(answer["error"]["message"].as_str().unwrap().contains("at most 1 params: text"), "{answer}");
    });
}

#[test]
fn a_status_keeps_its_code_and_panics_are_internal() {
    in_virtual_time(async {
        let gate = Gate::default();
        gate.open(3);
        let server = serve_with(&TestService::default(), wire(&gate));
        let mut caller = Caller::connect(&server);
        let answer = caller.ask("Test.Say", json!(["fail 5 no such order"])).await;
        assert_eq!((error(&answer), &answer["error"]["message"]), ((-32005, "not_found"), &json!("no such order")));
        for method in ["Test.Say", "panic", "wait"] {
            assert_eq!(error(&caller.ask(method, json!(["panic"])).await), (-32603, "internal"), "{method}");
        }
        assert_eq!(error(&caller.ask("wait", json!(["fail"])).await), (-32005, "not_found"));
        assert_eq!(error(&caller.ask("calls.Test/Gather", json!([])).await), (-32601, "unimplemented"));
        assert_eq!(caller.ask("wait", json!(["fine"])).await["result"], json!(["fine"]));
    });
}

#[test]
fn answers_follow_completion_and_lost_callers_keep_slots() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve_with(&service, wire(&Gate::default()));
        let mut caller = Caller::connect(&server);
        caller.say(request("Test.Say", json!(["wait"]), 1) + &request("Test.Say", json!(["hi"]), 2)).await;
        assert_eq!(caller.hear().await["id"], 2);
        service.gate.open(1);
        assert_eq!(caller.hear().await["id"], 1);
        caller.say(request("Test.Say", json!(["wait"]), 3)).await;
        settle().await;
        drop(caller);
        settle().await;
        // The peer may have closed only its sending side and still be waiting.
        assert_eq!(server.metrics().connections, 1);
        service.gate.open(1);
        settle().await;
        assert_eq!(server.metrics().connections, 0);
    });
}

#[test]
fn calls_are_answered_after_a_half_close() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve_with(&service, wire(&Gate::default()));
        let mut caller = Caller::connect(&server);
        caller.say(request("Test.Say", json!(["wait"]), 1) + &request("sum", json!([1]), 2)).await;
        let heard = tokio::spawn(caller.hear_out());
        settle().await;
        service.gate.open(1);
        let heard = heard.await.unwrap();
        assert!(heard.contains(r#""result":1,"id":2"#) && heard.contains(r#""id":1"#), "{heard}");
    });
}

#[test]
fn batches_are_answered_in_order_or_by_completion() {
    in_virtual_time(async {
        for is_in_order in [true, false] {
            let gate = Gate::default();
            let server = serve_with(
                &TestService::default(),
                wire(&gate).settings(JsonRpcSettings { batches_in_order: is_in_order, ..JsonRpcSettings::default() }),
            );
            let mut caller = Caller::connect(&server);
            let batch =
                [request("wait", json!(["a"]), 1), request("sum", json!([2]), 2), request("wait", json!(["c"]), 3)];
            let notification = r#"{"jsonrpc":"2.0","method":"wait"}"#;
            // A batch of notifications has no answer, even if its calls end late.
            caller.say(format!("[{notification}]")).await;
            settle().await;
            gate.open(1);
            settle().await;
            caller.say(format!("[{},{notification}]", batch.join(","))).await;
            settle().await;
            gate.open(3);
            let answer = caller.hear().await;
            let ids: Vec<&Value> = answer.as_array().unwrap().iter().map(|answer| &answer["id"]).collect();
            assert_eq!(ids, if is_in_order { [1, 2, 3] } else { [2, 1, 3] }, "{answer}");
        }
    });
}

#[test]
fn shutdown_answers_running_and_rejected_calls() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve_with(&service, wire(&Gate::default()));
        let mut idle = Caller::connect(&server);
        assert_eq!(idle.ask("sum", json!([1])).await["result"], 1);
        let mut caller = Caller::connect(&server);
        caller.say(request("Test.Say", json!(["wait"]), 1)).await;
        settle().await;
        let shutdown = tokio::spawn(server.shutdown(9 * SECOND));
        assert_eq!(idle.hear_all().await, "");
        settle().await;
        let answer = caller.ask("sum", json!([1])).await;
        assert_eq!(error(&answer), (-32014, "unavailable"));
        service.gate.open(1);
        assert_eq!(caller.hear().await["result"]["text"], "wait");
        assert_eq!(caller.hear_all().await, "");
        assert_eq!(shutdown.await.unwrap(), 0, "no connection had to be cut");
    });
}
