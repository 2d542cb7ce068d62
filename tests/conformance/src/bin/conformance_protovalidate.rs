//! The program that protovalidate's runner judges: the rules of messages, as checked by frisbee-rpc-validate.

use std::io::{self, Read, Write};

use conformance::protovalidate::{ConformanceRequest, answer};
use frpc::prost::Message;

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let mut request = Vec::new();
    io::stdin().lock().read_to_end(&mut request)?;
    let response = answer(ConformanceRequest::decode(&request[..])?).await;
    io::stdout().lock().write_all(&response.encode_to_vec())
}
