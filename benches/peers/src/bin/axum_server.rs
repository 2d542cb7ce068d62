//! Answers JSON with JSON, like services without a schema, and JSON-RPC's `sum`, alone and in batches.

use std::error::Error;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::post;
use axum::serve::ListenerExt;
use axum::{Json, Router};
use load::{Arguments, ServerArgs, process};
use peers::http::JsonMessage;
use peers::json_rpc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let ServerArgs { addr, sleep } = ServerArgs::parse(Arguments::from_env())?;
    process::raise_open_files_limit()?;
    let listener = peers::listen(addr)?.tap_io(|socket| {
        // A socket closed already reports the error at the next read.
        let _ = socket.set_nodelay(true);
    });
    let app = Router::new().route("/BenchmarkService/Benchmark", post(echo)).route("/rpc", post(rpc)).with_state(sleep);
    axum::serve(listener, app).await?;
    Ok(())
}

async fn echo(State(sleep): State<Duration>, Json(message): Json<JsonMessage>) -> Json<JsonMessage> {
    if !sleep.is_zero() {
        tokio::time::sleep(sleep).await;
    }
    Json(message)
}

async fn rpc(body: Bytes) -> Result<impl IntoResponse, (StatusCode, String)> {
    let mut out = Vec::new();
    json_rpc::answer(&body, &mut out).map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], out))
}
