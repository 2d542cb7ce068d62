//! The conformance suite by the authors of Connect, for Connect, gRPC and gRPC-Web: its messages, its communication
//! with our programs, and the service it calls.
//!
//! `connectconformance` starts the program under test once per configuration and writes messages to its standard input.
//! Each message follows its length, four bytes in network byte order.

pub mod client;
mod headers;
pub mod protovalidate;
pub mod service;

use std::io;

use frpc::prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub use headers::{from_metadata, to_metadata};

/// Code generated from the protos of the suite.
pub mod protos {
    #![allow(missing_docs, clippy::large_enum_variant, reason = "these are not ours")]
    frpc::include_proto!("connectrpc.conformance.v1");
}

/// Reads a message from the suite. Returns `None` at the end.
pub async fn read<M: Message + Default>(input: &mut (impl AsyncReadExt + Unpin)) -> io::Result<Option<M>> {
    let len = match input.read_u32().await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        len => len?,
    };
    let mut message = Vec::new();
    input.take(len.into()).read_to_end(&mut message).await?;
    M::decode(&message[..]).map(Some).map_err(io::Error::other)
}

/// Writes a message to the suite.
pub async fn write(output: &mut (impl AsyncWriteExt + Unpin), message: &impl Message) -> io::Result<()> {
    let message = message.encode_to_vec();
    output.write_u32(u32::try_from(message.len()).map_err(io::Error::other)?).await?;
    output.write_all(&message).await?;
    output.flush().await
}
