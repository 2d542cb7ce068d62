//! Redis: the proxy logs in for the client, so that its rights are those of the user in Redis.

use std::io;

use frpc::{Address, ProtocolMatch, Raw, Status};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{ADVICE, Account, Protocol, Socket, begins_with};

/// Sessions of the user of the account. Its rights are in the access control list of Redis.
///
/// The user `default` of Redis must be off: the command `RESET` makes a connection one of that user.
#[derive(Clone, Copy, Debug)]
pub struct Redis;

impl Protocol for Redis {
    async fn log_in(&self, _: &Address, account: &Account, socket: &mut dyn Socket) -> Result<String, Status> {
        let failed = |error: io::Error| Status::unavailable(format!("no answer of Redis: {error}"));
        socket.write_all(&command(&["AUTH", &account.role, &account.password])).await.map_err(failed)?;
        let answer = read_line(socket).await.map_err(failed)?;
        match &answer[..] {
            b"+OK" => Ok(String::new()),
            // The text of Redis may hold names that are none of the business of the client.
            _ => Err(Status::internal(format!("Redis does not accept the proxy as {}", account.role))),
        }
    }

    async fn start(&self, _: &Account, _: &str, _: &mut Raw, _: &mut dyn Socket) -> io::Result<bool> {
        Ok(true)
    }

    fn recognize(&self, first: &[u8]) -> ProtocolMatch {
        // All clients send commands as arrays.
        begins_with(first, b"*")
    }

    async fn refuse(&self, client: &mut Raw) -> io::Result<()> {
        client.write_all(format!("-NOAUTH {ADVICE}\r\n").as_bytes()).await
    }
}

/// Encodes a command.
fn command(words: &[&str]) -> Vec<u8> {
    let mut encoded = format!("*{}\r\n", words.len());
    for word in words {
        encoded += &format!("${}\r\n{word}\r\n", word.len());
    }
    encoded.into_bytes()
}

/// Reads a line, without the bytes after it, which are for the client.
async fn read_line(socket: &mut dyn Socket) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        if line.len() == LINE_LEN_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its line is too long"));
        }
        line.push(socket.read_u8().await?);
    }
    line.truncate(line.len() - 2);
    Ok(line)
}

/// The maximum length of the answer to a login.
const LINE_LEN_MAX: usize = 1024;
