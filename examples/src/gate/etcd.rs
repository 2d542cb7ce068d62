//! etcd: the proxy logs in for the client and returns a token, which the client adds to its calls.

use std::io;

use frpc::{Address, Call, Channel, Interceptor, ProtocolMatch, Raw, Status, interceptor};
use frpc_http::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use self::proto::etcdserverpb::{AuthenticateRequest, auth_client::AuthClient};
use super::{ADVICE, Account, Protocol, Socket, begins_with, proto::OpenDatabaseResponse};

/// Generated from the files of etcd in `proto/etcd`.
pub mod proto {
    #![allow(missing_docs, reason = "the schemas are those of etcd")]
    include!(concat!(env!("OUT_DIR"), "/etcd.rs"));
}

/// Sessions with a token for the role of the account, which is a user of etcd.
///
/// etcd must have authentication enabled. Each call is checked by etcd itself: one without the token gets nothing.
#[derive(Clone, Copy, Debug)]
pub struct Etcd;

impl Protocol for Etcd {
    async fn log_in(&self, address: &Address, account: &Account, _: &mut dyn Socket) -> Result<String, Status> {
        let url = format!("grpc://{}", address.to_string().trim_start_matches("tcp://"));
        // A connection of its own: the one of the client has to begin with the bytes of the client.
        let channel = Channel::builder().transport(Client::new()).connect(url).await;
        let channel = channel.map_err(|error| Status::unavailable(error.to_string()))?;
        let request = AuthenticateRequest { name: account.role.clone(), password: account.password.clone() };
        let answer = AuthClient::new(channel).authenticate(request).await;
        let refused = |_| Status::internal(format!("etcd does not accept the proxy as {}", account.role));
        Ok(answer.map_err(refused)?.into_inner().token)
    }

    async fn start(&self, _: &Account, _: &str, client: &mut Raw, socket: &mut dyn Socket) -> io::Result<bool> {
        let mut preface = [0; PREFACE.len()];
        client.read_exact(&mut preface).await?;
        // On the same port, etcd serves plain HTTP/1.1 as well, such as `/metrics` for anyone.
        if preface != *PREFACE {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the client does not speak HTTP/2"));
        }
        socket.write_all(&preface).await?;
        Ok(true)
    }

    fn recognize(&self, first: &[u8]) -> ProtocolMatch {
        begins_with(first, PREFACE)
    }

    async fn refuse(&self, client: &mut Raw) -> io::Result<()> {
        // The SETTINGS that HTTP/2 demands first, then GOAWAY with the advice.
        client.write_all(b"\0\0\0\x04\0\0\0\0\0").await?;
        let len = u32::try_from(8 + ADVICE.len()).expect("the advice is short").to_be_bytes();
        let goaway = [&len[1..], b"\x07\0\0\0\0\0\0\0\0\0", &INADEQUATE_SECURITY.to_be_bytes(), ADVICE.as_bytes()];
        client.write_all(&goaway.concat()).await
    }
}

/// Makes a channel of a connection that has opened etcd. The calls carry the token in `opened`.
///
/// # Errors
///
/// If the token is not a valid text of metadata.
pub async fn channel(raw: Raw, opened: OpenDatabaseResponse) -> Result<Channel, Box<dyn std::error::Error>> {
    let channel = Channel::builder().transport(Client::new().socket(raw)).connect("grpc://etcd").await?;
    Ok(channel.layer(with_token(opened.token)))
}

fn with_token(token: String) -> Interceptor<impl Fn(&mut Call) -> Result<(), Status>> {
    interceptor(move |call: &mut Call| Ok(call.head_mut().metadata_mut().insert("token", &*token)?))
}

/// The first bytes of HTTP/2 from a client.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Error code of HTTP/2: the connection does not meet what the server demands.
const INADEQUATE_SECURITY: u32 = 0xc;
