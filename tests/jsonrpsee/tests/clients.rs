//! Clients of jsonrpsee call functions and services over HTTP and WebSocket.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::time::Duration;

use frpc::{Address, Server};
use jsonrpsee_core::{
    client::{ClientT, Error, Subscription, SubscriptionClientT},
    params::{ArrayParams, BatchRequestBuilder, ObjectParams},
    rpc_params,
};
use jsonrpsee_http_client::HttpClientBuilder;
use jsonrpsee_ws_client::{WsClient, WsClientBuilder};
use serde_json::{Value, json};
use support::in_real_time_within;

/// Serves functions and services. Runs the test with the server's URL up to the path, in a scheme.
fn with_server<F: Future<Output = ()>>(scheme: &str, test: impl FnOnce(String) -> F) {
    in_real_time_within(Duration::from_secs(60), async {
        let server: Server = foreign::serve().await.unwrap();
        let Address::Tcp(address) = server.local_addr() else { panic!("it has no port") };
        test(format!("{scheme}://{address}/rpc")).await;
    });
}

async fn websocket(url: String) -> WsClient {
    WsClientBuilder::new().build(url).await.unwrap()
}

async fn calls(client: &impl ClientT) {
    let sum: i64 = client.request("sum", rpc_params![1, 2]).await.unwrap();
    assert_eq!(sum, 3);
    let mut by_name = ObjectParams::new();
    by_name.insert("b", 2).unwrap();
    by_name.insert("a", 40).unwrap();
    assert_eq!(client.request::<i64, _>("sum", by_name).await.unwrap(), 42);
    let long = "ü☺\"\\\n".repeat(20_000);
    assert_eq!(client.request::<String, _>("echo", rpc_params![&long]).await.unwrap(), long);

    let hello: Value = client.request("helloworld.Greeter/SayHello", rpc_params!["jsonrpsee"]).await.unwrap();
    assert_eq!(hello, json!({"message": "Hello jsonrpsee!"}));

    let Err(Error::Call(error)) = client.request::<i64, _>("sum", rpc_params![1, "two"]).await else {
        panic!("it answered")
    };
    assert_eq!(error.code(), -32602);
    assert!(error.message().contains("`b`"), "{error}");
    let Err(Error::Call(error)) = client.request::<i64, _>("nothing", rpc_params![]).await else {
        panic!("it answered")
    };
    assert_eq!(error.code(), -32601);
    let Err(Error::Call(error)) = client.request::<i64, _>("missing", rpc_params![]).await else {
        panic!("it answered")
    };
    let data: Value = serde_json::from_str(error.data().unwrap().get()).unwrap();
    assert_eq!((error.message(), &data["code"]), ("nobody is here", &json!("not_found")));
}

/// Answers arrive in the order of their requests, including errors.
async fn batches(client: &impl ClientT) {
    let mut batch = BatchRequestBuilder::new();
    for number in 0..50 {
        let method = if number == 7 { "nothing" } else { "sum" };
        batch.insert(method, rpc_params![number, number]).unwrap();
    }
    let answers = client.batch_request::<i64>(batch).await.unwrap();
    assert_eq!((answers.num_successful_calls(), answers.num_failed_calls()), (49, 1));
    for (number, answer) in answers.into_iter().enumerate() {
        match answer {
            Ok(sum) => assert_eq!(sum, 2 * i64::try_from(number).unwrap()),
            Err(error) => assert_eq!((number, error.code()), (7, -32601)),
        }
    }
}

async fn notifications(client: &impl ClientT, note: &str) {
    client.notification("note", rpc_params![note]).await.unwrap();
    // Notifications are not acknowledged, so poll for the effect.
    while !client.request::<Vec<String>, _>("notes", rpc_params![]).await.unwrap().contains(&note.to_owned()) {}
}

#[test]
fn the_jsonrpsee_client_calls_over_http() {
    with_server("http", async |url| {
        let client = HttpClientBuilder::new().build(url).unwrap();
        calls(&client).await;
        batches(&client).await;
        notifications(&client, "over HTTP").await;
    });
}

#[test]
fn the_jsonrpsee_client_calls_over_websocket() {
    with_server("ws", async |url| {
        let client = websocket(url).await;
        calls(&client).await;
        batches(&client).await;
        notifications(&client, "over WebSocket").await;
    });
}

#[test]
fn the_jsonrpsee_client_makes_concurrent_calls() {
    with_server("ws", async |url| {
        let client = std::sync::Arc::new(websocket(url).await);
        let calls: Vec<_> = (0..100)
            .map(|number: i64| {
                let client = client.clone();
                tokio::spawn(async move { client.request::<i64, _>("sum", rpc_params![number, 1]).await.unwrap() })
            })
            .collect();
        for (number, call) in (1..).zip(calls) {
            assert_eq!(call.await.unwrap(), number);
        }
    });
}

/// Returns the parameters of a payload stream: their lengths, and the microseconds before each.
fn payloads(sizes: &[i32], interval_us: i32) -> ArrayParams {
    let each: Vec<_> = sizes.iter().map(|size| json!({"size": size, "intervalUs": interval_us})).collect();
    rpc_params!["COMPRESSABLE", each]
}

async fn subscribe(client: &WsClient, params: ArrayParams) -> Subscription<Value> {
    client.subscribe("payloads_subscribe", params, "payloads_unsubscribe").await.unwrap()
}

#[test]
fn a_jsonrpsee_subscription_is_a_service_stream() {
    with_server("ws", async |url| {
        let client = websocket(url).await;
        let mut stream = subscribe(&client, payloads(&[1, 0, 3], 0)).await;
        for body in [json!({"body": "AA=="}), json!({}), json!({"body": "AAAA"})] {
            let answer = stream.next().await.unwrap().unwrap();
            assert_eq!(answer["payload"], body, "{answer}");
        }
    });
}

#[test]
fn the_jsonrpsee_client_unsubscribes_and_continues() {
    with_server("ws", async |url| {
        let client = websocket(url).await;
        let mut stream = subscribe(&client, payloads(&[1], 0)).await;
        // Its answer would take half an hour.
        let endless = subscribe(&client, payloads(&[1], 1_800_000_000)).await;
        endless.unsubscribe().await.unwrap();
        assert!(stream.next().await.unwrap().is_ok());
        stream.unsubscribe().await.unwrap();
        assert_eq!(client.request::<i64, _>("sum", rpc_params![1, 2]).await.unwrap(), 3);
    });
}
