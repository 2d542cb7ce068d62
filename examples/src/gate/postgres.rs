//! PostgreSQL: the startup message of a client, and its refusal by a server.

use std::io;

use frpc::{ProtocolMatch, Raw};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{ADVICE, Account, Protocol, Socket};

/// Sessions of the role and database of the account only.
#[derive(Clone, Copy, Debug)]
pub struct Postgres;

impl Protocol for Postgres {
    async fn start(
        &self,
        account: &Account,
        database: &str,
        client: &mut Raw,
        socket: &mut dyn Socket,
    ) -> io::Result<bool> {
        match Startup::read(client).await? {
            Startup::Session(session) => {
                if let Err(refusal) = session.check(&account.role, database) {
                    refusal.tell(client).await?;
                    return Ok(false);
                }
                socket.write_all(&session.message(&account.role, database)).await?;
            }
            Startup::Cancel(message) => socket.write_all(&message).await?,
        }
        Ok(true)
    }

    fn recognize(&self, first: &[u8]) -> ProtocolMatch {
        match Startup::may_begin_with(first) {
            Some(true) => ProtocolMatch::Yes,
            Some(false) => ProtocolMatch::No,
            None => ProtocolMatch::More,
        }
    }

    async fn refuse(&self, client: &mut Raw) -> io::Result<()> {
        Startup::read(client).await?;
        Refusal::new(NOT_AUTHORIZED, ADVICE).tell(client).await
    }
}

/// The startup message of a PostgreSQL client.
#[derive(Debug)]
enum Startup {
    /// A request for a session.
    Session(Session),
    /// A request to cancel a query of another session, authorized by a secret. Contains the unmodified message.
    Cancel(Vec<u8>),
}

/// The parameters of a session.
#[derive(Debug)]
struct Session {
    version: u32,
    parameters: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The reason for refusing a session: an SQLSTATE and a message.
#[derive(Debug)]
struct Refusal {
    state: &'static str,
    message: String,
}

impl Startup {
    /// Reads the message. Offers of encryption are declined: the underlying connection is encrypted already, or need
    /// not be.
    async fn read(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<Self> {
        for _ in 0..OFFERS_MAX {
            let len = stream.read_u32().await?;
            if !(LEN_MIN..=LEN_MAX).contains(&len) {
                return Err(malformed("its length is out of bounds"));
            }
            let mut content = vec![0; len as usize - size_of::<u32>()];
            stream.read_exact(&mut content).await?;
            let (code, parameters) = content.split_first_chunk().ok_or_else(|| malformed("it has no version"))?;
            match u32::from_be_bytes(*code) {
                SSL_REQUEST | GSSENC_REQUEST => {
                    stream.write_all(b"N").await?;
                    stream.flush().await?;
                }
                CANCEL_REQUEST => return Ok(Self::Cancel([&len.to_be_bytes()[..], &content].concat())),
                version if version >> 16 == 3 => return Session::parse(version, parameters).map(Self::Session),
                _ => return Err(malformed("its version is not known")),
            }
        }
        Err(malformed("it offers encryption again and again"))
    }

    /// Returns whether `first` is the beginning of a startup message, or `None` if more bytes are needed.
    fn may_begin_with(first: &[u8]) -> Option<bool> {
        let Some((len, code)) = first.split_at_checked(size_of::<u32>()) else {
            // A length of at most 10,000 starts with two zero bytes. No frisbee header with a magic number does.
            return if first.iter().take(2).all(|byte| *byte == 0) { None } else { Some(false) };
        };
        let len = u32::from_be_bytes(len.try_into().expect("it was split off with this length"));
        match code.first_chunk() {
            _ if !(LEN_MIN..=LEN_MAX).contains(&len) => Some(false),
            Some(code) => {
                let code = u32::from_be_bytes(*code);
                Some(code >> 16 == 3 || [SSL_REQUEST, GSSENC_REQUEST, CANCEL_REQUEST].contains(&code))
            }
            None => None,
        }
    }
}

impl Session {
    fn parse(version: u32, mut bytes: &[u8]) -> io::Result<Self> {
        let mut string = || {
            let end = bytes.iter().position(|byte| *byte == 0).ok_or_else(|| malformed("a text has no end"))?;
            let text = bytes[..end].to_vec();
            bytes = &bytes[end + 1..];
            Ok::<_, io::Error>(text)
        };
        let mut parameters = Vec::new();
        loop {
            let name = string()?;
            if name.is_empty() {
                break;
            }
            parameters.push((name, string()?));
        }
        if bytes.is_empty() { Ok(Self { version, parameters }) } else { Err(malformed("something follows its end")) }
    }

    /// Refuses parameters beyond the permissions of the caller.
    fn check(&self, role: &str, database: &str) -> Result<(), Refusal> {
        for (name, value) in &self.parameters {
            let allowed: &[u8] = match &name[..] {
                b"user" => role.as_bytes(),
                b"database" => database.as_bytes(),
                // Replication would give access to every database.
                b"replication" => b"false",
                _ => continue,
            };
            if value != allowed {
                let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
                let allowed = String::from_utf8_lossy(allowed);
                return Err(Refusal::new(
                    NOT_AUTHORIZED,
                    format!("{name} \"{value}\" is not what this connection was opened for, which is \"{allowed}\""),
                ));
            }
        }
        Ok(())
    }

    /// Returns the startup message for the database. It is built anew, so that the database reads exactly the checked
    /// values, even if the client sent parameters repeatedly or in another order.
    fn message(&self, role: &str, database: &str) -> Vec<u8> {
        let ours = [(&b"user"[..], role.as_bytes()), (b"database", database.as_bytes())];
        let theirs = self.parameters.iter().map(|(name, value)| (&name[..], &value[..]));
        let theirs = theirs.filter(|(name, _)| !matches!(*name, b"user" | b"database" | b"replication"));
        let mut content = self.version.to_be_bytes().to_vec();
        for (name, value) in ours.into_iter().chain(theirs) {
            content.extend([name, b"\0", value, b"\0"].concat());
        }
        content.push(0);
        prefixed_with_len(&content)
    }
}

impl Refusal {
    fn new(state: &'static str, message: impl Into<String>) -> Self {
        Self { state, message: message.into() }
    }

    /// Sends the refusal to the client and ends the stream.
    async fn tell(&self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let fields = format!("SFATAL\0VFATAL\0C{}\0M{}\0\0", self.state, self.message);
        let message = [b"E", &prefixed_with_len(fields.as_bytes())[..]].concat();
        stream.write_all(&message).await?;
        stream.shutdown().await
    }
}

/// Prepends the length of the message. The length includes itself.
fn prefixed_with_len(content: &[u8]) -> Vec<u8> {
    let len = u32::try_from(content.len() + size_of::<u32>()).expect("what is written here is short");
    [&len.to_be_bytes()[..], content].concat()
}

fn malformed(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("this is no first message of PostgreSQL: {why}"))
}

/// The SQLSTATE for an invalid authorization.
const NOT_AUTHORIZED: &str = "28000";

const SSL_REQUEST: u32 = 80_877_103;
const GSSENC_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;
/// The length of a message with only a length and a code.
const LEN_MIN: u32 = 8;
/// PostgreSQL's own limit.
const LEN_MAX: u32 = 10_000;
/// The maximum number of messages: both kinds of encryption requests and the startup message.
const OFFERS_MAX: usize = 3;
