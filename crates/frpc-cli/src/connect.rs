//! Connections to servers.

use std::{
    error::Error as _,
    io::{self, ErrorKind},
    sync::Arc,
    time::Duration,
};

use frpc::{
    Address, Channel, Config, ConnectError, ConnectRetry,
    codec::Format,
    frisbee::{
        self, HeaderFormat,
        clock::TIME_MAX,
        rustls::{self, ClientConfig},
    },
};
use frpc_http::{Client, ClientSettings, HttpVersion};

use crate::{
    failure::{CommandError, Result},
    tls::TlsOptions,
};

/// Connection options.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ConnectOptions {
    /// The timeout for connecting.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_time, help_heading = "Connection")]
    connect_timeout: Duration,
    /// The maximum length of a received message in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 64 * 1024 * 1024, help_heading = "Connection")]
    message_len_max: u32,
    /// Uses HTTP/2 with prior knowledge instead of HTTP/1.1, for addresses such as http://.
    #[arg(long, help_heading = "Connection")]
    http2: bool,
    /// Uses the 8-byte frisbee headers of frisbee-go before v0.11, for frpc-go servers built with it.
    #[arg(long, help_heading = "Connection")]
    old_frisbee: bool,
    #[command(flatten)]
    tls: TlsOptions,
}

impl ConnectOptions {
    /// Connects to `address`, with the given message format if the protocol supports several.
    pub(crate) async fn connect(&self, address: &str, format: Format) -> Result<Channel> {
        let address = normal(address);
        let http_version = if self.http2 { HttpVersion::Http2 } else { HttpVersion::Auto };
        let client = Client::new().settings(ClientSettings { format, http_version, ..ClientSettings::default() });
        let header = self.old_frisbee.then_some(HeaderFormat::Plain8);
        let config = Config { header, content_len_max: self.message_len_max, ..Config::default() };
        let mut builder = Channel::builder()
            .transport(client)
            .config(config)
            .retry(ConnectRetry { attempts: 1, ..ConnectRetry::default() })
            .connect_timeout(self.connect_timeout)
            // Practically no deadline: only one chosen by the user should end a call.
            .timeout(Duration::from_secs(60 * 60));
        if let Some(tls) = self.tls_of(&address)? {
            builder = match self.tls.server_name() {
                Some(name) => builder.tls_with_name(tls, name),
                None => builder.tls(tls),
            };
        }
        builder.connect(&*address).await.map_err(|error| self.refused(&address, &error))
    }

    fn tls_of(&self, address: &str) -> Result<Option<Arc<ClientConfig>>> {
        let scheme = address.split_once("://").map_or("", |(scheme, _)| scheme);
        let is_own = self.tls.is_given();
        let is_plain = scheme.ends_with("http") || matches!(scheme, "grpc" | "ws" | "jsonrpc+tcp" | "jsonrpc+ws");
        if is_plain && is_own {
            return Err(CommandError::new(format!("{scheme}:// does not use TLS"))
                .with_try(format!("{scheme}s://, with the same options")));
        }
        if !self.is_secret(address) {
            return Ok(None);
        }
        self.tls.config().map(Some)
    }

    /// Returns `true` if connections to `address` use TLS.
    fn is_secret(&self, address: &str) -> bool {
        let scheme = address.split_once("://").map_or("", |(scheme, _)| scheme);
        self.tls.is_given() || scheme.ends_with("https") || matches!(scheme, "grpcs" | "wss" | "jsonrpc+wss")
    }

    /// Returns the message format of calls. It fails if the peer does not identify itself within the connect timeout.
    pub(crate) async fn format_of(&self, channel: &Channel) -> Result<Format> {
        let format = channel.clone().with_timeout(self.connect_timeout).call_format().await;
        format.map_err(|status| {
            CommandError::new(status.message())
                .with_try("another wire, if the server does not speak this one: grpc://, http://, ws://, tcp://")
        })
    }

    fn refused(&self, address: &str, error: &ConnectError) -> CommandError {
        let failure = CommandError::new(error);
        let (is_refused, is_distrusted) = match error {
            ConnectError::Connect(error) => (error.kind() == ErrorKind::ConnectionRefused, is_distrusted(error)),
            _ => (false, false),
        };
        let has_scheme = address.contains("://") || address.starts_with("unix:") || address.starts_with("mem:");
        match error {
            ConnectError::Address(_) if address.parse::<u16>().is_ok() => {
                failure.with_try(format!(":{address}, for a port on this machine"))
            }
            ConnectError::Address(_) if !has_scheme => {
                let port = if address.contains(':') { "" } else { ":PORT" };
                failure.with_try(format!("{SCHEMES}, such as grpc://{address}{port}"))
            }
            ConnectError::Address(_) => failure.with_try(SCHEMES),
            _ if is_distrusted => failure
                .with_try("--ca FILE with the certificate authority of the server, or --insecure to skip the check"),
            _ if self.is_secret(address) && !is_refused => failure
                .with_try("the same without TLS, if the server has none: the scheme without its last s, or no --tls"),
            _ if matches!(address.parse(), Ok(Address::Tcp(_) | Address::Host { .. })) && !is_refused => failure
                .with_try("another wire, if the server does not speak frisbee: grpc://, http://, ws://")
                .with_try("--old-frisbee, if the server is built with frpc-go and frisbee-go before v0.11"),
            _ => failure.with_try("`frpc serve --echo ADDRESS`, to start a test server"),
        }
    }
}

/// Returns `true` if this side did not accept the certificate of the server.
fn is_distrusted(error: &frisbee::ConnectError) -> bool {
    let io = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    let inner = io.and_then(io::Error::get_ref).and_then(|inner| inner.downcast_ref());
    matches!(inner, Some(rustls::Error::InvalidCertificate(_)))
}

/// Returns the address in full, or all addresses of a list: a port alone is a port on this machine, and schemes are in
/// lower case.
pub(crate) fn normal(address: &str) -> String {
    let full = |address: &str| match address.strip_prefix(':') {
        Some(port) => format!("tcp://localhost:{port}"),
        None => match address.parse() {
            Ok(Address::Url(url)) => url,
            _ => address.to_owned(),
        },
    };
    address.split(',').map(full).collect::<Vec<_>>().join(",")
}

/// Returns a help text with all address formats, followed by `$behind`.
macro_rules! addresses {
    ($behind:literal) => {
        concat!(
            "Addresses:
  HOST:PORT, :PORT, tcp://HOST:PORT, unix:PATH   frisbee (fRPC)
  ws://HOST:PORT                                 frisbee over WebSocket
  grpc://HOST:PORT                               gRPC
  http://HOST:PORT                               Connect
  grpc-web+http://HOST:PORT                      gRPC-Web
  twirp+http://HOST:PORT                         Twirp
  jsonrpc+tcp://HOST:PORT                        JSON-RPC
  jsonrpc+http://HOST:PORT/PATH, jsonrpc+ws://…  JSON-RPC by POST, over WebSocket
  With TLS: wss, grpcs, https and so on, or --tls with tcp
  Several servers: A,B; dns:///HOST:PORT; dns+grpc:///HOST:PORT; file:///PATH

",
            $behind
        )
    };
}
pub(crate) use addresses;

/// All address formats, for advice.
pub(crate) const SCHEMES: &str = "tcp://HOST:PORT or unix:PATH for frisbee, ws://, grpc://, http:// for Connect, \
     grpc-web+http://, twirp+http://, jsonrpc+tcp://, jsonrpc+http://, jsonrpc+ws://";

/// Parses a duration such as `1.5s`, `200ms` or `2m`. A bare number is in seconds. More than a year counts as a year.
pub(crate) fn parse_time(text: &str) -> std::result::Result<Duration, String> {
    let end = text.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().map_err(|_| format!("{text:?} is not a duration: write 500ms, 2s or 1m"))?;
    let seconds = match unit.trim() {
        "us" | "µs" => number / 1e6,
        "ms" => number / 1e3,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(format!("{unit:?} is not a unit of time: use us, ms, s, m or h")),
    };
    Duration::try_from_secs_f64(seconds).map(|time| time.min(TIME_MAX)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, millis) in [("1", 1000), ("1.5s", 1500), ("200ms", 200), ("2m", 120_000), ("500us", 0)] {
            assert_eq!(parse_time(text).unwrap().as_millis(), millis, "{text}");
        }
        let longest = parse_time("9999999999999999999").unwrap();
        assert!(std::time::Instant::now().checked_add(longest).is_some(), "{longest:?}");
        for text in ["", "s", "1x", "-1s", "1e400"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
