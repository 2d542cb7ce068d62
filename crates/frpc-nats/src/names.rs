//! Names of services, and subjects of their methods.

use std::{io, time::Duration};

use frpc::{Method, codec::Format};

/// Checks the name of a service, as the specification of NATS services limits it.
pub(crate) fn check_name(name: &str) -> io::Result<()> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if (1..=NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(is_valid) {
        return Ok(());
    }
    let why = format!("{name:?} is no name of a NATS service: use 1 to {NAME_LEN_MAX} letters, digits, `-` and `_`");
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// Returns the subject for calls of a method.
pub(crate) fn subject(name: &str, method: &Method) -> String {
    format!("{name}.{}.{}", method.service, method.name)
}

/// Returns the reply subject of a unary call without headers: after the number of the call follow its format and the
/// remaining time.
pub(crate) fn plain_reply(inbox: &str, id: u64, format: Format, left: Option<Duration>) -> String {
    let format = if format == Format::Json { 'j' } else { 'p' };
    match left {
        Some(left) => format!("{inbox}.{id}~{format}{}", u64::try_from(left.as_micros()).unwrap_or(u64::MAX)),
        None => format!("{inbox}.{id}~{format}"),
    }
}

/// The facts of a unary call without headers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PlainCall {
    pub(crate) format: Format,
    pub(crate) timeout: Option<Duration>,
}

impl PlainCall {
    /// Reads the reply subject of a request without headers. `None` for the requests of other clients.
    pub(crate) fn read(reply: &str) -> Option<Self> {
        let (call, facts) = reply.rsplit_once('~')?;
        let (_, id) = call.rsplit_once('.')?;
        let format = match facts.as_bytes().first()? {
            b'j' => Format::Json,
            b'p' => Format::Proto,
            _ => return None,
        };
        let timeout = match &facts[1..] {
            "" => None,
            micros => Some(Duration::from_micros(digits(micros)?)),
        };
        digits(id).map(|_| Self { format, timeout })
    }
}

/// Returns the reply subject of a call, without the facts of a plain one.
pub(crate) fn call_of(reply: &str) -> &str {
    match PlainCall::read(reply) {
        Some(_) => reply.rsplit_once('~').map_or(reply, |(call, _)| call),
        None => reply,
    }
}

/// Returns the number of a call, from the last token of its reply subject.
pub(crate) fn id_of(token: &str) -> Option<u64> {
    digits(token.split_once('~').map_or(token, |(id, _)| id))
}

fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Returns the subject on which the servers of a service learn of cancelled calls.
pub(crate) fn cancel_subject(name: &str) -> String {
    format!("_FRPC.cancel.{name}")
}

/// Returns the subject on which the servers of a service are asked for calls in progress.
pub(crate) fn probe_subject(name: &str) -> String {
    format!("_FRPC.probe.{name}")
}

/// Returns the subject of both kinds of notices.
pub(crate) fn notice_subjects(name: &str) -> String {
    format!("_FRPC.*.{name}")
}

/// Returns `true` for the subject of a probe.
pub(crate) fn is_probe(subject: &str) -> bool {
    subject.starts_with("_FRPC.probe.")
}

/// Returns the numbers of calls in a probe, or in the answer to one.
pub(crate) fn ids_of(payload: &[u8]) -> impl Iterator<Item = u64> {
    let ids = payload.as_chunks().0.iter().take(PROBE_LEN_MAX / size_of::<u64>());
    ids.copied().map(u64::from_be_bytes)
}

/// A target such as `nats://cluster/orders?format=json`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NatsTarget<'a> {
    pub(crate) cluster: &'a str,
    pub(crate) service: &'a str,
    pub(crate) is_json: bool,
}

impl<'a> NatsTarget<'a> {
    pub(crate) fn parse(text: &'a str) -> io::Result<Self> {
        let invalid = |why: &str| {
            let why = format!("{text:?}: {why}; write SCHEME://CLUSTER/SERVICE, where CLUSTER is HOST:PORT or a name");
            io::Error::new(io::ErrorKind::InvalidInput, why)
        };
        let (_, rest) = text.split_once("://").ok_or_else(|| invalid("the scheme is missing"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (cluster, service) = rest.split_once('/').ok_or_else(|| invalid("the service is missing"))?;
        if cluster.is_empty() {
            return Err(invalid("the cluster is missing"));
        }
        check_name(service).map_err(|error| invalid(&error.to_string()))?;
        let is_json = match query {
            "" | "format=protobuf" => false,
            "format=json" => true,
            _ => return Err(invalid("the only option is format=json or format=protobuf")),
        };
        Ok(Self { cluster, service, is_json })
    }
}

/// The last token of the subject for answers to probes. Those of calls end with a number.
pub(crate) const PROBE_TOKEN: &str = "probe";
/// The maximum length of a probe: 1,024 calls.
pub(crate) const PROBE_LEN_MAX: usize = 8 * 1024;
/// The maximum length of the name of a service.
const NAME_LEN_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_name_their_methods() {
        let method = Method::unary("shop.v1.Orders", "Get", 10);
        let subject = subject("orders", &method);
        assert_eq!(subject, "orders.shop.v1.Orders.Get");
    }

    #[test]
    fn reply_subjects_carry_the_facts_of_plain_calls() {
        for (format, timeout, expected) in [
            (Format::Proto, Some(Duration::from_millis(3)), "_INBOX.a.17~p3000"),
            (Format::Json, None, "_INBOX.a.17~j"),
            (Format::Proto, Some(Duration::MAX), "_INBOX.a.17~p18446744073709551615"),
        ] {
            let reply = plain_reply("_INBOX.a", 17, format, timeout);
            assert_eq!(reply, expected);
            let timeout = timeout.map(|timeout| timeout.min(Duration::from_micros(u64::MAX)));
            assert_eq!(PlainCall::read(&reply), Some(PlainCall { format, timeout }));
            assert_eq!((call_of(&reply), id_of(reply.rsplit_once('.').unwrap().1)), ("_INBOX.a.17", Some(17)));
        }
        for other in [
            "_INBOX.a.17",
            "_INBOX.a.b",
            "_INBOX.a.17~",
            "_INBOX.a.17~x1",
            "_INBOX.a.17~p-1",
            "_INBOX.a.17~p18446744073709551616",
            "_INBOX.a.x~p1",
            "_INBOX.a.17~\u{e9}",
            "17~p1",
            "",
        ] {
            assert_eq!((PlainCall::read(other), call_of(other)), (None, other), "{other}");
        }
        assert_eq!((id_of("+17"), id_of(""), id_of("x")), (None, None, None));
    }

    #[test]
    fn targets_are_checked() {
        let target = NatsTarget::parse("nats://127.0.0.1:4222/orders").unwrap();
        assert_eq!(target, NatsTarget { cluster: "127.0.0.1:4222", service: "orders", is_json: false });
        assert!(NatsTarget::parse("nats://prod/orders?format=json").unwrap().is_json);
        for (text, why) in [
            ("nats://prod", "service is missing"),
            ("nats:///orders", "cluster is missing"),
            ("nats://prod/a.b", "no name"),
            ("nats://prod/", "no name"),
            ("nats://prod/orders?x=1", "format=json"),
        ] {
            let error = NatsTarget::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
