//! Plain functions on all wires: JSON-RPC over TCP, POST and WebSocket at `/rpc`, and as service methods over frisbee,
//! gRPC and Connect.
//!
//! Usage: `functions [ADDRESS]`, until Ctrl-C.
//!
//! ```text
//! $ echo '{"jsonrpc":"2.0","id":1,"method":"sum","params":[1,2]}' | nc -q1 127.0.0.1 8545
//! $ curl --json '{"jsonrpc":"2.0","id":1,"method":"sum","params":{"a":1,"b":2}}' http://127.0.0.1:8545/rpc
//! $ curl --json '[1, 2]' http://127.0.0.1:8545/frpc.Functions/sum
//! $ python3 examples/python/add_arrays.py 127.0.0.1:8545
//! ```

use std::{
    env,
    error::Error,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use frpc::{ServeError, Server, Status};
use frpc_http::Http;
use frpc_jsonrpc::{Context, Functions, Image, JsonRpc, Tensor, function};
use frpc_services::Reflection;

/// Adds two numbers.
#[function]
fn sum(a: i64, #[default(0)] b: i64) -> Result<i64, Status> {
    a.checked_add(b).ok_or_else(|| Status::out_of_range("the sum has more than 64 bits"))
}

/// Greets the caller after a delay.
#[function]
async fn greet(name: Option<String>, #[default(10)] after_ms: u64, context: &Context) -> String {
    tokio::time::sleep(Duration::from_millis(after_ms.min(1000))).await;
    let peer = context.peer_addr().map_or_else(|| "nowhere".to_owned(), |peer| peer.to_string());
    format!("Hello {} from {peer}!", name.as_deref().unwrap_or("you"))
}

/// The number of visits, shared by all calls.
#[derive(Default)]
struct Visits(AtomicU64);

/// Counts its calls.
#[function]
fn visit(visits: &Visits) -> u64 {
    visits.0.fetch_add(1, Ordering::Relaxed) + 1
}

/// Adds two arrays of the same shape, number by number.
#[function]
fn add_arrays(a: Tensor<f64>, b: Tensor<f64>) -> Result<Tensor<f64>, Status> {
    if a.shape() != b.shape() {
        return Err(Status::invalid_argument(format!("the shapes {:?} and {:?} differ", a.shape(), b.shape())));
    }
    let sums = a.as_slice().iter().zip(b.as_slice()).map(|(a, b)| a + b).collect();
    Ok(Tensor::new(a.shape(), sums)?)
}

/// Describes an image.
#[function(blocking)]
fn inspect(image: Image) -> String {
    format!("{}, {} bytes", image.media_type(), image.data().len())
}

/// Serves all functions at an address.
pub(crate) async fn serve(address: &str) -> Result<Server, ServeError> {
    let functions = Functions::new()
        .about("Functions of the example", env!("CARGO_PKG_VERSION"))
        .state(Visits::default())
        .function(sum)
        .function(greet)
        .function(visit)
        .function(add_arrays)
        .function(inspect);
    let rpc = JsonRpc::new().functions(functions.clone());
    Server::builder()
        .add_services([functions.service(), Reflection::v1().into()])
        .wire(Http::new().mount("/rpc", rpc.clone()))
        .wire(rpc)
        .bind(address)
        .await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::args().nth(1).unwrap_or_else(|| "tcp://127.0.0.1:8545".to_owned());
    let server = serve(&address).await?;
    println!("listening on {}", server.local_addr());
    tokio::signal::ctrl_c().await?;
    server.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
