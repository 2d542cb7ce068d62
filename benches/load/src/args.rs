use std::net::{AddrParseError, SocketAddr};
use std::time::Duration;

use crate::{ArgsError, Arguments, Field};

/// The load of a client: `--size --field --streaming --joined --clients --concurrent --seconds --warmup ADDR`.
#[derive(Clone, Debug, PartialEq)]
pub struct Args {
    /// The address of the server.
    pub addr: SocketAddr,
    /// Content bytes of each request.
    pub size: usize,
    /// The type of the field that carries the content.
    pub field: Field,
    /// `true` to count messages of streams instead of calls.
    pub streaming: bool,
    /// `true` to make all calls of a connection from one task, instead of one task per call in flight.
    pub joined: bool,
    /// The number of connections.
    pub clients: usize,
    /// The number of requests in flight on each connection.
    pub concurrent: u16,
    /// The length of the measured window.
    pub seconds: Duration,
    /// The length of the warm-up before the window.
    pub warmup: Duration,
}

impl Args {
    /// Parses the remaining `arguments`. The options of the program itself must be taken out first.
    pub fn parse(mut arguments: Arguments) -> Result<Self, ArgsError> {
        let args = Self {
            size: arguments.opt_value_from_str("--size")?.unwrap_or(32),
            field: arguments.opt_value_from_str("--field")?.unwrap_or_default(),
            streaming: arguments.contains("--streaming"),
            joined: arguments.contains("--joined"),
            clients: arguments.opt_value_from_str("--clients")?.unwrap_or(32),
            concurrent: arguments.opt_value_from_str("--concurrent")?.unwrap_or(1),
            seconds: arguments.opt_value_from_fn("--seconds", parse_seconds)?.unwrap_or(Duration::from_secs(3)),
            warmup: arguments.opt_value_from_fn("--warmup", parse_seconds)?.unwrap_or(Duration::from_secs(1)),
            addr: arguments.free_from_fn(parse_addr)?,
        };
        finish(arguments).map(|()| args)
    }

    /// Returns the command line for [`Args::parse`]. The address comes last, because Go's parser requires it.
    pub fn to_words(&self) -> Vec<String> {
        let options = [
            ("--size", self.size.to_string()),
            ("--field", self.field.to_string()),
            ("--clients", self.clients.to_string()),
            ("--concurrent", self.concurrent.to_string()),
            ("--seconds", self.seconds.as_secs_f64().to_string()),
            ("--warmup", self.warmup.as_secs_f64().to_string()),
        ];
        let options = options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        let flags = [(self.streaming, "--streaming"), (self.joined, "--joined")];
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag.to_owned());
        options.chain(flags).chain([self.addr.to_string()]).collect()
    }
}

/// The arguments of a server: `--sleep-us ADDR`.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerArgs {
    /// The address to listen on.
    pub addr: SocketAddr,
    /// The time that each handler sleeps. Zero means no sleep at all.
    pub sleep: Duration,
}

impl ServerArgs {
    /// Parses the remaining `arguments`. The options of the program itself must be taken out first.
    pub fn parse(mut arguments: Arguments) -> Result<Self, ArgsError> {
        let sleep = Duration::from_micros(arguments.opt_value_from_str("--sleep-us")?.unwrap_or(0));
        let args = Self { sleep, addr: arguments.free_from_fn(parse_addr)? };
        finish(arguments).map(|()| args)
    }
}

/// Parses an address with or without the scheme `tcp://`.
pub fn parse_addr(text: &str) -> Result<SocketAddr, AddrParseError> {
    text.strip_prefix("tcp://").unwrap_or(text).parse()
}

fn finish(arguments: Arguments) -> Result<(), ArgsError> {
    match arguments.finish().into_iter().next() {
        Some(unknown) => Err(ArgsError::ArgumentParsingFailed { cause: format!("unexpected {unknown:?}") }),
        None => Ok(()),
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|error| format!("{error}"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, ArgsError> {
        Args::parse(Arguments::from_vec(line.split(' ').map(Into::into).collect()))
    }

    #[test]
    fn formatted_arguments_parse_as_the_same_load() {
        let args =
            parse("127.0.0.1:80 --clients 7 --concurrent 3 --seconds 0.25 --field bytes --streaming --joined").unwrap();
        assert_eq!(parse(&args.to_words().join(" ")).unwrap(), args);
    }

    #[test]
    fn options_are_accepted_before_and_after_the_address() {
        let args = parse("--size 1024 tcp://127.0.0.1:80 --warmup 0.5").unwrap();
        assert_eq!(args.addr, "127.0.0.1:80".parse().unwrap());
        assert_eq!((args.size, args.warmup), (1024, Duration::from_millis(500)));
    }

    #[test]
    fn an_unknown_option_is_refused() {
        assert!(parse("127.0.0.1:80 --sise 1024").is_err());
    }
}
