//! The examples of the specification (section 7), verbatim, in every framing and split at every byte.

use serde_json::Value;
use support::in_virtual_time;

use crate::caller::{Caller, serve};

/// Pairs of a message and its answer. `""` stands for no answer.
pub(crate) const EXAMPLES: &[(&str, &str)] = &[
    (
        r#"{"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": 1}"#,
        r#"{"jsonrpc": "2.0", "result": 19, "id": 1}"#,
    ),
    (
        r#"{"jsonrpc": "2.0", "method": "subtract", "params": [23, 42], "id": 2}"#,
        r#"{"jsonrpc": "2.0", "result": -19, "id": 2}"#,
    ),
    (
        r#"{"jsonrpc": "2.0", "method": "subtract", "params": {"subtrahend": 23, "minuend": 42}, "id": 3}"#,
        r#"{"jsonrpc": "2.0", "result": 19, "id": 3}"#,
    ),
    (
        r#"{"jsonrpc": "2.0", "method": "subtract", "params": {"minuend": 42, "subtrahend": 23}, "id": 4}"#,
        r#"{"jsonrpc": "2.0", "result": 19, "id": 4}"#,
    ),
    (r#"{"jsonrpc": "2.0", "method": "update", "params": [1,2,3,4,5]}"#, ""),
    (r#"{"jsonrpc": "2.0", "method": "foobar"}"#, ""),
    (
        r#"{"jsonrpc": "2.0", "method": "foobar", "id": "1"}"#,
        r#"{"jsonrpc": "2.0", "error": {"code": -32601, "message": "Method not found"}, "id": "1"}"#,
    ),
    (
        r#"{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]"#,
        r#"{"jsonrpc": "2.0", "error": {"code": -32700, "message": "Parse error"}, "id": null}"#,
    ),
    (
        r#"{"jsonrpc": "2.0", "method": 1, "params": "bar"}"#,
        r#"{"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null}"#,
    ),
    (
        r#"[
  {"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},
  {"jsonrpc": "2.0", "method"
]"#,
        r#"{"jsonrpc": "2.0", "error": {"code": -32700, "message": "Parse error"}, "id": null}"#,
    ),
    ("[]", r#"{"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null}"#),
    (
        "[1]",
        r#"[
  {"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null}
]"#,
    ),
    (
        "[1,2,3]",
        r#"[
  {"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null},
  {"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null},
  {"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null}
]"#,
    ),
    (
        r#"[
        {"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},
        {"jsonrpc": "2.0", "method": "notify_hello", "params": [7]},
        {"jsonrpc": "2.0", "method": "subtract", "params": [42,23], "id": "2"},
        {"foo": "boo"},
        {"jsonrpc": "2.0", "method": "foo.get", "params": {"name": "myself"}, "id": "5"},
        {"jsonrpc": "2.0", "method": "get_data", "id": "9"}
    ]"#,
        r#"[
        {"jsonrpc": "2.0", "result": 7, "id": "1"},
        {"jsonrpc": "2.0", "result": 19, "id": "2"},
        {"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null},
        {"jsonrpc": "2.0", "error": {"code": -32601, "message": "Method not found"}, "id": "5"},
        {"jsonrpc": "2.0", "result": ["hello", 5], "id": "9"}
    ]"#,
    ),
    (
        r#"[
        {"jsonrpc": "2.0", "method": "notify_sum", "params": [1,2,4]},
        {"jsonrpc": "2.0", "method": "notify_hello", "params": [7]}
    ]"#,
        "",
    ),
];

/// Returns an answer without the `data` of its errors, which the specification leaves to the server.
pub(crate) fn plain(answer: &str) -> Value {
    let mut answer: Value = serde_json::from_str(answer).unwrap_or_else(|error| panic!("{answer:?}: {error}"));
    let answers = match &mut answer {
        Value::Array(answers) => answers.iter_mut().collect(),
        answer => vec![answer],
    };
    for answer in answers {
        if let Some(error) = answer.get_mut("error") {
            let data = error.as_object_mut().unwrap().remove("data");
            assert!(data.is_some_and(|data| data["message"].is_string()), "an error says why");
        }
    }
    answer
}

#[test]
fn values_follow_the_specification_for_any_split() {
    in_virtual_time(async {
        let server = serve();
        for (said, expected) in EXAMPLES {
            for at in 0..=said.len() {
                let mut caller = Caller::connect(&server);
                caller.say(&said[..at]).await;
                support::settle().await;
                caller.say(&said[at..]).await;
                let heard = caller.hear_out().await;
                match *expected {
                    "" => assert_eq!(heard, "", "{said} cut at {at}"),
                    expected => {
                        assert_eq!(heard.matches('\n').count(), 1, "an answer is a line: {heard:?}");
                        assert_eq!(
                            plain(&heard),
                            serde_json::from_str::<Value>(expected).unwrap(),
                            "{said} cut at {at}"
                        );
                    }
                }
            }
        }
    });
}

#[test]
fn lines_are_answered_individually_on_one_connection() {
    in_virtual_time(async {
        let server = serve();
        let mut caller = Caller::connect(&server);
        for (said, expected) in EXAMPLES {
            caller.say(said.replace('\n', " ") + "\n").await;
            if !expected.is_empty() {
                let heard = caller.hear_line().await;
                assert_eq!(plain(&heard), serde_json::from_str::<Value>(expected).unwrap(), "{said}");
            }
        }
        assert_eq!(caller.hear_out().await, "");
    });
}

/// Returns the bodies of answers with headers.
fn bodies(mut heard: &str) -> Vec<&str> {
    let mut bodies = Vec::new();
    while let Some((head, rest)) = heard.split_once("\r\n\r\n") {
        let len: usize = head.strip_prefix("Content-Length: ").unwrap().parse().unwrap();
        let (body, rest) = rest.split_at(len);
        bodies.push(body);
        heard = rest;
    }
    assert_eq!(heard, "");
    bodies
}

#[test]
fn messages_with_headers_are_answered_with_headers() {
    in_virtual_time(async {
        let server = serve();
        let said: Vec<String> =
            EXAMPLES.iter().map(|(said, _)| format!("Content-Length: {}\r\n\r\n{said}", said.len())).collect();
        let said = said.concat();
        let expected: Vec<Value> = EXAMPLES
            .iter()
            .filter(|(_, expected)| !expected.is_empty())
            .map(|(_, expected)| serde_json::from_str(expected).unwrap())
            .collect();
        for at in 0..=said.len() {
            let mut caller = Caller::connect(&server);
            caller.say(&said[..at]).await;
            support::settle().await;
            caller.say(&said[at..]).await;
            let heard = caller.hear_out().await;
            let heard: Vec<Value> = bodies(&heard).into_iter().map(plain).collect();
            assert_eq!(heard, expected, "cut at {at}");
        }
    });
}
