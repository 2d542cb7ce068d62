//! Options of a connection to a cluster: names, logins, TLS and limits.

use std::{fmt, path::PathBuf, time::Duration};

use async_nats::ConnectOptions;
use frisbee_pubsub::Pattern;

use crate::ConnectError;

/// Options of a connection to NATS. Most of them can be part of the URL, so a program needs only a URL.
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
/// use frisbee_pubsub_nats::NatsOptions;
///
/// let (servers, options) = NatsOptions::from_url("tls://one:4222,tls://two:4222?roots=/etc/ca.pem&stream=orders.>")?;
/// assert_eq!(servers, ["tls://one:4222", "tls://two:4222"]);
/// assert_eq!(options.streams[0].as_str(), "orders.>");
/// # Ok::<(), frisbee_pubsub_nats::ConnectError>(())
/// ```
///
/// A time above a year counts as a year.
#[derive(Clone, Debug)]
pub struct NatsOptions {
    /// Connection name, shown in the servers' lists of connections.
    pub name: Option<String>,
    /// Credentials of the client.
    pub login: Option<Login>,
    /// PEM file with certificate authorities for `tls://`, in addition to those of the system.
    pub roots: Option<PathBuf>,
    /// PEM files of a client certificate and its key, for servers that request one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Subjects stored by JetStream streams. For these,
    /// [`publish_acknowledged`](frisbee_pubsub::Client::publish_acknowledged) waits until the stream has stored the
    /// message. For all other subjects it waits until the connected server has received it.
    pub streams: Vec<Pattern>,
    /// Timeout of an acknowledgement, including reconnections. Default 10 s.
    pub acknowledge_max: Duration,
    /// Interval between two PINGs. Default 2 s. After three unanswered PINGs a server counts as dead.
    pub ping_interval: Duration,
    /// Maximum number of commands, such as publications, queued for the connection. Default 2048. When the queue is
    /// full, publishing waits.
    pub commands_max: usize,
}

/// Credentials of a client.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Login {
    /// A file with a JWT and its seed, as created by `nsc`.
    CredentialsFile(PathBuf),
    /// A seed (nkey).
    Seed(String),
    /// A token configured on the server.
    Token(String),
    /// A user name and a password.
    Password {
        /// User name.
        user: String,
        /// Password.
        password: String,
    },
}

impl Default for NatsOptions {
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

impl NatsOptions {
    /// Parses a comma-separated list of servers and the options after the question mark.
    ///
    /// Nothing is unescaped: names and passwords cannot contain `?` or `,`, and paths cannot contain `&`.
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
                _ => return Err(ConnectError::url(url, format!("the option {name:?} is unknown"))),
            }
        }
        options.identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(ConnectError::url(url, "`certificate` and `key` must be set together")),
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

    /// Returns the options with times that can be added to the time of a clock.
    pub(crate) fn within_bounds(self) -> Self {
        Self {
            acknowledge_max: self.acknowledge_max.min(TIME_MAX),
            ping_interval: self.ping_interval.min(TIME_MAX),
            ..self
        }
    }

    /// Returns the timeout of one JetStream request before it is retried.
    pub(crate) fn attempt_max(&self) -> Duration {
        self.acknowledge_max.min(ATTEMPT_MAX)
    }

    /// Returns `true` if a stream stores messages under this subject.
    pub(crate) fn is_stored(&self, subject: &str) -> bool {
        self.streams.iter().any(|pattern| pattern.matches(subject))
    }
}

/// Splits a server address into the address without credentials, and the credentials.
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

/// Maximum number of messages buffered per subscription in `async-nats`. A task moves each message to the
/// subscription's queue as it arrives, so they pile up here only while the runtime does not run that task. Beyond this
/// limit messages are dropped and the log reports it.
const BURST_MAX: usize = 1 << 20;

/// A year: longer than any wait.
const TIME_MAX: Duration = Duration::from_secs(60 * 60 * 24 * 365);

/// Timeout of one JetStream request. The server asked may have died.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_times_can_be_added_to_a_clock() {
        let longest =
            NatsOptions { acknowledge_max: Duration::MAX, ping_interval: Duration::MAX, ..NatsOptions::default() };
        let options = longest.within_bounds();
        for time in [options.acknowledge_max, options.ping_interval] {
            assert!(std::time::Instant::now().checked_add(time).is_some(), "{time:?}");
        }
    }

    #[test]
    fn a_url_has_servers_and_options() {
        let (servers, options) = NatsOptions::from_url("nats://u:p@a:1,b:2").expect("it is good");
        assert_eq!(servers, ["nats://a:1", "nats://b:2"]);
        assert_eq!(options.login, Some(Login::Password { user: "u".into(), password: "p".into() }));
        let (_, options) = NatsOptions::from_url("tls://t@a").expect("it is good");
        assert_eq!(options.login, Some(Login::Token("t".into())));
        let url = "nats://a:1, nats://b:2?name=x&credentials=/c&certificate=/d&key=/e&roots=/f&stream=a.>&stream=b";
        let (servers, options) = NatsOptions::from_url(url).expect("it is good");
        assert_eq!(servers, ["nats://a:1", "nats://b:2"]);
        assert_eq!(options.name.as_deref(), Some("x"));
        assert!(matches!(&options.login, Some(Login::CredentialsFile(path)) if path.as_os_str() == "/c"));
        assert_eq!(options.identity, Some(("/d".into(), "/e".into())));
        assert_eq!(options.roots, Some("/f".into()));
        assert!(options.is_stored("a.b") && options.is_stored("b") && !options.is_stored("c"));
    }

    #[test]
    fn invalid_urls_are_rejected_without_showing_the_password() {
        let two = "nats://u:secret@a,nats://u:other@b";
        for bad in ["nats://u:secret@a?x=1", "nats://u:secret@a?stream=a..b", "nats://u:secret@a?key=/e", two] {
            let error = NatsOptions::from_url(bad).expect_err("it is bad");
            let text = format!("{error} {error:?}");
            assert!(!text.contains("secret") && !text.contains("other"), "{text}");
        }
    }

    #[test]
    fn debug_output_hides_secrets() {
        for login in [
            Login::Seed("secret".into()),
            Login::Token("secret".into()),
            Login::Password { user: "ada".into(), password: "secret".into() },
        ] {
            let options = NatsOptions { login: Some(login), ..NatsOptions::default() };
            assert!(!format!("{options:?}").contains("secret"));
        }
    }
}
