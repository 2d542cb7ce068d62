//! Settings: the way to a cluster, and the proof that lets a client in.

use std::{fmt, path::PathBuf, time::Duration};

use async_nats::ConnectOptions;
use frisbee_pubsub::Pattern;

use crate::ConnectError;

/// The settings of a connection to NATS. Each has a name in a URL as well, so that a program needs none of this.
///
/// | in the URL | here |
/// |---|---|
/// | `nats://user:password@host`, `nats://token@host` | [`login`](Self::login) |
/// | `?credentials=/run/app.creds` | [`login`](Self::login), as a file with a JWT and a seed |
/// | `?roots=/etc/ca.pem` | [`roots`](Self::roots) |
/// | `?certificate=/etc/app.pem&key=/etc/app.key` | [`identity`](Self::identity) |
/// | `?name=billing` | [`name`](Self::name) |
/// | `?stream=orders.>` (once for each pattern) | [`streams`](Self::streams) |
///
/// ```
/// use frisbee_nats::Options;
///
/// let (servers, options) = Options::from_url("tls://one:4222,tls://two:4222?roots=/etc/ca.pem&stream=orders.>")?;
/// assert_eq!(servers, ["tls://one:4222", "tls://two:4222"]);
/// assert_eq!(options.streams[0].as_str(), "orders.>");
/// # Ok::<(), frisbee_nats::ConnectError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// The name by which the servers list the connection.
    pub name: Option<String>,
    /// The proof of who this is.
    pub login: Option<Login>,
    /// A PEM file with authorities besides those of the system, for `tls://`.
    pub roots: Option<PathBuf>,
    /// The PEM files of a certificate and its key, for servers that ask for one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The subjects that streams of JetStream keep. [`publish_acknowledged`](frisbee_pubsub::Client::publish_acknowledged) waits
    /// until the stream has stored a message of theirs; of others, until the server that this client is connected to has it.
    pub streams: Vec<Pattern>,
    /// The time that an acknowledgement may take, reconnecting included. Default 10 s.
    pub acknowledge_max: Duration,
    /// The time between two PINGs. Default 2 s. A server that leaves three of them unanswered counts as dead.
    pub ping_interval: Duration,
    /// Commands, such as messages to publish, that may wait for the connection. Default 2048. Publishing waits when there are
    /// as many.
    pub commands_max: usize,
}

/// A proof of who a client is.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Login {
    /// A file with a JWT and the seed that belongs to it, as `nsc` makes.
    CredentialsFile(PathBuf),
    /// A seed.
    Seed(String),
    /// A word that the server knows.
    Token(String),
    /// A name and a password.
    Password {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: None,
            login: None,
            roots: None,
            identity: None,
            streams: Vec::new(),
            acknowledge_max: Duration::from_secs(10),
            ping_interval: Duration::from_secs(2),
            commands_max: 2048,
        }
    }
}

impl Options {
    /// Reads a list of servers with commas in between, and the options behind a question mark. Nothing is unescaped: a name or a
    /// password has no `?` or `,` in it, a path no `&`.
    pub fn from_url(url: &str) -> Result<(Vec<String>, Self), ConnectError> {
        let (servers, query) = url.split_once('?').unwrap_or((url, ""));
        let mut options = Self::default();
        let mut addresses = Vec::new();
        for server in servers.split(',') {
            let (address, login) = split_login(server.trim());
            addresses.push(address);
            match (login, &options.login) {
                (Some(login), Some(before)) if login != *before => {
                    return Err(ConnectError::url(url, "its servers have different passwords"));
                }
                (Some(login), _) => options.login = Some(login),
                (None, _) => {}
            }
        }
        let (mut certificate, mut key) = (None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "credentials" => options.login = Some(Login::CredentialsFile(value.into())),
                "roots" => options.roots = Some(value.into()),
                "certificate" => certificate = Some(PathBuf::from(value)),
                "key" => key = Some(PathBuf::from(value)),
                "name" => options.name = Some(value.to_owned()),
                "stream" => {
                    let pattern = Pattern::new(value).map_err(|error| ConnectError::url(url, error.to_string()))?;
                    options.streams.push(pattern);
                }
                _ => return Err(ConnectError::url(url, format!("it has an option {name:?}, which is not known"))),
            }
        }
        options.identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(ConnectError::url(url, "a certificate needs a key, and a key a certificate")),
        };
        Ok((addresses, options))
    }

    pub(crate) async fn build(&self) -> Result<ConnectOptions, ConnectError> {
        let mut built = ConnectOptions::new()
            .subscription_capacity(BURST_MAX)
            .client_capacity(self.commands_max)
            .ping_interval(self.ping_interval)
            .request_timeout(Some(self.attempt_max()));
        if let Some(name) = &self.name {
            built = built.name(name);
        }
        if let Some(roots) = &self.roots {
            built = built.add_root_certificates(roots.clone());
        }
        if let Some((certificate, key)) = &self.identity {
            built = built.add_client_certificate(certificate.clone(), key.clone());
        }
        Ok(match self.login.clone() {
            None => built,
            Some(Login::CredentialsFile(path)) => {
                let read = built.credentials_file(&path).await;
                read.map_err(|error| ConnectError::credentials(&path, error))?
            }
            Some(Login::Seed(seed)) => built.nkey(seed),
            Some(Login::Token(token)) => built.token(token),
            Some(Login::Password { user, password }) => built.user_and_password(user, password),
        })
    }

    /// Returns the time after which a question to JetStream is asked again.
    pub(crate) fn attempt_max(&self) -> Duration {
        self.acknowledge_max.min(ATTEMPT_MAX)
    }

    /// Tells whether a stream keeps what is published under this subject.
    pub(crate) fn is_kept(&self, subject: &str) -> bool {
        self.streams.iter().any(|pattern| pattern.matches(subject))
    }
}

/// Splits the address of a server into one without a password, and the password.
fn split_login(server: &str) -> (String, Option<Login>) {
    let (scheme, rest) = server.split_once("://").unwrap_or(("nats", server));
    match rest.rsplit_once('@') {
        None => (format!("{scheme}://{rest}"), None),
        Some((login, host)) => {
            let login = match login.split_once(':') {
                Some((user, password)) => Login::Password { user: user.to_owned(), password: password.to_owned() },
                None => Login::Token(login.to_owned()),
            };
            (format!("{scheme}://{host}"), Some(login))
        }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CredentialsFile(path) => f.debug_tuple("CredentialsFile").field(path).finish(),
            Self::Seed(_) => f.write_str("Seed(..)"),
            Self::Token(_) => f.write_str("Token(..)"),
            Self::Password { user, .. } => f.debug_struct("Password").field("user", user).finish_non_exhaustive(),
        }
    }
}

/// Messages of one subscription that may wait ahead of its queue. A task moves them there as they come, so there are this
/// many only where the runtime does not run it; more are dropped, which the log tells.
const BURST_MAX: usize = 1 << 20;

/// The time that a server may take to answer for JetStream. It may have died.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_servers_and_options() {
        let (servers, options) = Options::from_url("nats://u:p@a:1,b:2").expect("it is good");
        assert_eq!(servers, ["nats://a:1", "nats://b:2"]);
        assert_eq!(options.login, Some(Login::Password { user: "u".into(), password: "p".into() }));
        let (_, options) = Options::from_url("tls://t@a").expect("it is good");
        assert_eq!(options.login, Some(Login::Token("t".into())));
        let url = "nats://a:1, nats://b:2?name=x&credentials=/c&certificate=/d&key=/e&roots=/f&stream=a.>&stream=b";
        let (servers, options) = Options::from_url(url).expect("it is good");
        assert_eq!(servers, ["nats://a:1", "nats://b:2"]);
        assert_eq!(options.name.as_deref(), Some("x"));
        assert!(matches!(&options.login, Some(Login::CredentialsFile(path)) if path.as_os_str() == "/c"));
        assert_eq!(options.identity, Some(("/d".into(), "/e".into())));
        assert_eq!(options.roots, Some("/f".into()));
        assert!(options.is_kept("a.b") && options.is_kept("b") && !options.is_kept("c"));
    }

    #[test]
    fn a_url_with_mistakes_is_refused_without_its_password() {
        let two = "nats://u:secret@a,nats://u:other@b";
        for bad in ["nats://u:secret@a?x=1", "nats://u:secret@a?stream=a..b", "nats://u:secret@a?key=/e", two] {
            let error = Options::from_url(bad).expect_err("it is bad");
            let text = format!("{error} {error:?}");
            assert!(!text.contains("secret") && !text.contains("other"), "{text}");
        }
    }

    #[test]
    fn no_secret_is_shown() {
        for login in [
            Login::Seed("secret".into()),
            Login::Token("secret".into()),
            Login::Password { user: "ada".into(), password: "secret".into() },
        ] {
            let options = Options { login: Some(login), ..Options::default() };
            assert!(!format!("{options:?}").contains("secret"));
        }
    }
}
