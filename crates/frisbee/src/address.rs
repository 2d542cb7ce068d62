//! Addresses to listen on or connect to, parsed from strings.

use std::{fmt, io, net::SocketAddr, path::PathBuf, str::FromStr};

/// The address of one end of a connection.
///
/// | text | means |
/// |---|---|
/// | `tcp://127.0.0.1:7300`, `127.0.0.1:7300` | TCP |
/// | `tcp://example.org:7300`, `example.org:7300` | TCP, the name is looked up |
/// | `unix:/run/app.sock` | a Unix socket at that path |
/// | `unix:@app` | a Unix socket in Linux's abstract namespace |
/// | `mem:app` | in this process, without a socket |
/// | `grpc://example.org:443` | a URL of another protocol, for libraries on top with support for it |
///
/// Schemes are case-insensitive: `TCP://` is `tcp://`. A port consists of digits.
///
/// ```
/// use frisbee::Address;
///
/// let address: Address = "unix:@app".parse()?;
/// assert_eq!(address, Address::Abstract("app".into()));
/// assert_eq!("[::1]:80".parse::<Address>()?.to_string(), "tcp://[::1]:80");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// TCP at an IP address.
    Tcp(SocketAddr),
    /// TCP at a host name, resolved at each use.
    Host {
        /// The name.
        name: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket at a path.
    Unix(PathBuf),
    /// A Unix socket in Linux's abstract namespace.
    Abstract(String),
    /// A listener in this process.
    Mem(String),
    /// A URL of another protocol. Frisbee neither connects to it nor listens on it.
    Url(String),
    /// An end without an address: a connecting Unix socket, or a custom stream.
    Unnamed,
}

impl Address {
    /// Returns the IP address and port of a [`Tcp`](Self::Tcp) address.
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(addr) => Some(*addr),
            _ => None,
        }
    }

    /// Splits `HOST:PORT`, the address of a server without its scheme. An IPv6 address is in brackets, which the host
    /// lacks.
    ///
    /// ```
    /// use frisbee::Address;
    ///
    /// assert_eq!(Address::split_host_port("example.org:80")?, ("example.org", 80));
    /// assert_eq!(Address::split_host_port("[fe80::1%eth0]:80")?, ("fe80::1%eth0", 80));
    /// assert!(Address::split_host_port("example.org").is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A part is missing or invalid.
    pub fn split_host_port(text: &str) -> io::Result<(&str, u16)> {
        split_host_port(text).map_err(|why| invalid(text, why.unwrap_or("expected HOST:PORT")))
    }
}

impl Address {
    /// Returns the error for an address not supported on this system, or not by frisbee.
    pub(crate) fn unsupported(&self) -> io::Error {
        if let Self::Url(url) = self {
            let why = format!("{url} is an address of another protocol: frisbee's are {EXPECTED}");
            return io::Error::new(io::ErrorKind::InvalidInput, why);
        }
        io::Error::new(io::ErrorKind::Unsupported, format!("{self} is not available on this system"))
    }
}

impl From<SocketAddr> for Address {
    fn from(addr: SocketAddr) -> Self {
        Self::Tcp(addr)
    }
}

impl FromStr for Address {
    type Err = io::Error;

    fn from_str(text: &str) -> Result<Self, io::Error> {
        let invalid = |why: &str| invalid(text, why);
        let wrong_form = || invalid(&format!("expected {EXPECTED}"));
        let (scheme, rest) = text.split_once(':').unwrap_or_default();
        let scheme = scheme.to_ascii_lowercase();
        match (&*scheme, rest) {
            ("unix", "" | "@") | ("mem", "") => Err(invalid("name missing")),
            ("unix", path) => Ok(match path.strip_prefix('@') {
                Some(name) => Self::Abstract(name.into()),
                None => Self::Unix(path.into()),
            }),
            ("mem", name) => Ok(Self::Mem(name.into())),
            (scheme, rest) if is_foreign_url(scheme, rest) => Ok(Self::Url(format!("{scheme}:{rest}"))),
            (scheme, rest) => {
                let place = rest.strip_prefix("//").filter(|_| scheme == "tcp").unwrap_or(text);
                if let Ok(addr) = place.parse() {
                    return Ok(Self::Tcp(addr));
                }
                let (name, port) = split_host_port(place).map_err(|why| why.map_or_else(wrong_form, invalid))?;
                // An invalid IPv6 address, or one with the name of an interface.
                if name.contains(':') {
                    return Err(wrong_form());
                }
                Ok(Self::Host { name: name.into(), port })
            }
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => write!(f, "tcp://{addr}"),
            Self::Host { name, port } => write!(f, "tcp://{name}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Abstract(name) => write!(f, "unix:@{name}"),
            Self::Mem(name) => write!(f, "mem:{name}"),
            Self::Url(url) => f.write_str(url),
            Self::Unnamed => f.write_str("unnamed"),
        }
    }
}

/// Splits `HOST:PORT`. Returns the fault of a port, or `None` for text of another form.
fn split_host_port(text: &str) -> Result<(&str, u16), Option<&'static str>> {
    let (host, port) = text.rsplit_once(':').ok_or(Some("port missing"))?;
    let host = match host.strip_prefix('[') {
        Some(host) => host.strip_suffix(']').ok_or(None)?,
        None if host.contains(':') => return Err(None),
        None => host,
    };
    if host.is_empty() || host.contains(['/', '[', ']']) {
        return Err(None);
    }
    match port.parse() {
        _ if port.is_empty() => Err(Some("port missing")),
        // Rust parses a number with a sign.
        Ok(number) if !port.starts_with('+') => Ok((host, number)),
        _ => Err(Some("port is not a number up to 65535")),
    }
}

fn invalid(text: &str, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("address {text:?}: {why}"))
}

/// The supported address forms, for error messages.
const EXPECTED: &str = "tcp://HOST:PORT, unix:PATH, unix:@NAME or mem:NAME";

/// Returns `true` for a URL of another protocol. `scheme` and `rest` are the parts before and after its first
/// colon, and `scheme` is in lower case.
fn is_foreign_url(scheme: &str, rest: &str) -> bool {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|first: char| first.is_ascii_lowercase())
            && scheme.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'+' | b'-' | b'.'))
    };
    scheme != "tcp" && is_scheme(scheme) && rest.strip_prefix("//").is_some_and(|place| !place.is_empty())
}

/// A value convertible to an [`Address`]: an address, or text in its syntax.
pub trait ToAddress {
    /// Returns the address, or an error if the text has no valid syntax.
    fn to_address(&self) -> io::Result<Address>;
}

impl ToAddress for Address {
    fn to_address(&self) -> io::Result<Address> {
        Ok(self.clone())
    }
}

impl ToAddress for SocketAddr {
    fn to_address(&self) -> io::Result<Address> {
        Ok(Address::Tcp(*self))
    }
}

impl ToAddress for str {
    fn to_address(&self) -> io::Result<Address> {
        self.parse()
    }
}

impl ToAddress for String {
    fn to_address(&self) -> io::Result<Address> {
        self.parse()
    }
}

impl<T: ToAddress + ?Sized> ToAddress for &T {
    fn to_address(&self) -> io::Result<Address> {
        (**self).to_address()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip_through_text() {
        for text in [
            "tcp://1.2.3.4:5",
            "tcp://localhost:80",
            "unix:/a/b.sock",
            "unix:@name",
            "mem:x",
            "grpc://localhost:443",
            "twirp+https://example.org/prefix",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn schemes_are_case_insensitive() {
        for (text, plain) in [
            ("TCP://1.2.3.4:5", "tcp://1.2.3.4:5"),
            ("Tcp://LOCALHOST:80", "tcp://LOCALHOST:80"),
            ("UNIX:/A/b.sock", "unix:/A/b.sock"),
            ("Unix:@Name", "unix:@Name"),
            ("MEM:X", "mem:X"),
            ("GRPC://Localhost:443", "grpc://Localhost:443"),
            ("Twirp+HTTPS://example.org/Prefix", "twirp+https://example.org/Prefix"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), plain);
            assert_eq!(address, plain.parse().unwrap(), "{text}");
        }
    }

    #[test]
    fn leading_zeros_of_a_port_are_dropped() {
        for text in ["tcp://1.2.3.4:00080", "tcp://h:00080", "[::1]:0080"] {
            let address = text.parse::<Address>().unwrap().to_string();
            assert!(address.ends_with(":80"), "{text}: {address}");
        }
    }

    #[test]
    fn parse_errors_say_why() {
        for (text, why) in [
            ("localhost", "port missing"),
            ("localhost:http", "port is not a number"),
            ("tcp://localhost:70000", "port is not a number"),
            ("http//localhost:80", "expected tcp://"),
            ("http://", "port is not a number"),
            ("tcp://localhost", "port missing"),
            ("tcp://localhost:", "port missing"),
            ("tcp://1.2.3.4:", "port missing"),
            ("tcp://localhost:+1", "port is not a number"),
            ("tcp://1.2.3.4:+1", "port is not a number"),
            ("localhost:-1", "port is not a number"),
            ("localhost: 1", "port is not a number"),
            ("unix:", "name missing"),
            ("unix:@", "name missing"),
            ("mem:", "name missing"),
            (":80", "expected tcp://"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
