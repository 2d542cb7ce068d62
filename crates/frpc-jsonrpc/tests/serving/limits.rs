//! Limits on memory that a peer can use, and on the time of a connection.

use frpc::{CallSettings, Server, ServerLimits};
use frpc_jsonrpc::JsonRpcSettings;
use serde_json::json;
use support::{
    Gate, SECOND,
    calls::{TestServer, TestService, asking, connect},
    in_virtual_time, settle,
};

use crate::caller::{Caller, error, request, serve_with, wire};

#[test]
fn concurrent_calls_are_limited_and_others_queued() {
    in_virtual_time(async {
        let gate = Gate::default();
        let server = serve_with(
            &TestService::default(),
            wire(&gate).settings(JsonRpcSettings { calls_max: 2, ..JsonRpcSettings::default() }),
        );
        let mut caller = Caller::connect(&server);
        let waits: String = (1..=3).map(|id| request("wait", json!([id]), id)).collect();
        caller.say(waits + &request("sum", json!([1]), 4)).await;
        settle().await;
        gate.open(1);
        assert_eq!(caller.hear().await["id"], 1);
        gate.open(1);
        assert_eq!(caller.hear().await["id"], 2);
        assert_eq!(caller.hear().await["id"], 4);
        gate.open(1);
        assert_eq!(caller.hear().await["id"], 3);
    });
}

#[test]
fn a_batch_waits_for_capacity_for_all_its_calls() {
    in_virtual_time(async {
        let gate = Gate::default();
        let server = serve_with(
            &TestService::default(),
            wire(&gate).settings(JsonRpcSettings { calls_max: 2, ..JsonRpcSettings::default() }),
        );
        let mut caller = Caller::connect(&server);
        let batch = |len: u32| {
            let requests: Vec<String> = (0..len).map(|id| request("sum", json!([1]), id)).collect();
            format!("[{}]", requests.join(","))
        };
        caller.say(request("wait", json!([]), 1) + &batch(2) + &batch(5)).await;
        settle().await;
        gate.open(1);
        assert_eq!(caller.hear().await["id"], 1);
        assert_eq!(caller.hear().await.as_array().unwrap().len(), 2);
        assert_eq!(caller.hear().await.as_array().unwrap().len(), 5);
    });
}

#[test]
fn limits_of_the_server_apply() {
    in_virtual_time(async {
        let (gate, service) = (Gate::default(), TestService::default());
        let builder = || Server::builder().add_service(TestServer::new(service.clone())).wire(wire(&gate));
        let calls = CallSettings { calls_max: Some(2), ..CallSettings::default() };
        let server = builder().calls(calls).without_listener().unwrap();
        let mut caller = Caller::connect(&server);
        caller.say((1..=3).map(|id| request("Test.Say", json!(["wait"]), id)).collect::<String>()).await;
        settle().await;
        assert_eq!(service.log.take(), ["say wait"; 2]);
        service.gate.open(3);
        for id in 1..=3 {
            assert_eq!(caller.hear().await["id"], id);
        }
        service.log.take();
        let limits = ServerLimits { handlers_max: 2, ..ServerLimits::default() };
        let server = builder().limits(limits).without_listener().unwrap();
        let mut callers = [(); 3].map(|()| Caller::connect(&server));
        for caller in &mut callers {
            // A call and a batch: each connection may exceed the limit by one message.
            let batch = format!("[{},{}]", request("wait", json!([1]), 2), request("wait", json!([1]), 3));
            caller.say(request("Test.Say", json!(["wait"]), 1) + &batch + &request("sum", json!([1]), 4)).await;
            settle().await;
        }
        assert_eq!(service.log.take(), ["say wait"; 3]);
        let over_frisbee = asking(&connect(&server).await, "wait");
        settle().await;
        service.gate.open(4);
        gate.open(6);
        for caller in &mut callers {
            let answers = [caller.hear().await, caller.hear().await, caller.hear().await];
            assert!(answers.iter().any(|answer| answer["id"] == 4), "{answers:?}");
            assert!(
                answers.iter().any(|answer| answer.as_array().is_some_and(|batch| batch.len() == 2)),
                "{answers:?}"
            );
        }
        assert_eq!(over_frisbee.await.unwrap().unwrap(), "wait");
    });
}

#[test]
fn the_bytes_of_running_calls_are_limited() {
    in_virtual_time(async {
        let gate = Gate::default();
        let server = serve_with(
            &TestService::default(),
            wire(&gate).settings(JsonRpcSettings { calls_len_max: 1000, ..JsonRpcSettings::default() }),
        );
        let mut caller = Caller::connect(&server);
        caller.say(request("wait", json!(["x".repeat(1000)]), 1) + &request("sum", json!([1]), 2)).await;
        settle().await;
        gate.open(1);
        assert_eq!(caller.hear().await["id"], 1);
        assert_eq!(caller.hear().await["id"], 2);
    });
}

#[test]
fn oversized_batches_and_answers_are_errors() {
    in_virtual_time(async {
        let gate = Gate::default();
        let server = serve_with(
            &TestService::default(),
            wire(&gate).settings(JsonRpcSettings {
                batch_len_max: 3,
                batch_answers_len_max: 1000,
                ..JsonRpcSettings::default()
            }),
        );
        let mut caller = Caller::connect(&server);
        let batch = |requests: &[String]| format!("[{}]", requests.join(","));
        let one = request("wait", json!([]), 1);
        caller.say(batch(&[one.clone(), one.clone(), one.clone(), one])).await;
        assert_eq!(error(&caller.hear().await).0, -32600);
        let large = |id| request("large", json!([900]), id);
        caller.say(batch(&[large(1), large(2), large(3)])).await;
        let answers = caller.hear().await;
        assert!(answers[0]["result"].is_string() && answers[1]["result"].is_string());
        assert_eq!(error(&answers[2]), (-32008, "resource_exhausted"));
        gate.open(2);
        let late = |id| request("wait", json!(["y".repeat(900)]), id);
        caller.say(batch(&[late(1), late(2)])).await;
        let answers = caller.hear().await;
        assert!(answers[0]["result"].is_array());
        assert_eq!((error(&answers[1]), &answers[1]["id"]), ((-32008, "resource_exhausted"), &json!(2)));
    });
}

#[test]
fn calls_have_a_timeout() {
    in_virtual_time(async {
        let wire = wire(&Gate::default())
            .settings(JsonRpcSettings { call_time_max: Some(3 * SECOND), ..JsonRpcSettings::default() });
        let server = serve_with(&TestService::default(), wire);
        let mut caller = Caller::connect(&server);
        for method in ["wait", "Test.Say"] {
            assert_eq!(error(&caller.ask(method, json!(["wait"])).await), (-32004, "deadline_exceeded"), "{method}");
        }
    });
}

#[test]
fn messages_must_be_complete_within_the_timeout() {
    in_virtual_time(async {
        let server = serve_with(
            &TestService::default(),
            wire(&Gate::default())
                .settings(JsonRpcSettings { message_time_max: 3 * SECOND, ..JsonRpcSettings::default() }),
        );
        for said in ["{\"jsonrpc\"", "Content-Length: 10\r\n\r\n{", "Content-Len"] {
            let mut caller = Caller::connect(&server);
            caller.say(said).await;
            let heard = caller.hear_all().await;
            assert!(heard.contains("-32700") && heard.contains("was not complete within 3s"), "{said}: {heard}");
        }
        let mut caller = Caller::connect(&server);
        for id in 0..5 {
            let request = request("sum", json!([1]), id);
            let (one, two) = request.split_at(9);
            caller.say(one).await;
            tokio::time::sleep(2 * SECOND).await;
            caller.say(two).await;
            assert_eq!(caller.hear().await["id"], id, "each message has its own time");
        }
    });
}

#[test]
fn idle_connections_are_closed_if_configured() {
    in_virtual_time(async {
        let gate = Gate::default();
        let server = serve_with(
            &TestService::default(),
            wire(&gate).settings(JsonRpcSettings { idle_max: Some(5 * SECOND), ..JsonRpcSettings::default() }),
        );
        let mut caller = Caller::connect(&server);
        for _ in 0..5 {
            assert_eq!(caller.ask("sum", json!([1])).await["result"], 1);
            tokio::time::sleep(4 * SECOND).await;
        }
        caller.say(request("wait", json!([]), 1)).await;
        tokio::time::sleep(20 * SECOND).await;
        gate.open(1);
        assert_eq!(caller.hear().await["id"], 1, "a call that runs is not idle");
        assert_eq!(caller.hear_all().await, "");
    });
}
