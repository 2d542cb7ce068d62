//! Unknown fields and enum names in params.

use frpc::Server;
use frpc_jsonrpc::{JsonRpc, JsonRpcSettings};
use serde_json::{Value, json};
use support::{
    ThreadLog, in_virtual_time,
    paint::{Echo, PainterServer},
};
use tracing::Level;

use crate::caller::{Caller, error};

fn serve(wire: JsonRpc) -> Server {
    Server::builder().wire(wire).add_service(PainterServer::new(Echo)).without_listener().unwrap()
}

/// Params with an unknown name, and its path.
fn unknown() -> [(Value, &'static str); 3] {
    [
        (json!({"name": "a", "parts": [{"nmae": "b"}]}), "paint.Wall.parts[0].nmae: "),
        (json!({"color": "COLOR_ODD"}), "paint.Wall.color: "),
        (json!(["a", "COLOR_ODD"]), "paint.Wall.color: "),
    ]
}

#[test]
fn a_strict_server_refuses_unknown_names_with_their_path() {
    in_virtual_time(async {
        let server =
            serve(JsonRpc::new().settings(JsonRpcSettings { strict_json: true, ..JsonRpcSettings::default() }));
        let mut caller = Caller::connect(&server);
        for (params, path) in unknown() {
            let answer = caller.ask("paint.Painter/Paint", params).await;
            assert_eq!(error(&answer), (-32602, "invalid_argument"));
            assert!(answer["error"]["message"].as_str().unwrap().contains(path), "{answer}");
        }
        let known = json!({"name": "a", "color": "COLOR_RED"});
        assert_eq!(caller.ask("paint.Painter/Paint", known.clone()).await["result"], known);
    });
}

#[test]
fn ignored_unknown_names_are_logged_once_per_method() {
    in_virtual_time(async {
        let log = ThreadLog::hear(Level::WARN);
        let server = serve(JsonRpc::new());
        let mut caller = Caller::connect(&server);
        for (params, _) in unknown() {
            let answer = caller.ask("paint.Painter/Paint", params).await;
            assert!(answer.get("result").is_some(), "{answer}");
        }
        let told = log.take();
        assert_eq!(told.len(), 1, "{told:#?}");
        assert!(
            told[0].contains("method=paint.Painter/Paint ") && told[0].contains("paint.Wall.parts[0].nmae: "),
            "{told:#?}"
        );
    });
}
