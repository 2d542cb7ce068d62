//! Malicious peers, and our decisions where the specification is silent.

use frpc_jsonrpc::JsonRpcSettings;
use serde_json::json;
use support::{Gate, calls::TestService, in_virtual_time, settle};

use crate::caller::{Caller, error, serve, serve_with, wire};

#[test]
fn ids_are_returned_byte_for_byte() {
    in_virtual_time(async {
        let server = serve();
        let mut caller = Caller::connect(&server);
        for id in ["1", "-0", "1.50", "1e400", "123456789012345678901234567890", "\"\"", "\"\\u00e4 ü\\n\"", "null"] {
            for (method, part) in [("sum", "\"result\":1"), ("Test.Say", "error"), ("nothing", "error")] {
                caller.say(format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":[1],"id":{id}}}"#)).await;
                let answer = caller.hear_line().await;
                assert!(answer.ends_with(&format!(",\"id\":{id}}}")) && answer.contains(part), "{answer}");
            }
        }
    });
}

#[test]
fn params_are_passed_to_functions_unchanged() {
    in_virtual_time(async {
        let server = serve();
        let mut caller = Caller::connect(&server);
        caller.say(r#"{"jsonrpc":"2.0","method":"echo","params":{"a":1,"a":2},"id":1}"#).await;
        assert_eq!(caller.hear().await["result"], json!({"a": 2}), "the function decides");
        caller.say(r#"{"jsonrpc":"2.0","method":"echo","params":null,"id":1}"#).await;
        assert!(caller.hear().await["result"].is_null());
        caller.say(r#"{"jsonrpc":"2.0","method":"Test.Say","params":{"text":"a","text":"b"},"id":1}"#).await;
        assert_eq!(error(&caller.hear().await), (-32602, "invalid_argument"), "a field is there once");
    });
}

#[test]
fn unsolicited_answers_are_ignored() {
    in_virtual_time(async {
        let server = serve();
        let mut caller = Caller::connect(&server);
        caller
            .say(r#"{"jsonrpc":"2.0","result":1,"id":1} {"jsonrpc":"2.0","error":{},"id":null} [{"result":2}]"#)
            .await;
        assert_eq!(caller.ask("sum", json!([5])).await["result"], 5);
    });
}

#[test]
fn deep_nesting_is_rejected_without_recursion() {
    in_virtual_time(async {
        let server = serve();
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            for depth in [98, 100_000] {
                let nested = format!("{}1{}", open.repeat(depth), close.repeat(depth));
                let said = format!(r#"{{"jsonrpc":"2.0","method":"echo","params":[{nested}],"id":1}}"#);
                let mut caller = Caller::connect(&server);
                let speaking = async { caller.say(said).await };
                speaking.await;
                let answer = caller.hear().await;
                if depth == 98 {
                    assert_eq!(answer["id"], 1);
                } else {
                    assert_eq!(error(&answer).0, -32700);
                    assert!(answer["error"]["data"]["message"].as_str().unwrap().contains("deeper than 100"));
                }
            }
        }
    });
}

#[test]
fn an_oversized_message_ends_the_connection() {
    in_virtual_time(async {
        let server = serve_with(
            &TestService::default(),
            wire(&Gate::default()).settings(JsonRpcSettings { message_len_max: 1000, ..JsonRpcSettings::default() }),
        );
        let long = "x".repeat(1000);
        for said in [
            format!(r#"{{"jsonrpc":"2.0","method":"echo","params":["{long}"],"id":1}}"#),
            format!(r#"{{"jsonrpc":"2.0","method":"echo","params":["{long}"#),
            "Content-Length: 1001\r\n\r\n".to_owned(),
            format!("Content-Length: {}\r\n\r\n", u64::MAX),
            format!("Content-Length: 1{long}\r\n\r\n"),
            format!("Content-Length:{}", " ".repeat(10_000)),
        ] {
            let mut caller = Caller::connect(&server);
            caller.say(&said).await;
            let heard = caller.hear_all().await;
            assert!(heard.contains("-32700"), "{heard}");
        }
    });
}

#[test]
fn invalid_json_is_answered_once() {
    in_virtual_time(async {
        let server = serve();
        for said in [
            "{}}",
            "{\"a\":tru3}",
            "[1,]",
            "{'a':1}",
            "{\"a\":\"\u{1}\"}",
            "[\"\\ud8\"]",
            "[nan]",
            "[01]",
            "[1.e5]",
            "{\"a\" 1}",
            "[-]",
        ] {
            let mut caller = Caller::connect(&server);
            caller.say(said).await;
            caller.say("{\"jsonrpc\":\"2.0\",\"method\":\"sum\",\"params\":[1],\"id\":7}").await;
            let heard = caller.hear_all().await;
            assert_eq!(heard.matches("-32700").count(), 1, "{said}: {heard}");
            assert!(!heard.contains("\"id\":7"), "nothing behind it is executed: {heard}");
        }
        for bytes in [&b"{\"a\":\"\xff\"}"[..], b"{\"a\":\"\xc3", b"{\"\xed\xa0\x80\":1}"] {
            let mut caller = Caller::connect(&server);
            caller.say(bytes).await;
            let heard = caller.hear_out().await;
            assert!(heard.contains("-32700"), "{heard}");
        }
    });
}

#[test]
fn foreign_protocols_are_closed_and_frisbee_is_recognized() {
    in_virtual_time(async {
        let server = serve();
        for said in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"CONNECT x HTTP/1.1\r\n", b"\"text\"", b"5", b"Cookie: 1\r\n"] {
            let mut caller = Caller::connect(&server);
            caller.say(said).await;
            let heard = caller.hear_all().await;
            if said.ends_with(b"HTTP/1.1\r\n\r\n") || said.starts_with(b"CONNECT") {
                assert!(heard.starts_with("HTTP/1.1 400 ") && heard.contains("does not speak HTTP"), "{heard}");
            } else {
                assert_eq!(heard, "", "{}", said.escape_ascii());
            }
        }
        let client = support::calls::connect(&server).await;
        assert_eq!(support::calls::ask(&client, "hi").await.unwrap(), "hi");
    });
}

#[test]
fn reading_pauses_when_answers_are_not_read() {
    in_virtual_time(async {
        let server = serve_with(
            &TestService::default(),
            wire(&Gate::default()).settings(JsonRpcSettings { answers_len_max: 10_000, ..JsonRpcSettings::default() }),
        );
        let mut caller = Caller::with_buffer(&server, 1000);
        let one = crate::caller::request("large", json!([100]), 1);
        let mut said = 0;
        let asking = async {
            loop {
                caller.say(&one).await;
                said += 1;
            }
        };
        let _ = futures_util::future::select(Box::pin(asking), Box::pin(settle())).await;
        assert!((50..500).contains(&said), "{said}");
    });
}
