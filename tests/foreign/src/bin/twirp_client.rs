//! The client that Twirp's clientcompat judges. It makes one call, which its input describes, and writes the encoded answer to its
//! output, or else the code of the error to where errors go.

use std::{
    error::Error,
    io::{Read, Write, stderr, stdin, stdout},
};

use foreign::protos::twirp::clientcompat::{
    ClientCompatMessage, Empty, Req, client_compat_message::CompatServiceMethod,
    compat_service_client::CompatServiceClient,
};
use frpc::{Status, prost::Message};
use frpc_http::TwirpError;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    frpc_http::register();
    let mut input = Vec::new();
    stdin().read_to_end(&mut input)?;
    let asked = ClientCompatMessage::decode(&*input)?;
    let client = CompatServiceClient::connect(format!("twirp+{}", asked.service_address)).await?;
    let answer = match asked.method() {
        CompatServiceMethod::Noop => {
            client.noop_method(Empty::decode(&*asked.request)?).await.map(|answer| answer.get_ref().encode_to_vec())
        }
        CompatServiceMethod::Method => {
            client.method(Req::decode(&*asked.request)?).await.map(|answer| answer.get_ref().encode_to_vec())
        }
    };
    match answer {
        Ok(answer) => stdout().write_all(&answer)?,
        Err(status) => stderr().write_all(code(&status).as_bytes())?,
    }
    Ok(())
}

/// Returns the code as Twirp has it.
fn code(status: &Status) -> String {
    match status.source().and_then(<dyn Error>::downcast_ref::<TwirpError>) {
        Some(error) => error.code().to_owned(),
        None => format!("{:?}", status.code()).to_lowercase(),
    }
}
