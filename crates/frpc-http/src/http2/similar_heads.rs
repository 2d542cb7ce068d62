//! A check of the shortcut for similar heads: it makes the same calls as the full path.

use std::{sync::Arc, time::Instant};

use frpc::{
    Endpoint, MessageSettings, Services,
    generated::{Answer, Call, Method, Service, Status},
};
use frpc_http2::{BlockEncoder, Connection, Event, Field, Head, Settings};

use super::request::{KnownCalls, MessageHead};
use crate::{HttpSettings, serve::ServeContext, settings::Additions};

/// Reads two heads in a row, and the second one alone. Panics if the results differ.
///
/// Names are text. Heads that break the rules of HTTP/2 are skipped.
pub(crate) fn check<'a, B: AsRef<[u8]> + 'a>(heads: [&'a [(&'a str, B)]; 2]) {
    let [Some(first), Some(second)] = heads.map(received) else { return };
    let context = context();
    let mut calls = KnownCalls::default();
    let _ = calls.read(&context, &first);
    let after_first = summary(calls.read(&context, &second));
    let alone = summary(KnownCalls::default().read(&context, &second));
    assert_eq!(after_first, alone, "{second:?} after {first:?}");
}

/// Returns the head that a server receives for these fields, if they are valid.
fn received<B: AsRef<[u8]>>(fields: &[(&str, B)]) -> Option<Arc<Head>> {
    let (mut encoder, mut block) = (BlockEncoder::new(0), Vec::new());
    encoder.begin(&mut block);
    fields.iter().for_each(|(name, value)| encoder.field(&mut block, Field::new(name, value.as_ref())));
    let len = u16::try_from(block.len()).ok().filter(|len| *len < 1 << 14)?.to_be_bytes();
    let wire = [PREFACE, SETTINGS, &[0, len[0], len[1], HEADERS, END_HEADERS, 0, 0, 0, 1], &block].concat();
    let (now, mut rest) = (Instant::now(), &wire[..]);
    let mut connection = Connection::server(Settings::default(), now);
    loop {
        let received = connection.receive(rest, now).ok()?;
        rest = &rest[received.consumed..];
        if let Event::Head { head, .. } = received.event? {
            return Some(head);
        }
    }
}

/// Describes a call. The values of a metadata name have an order, the names do not.
fn summary(head: Option<MessageHead<'_>>) -> String {
    match head {
        Some(MessageHead::Grpc(call)) => call.summary(),
        Some(MessageHead::NewGrpc(call)) => call.summary(),
        Some(MessageHead::Other(_)) => "not a call".to_owned(),
        None => "invalid".to_owned(),
    }
}

fn context() -> ServeContext {
    let messages = MessageSettings { metadata_len_max: 400, ..MessageSettings::default() };
    let endpoint = Endpoint::new(Services::new().messages(messages).add_service(Echo)).expect("one service");
    ServeContext {
        account: endpoint.server_account(),
        endpoint,
        settings: Arc::new(HttpSettings { head_len_max: 1000, ..HttpSettings::default() }),
        additions: Additions::default(),
        peer: None,
        calls: None,
        drain: None,
        answer_head_len_max: None,
    }
}

struct Echo;

impl Service for Echo {
    const NAME: &'static str = "echo.Echo";
    const METHODS: &'static [Method] = &[Method::unary("echo.Echo", "Say", 10)];

    async fn call(&self, _: usize, call: Call) -> Result<Answer, Status> {
        Ok(Answer::new(call.into_parts().1))
    }
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
const HEADERS: u8 = 1;
const END_HEADERS: u8 = 4;

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::select};

    use super::*;

    type OwnedField = (&'static str, Vec<u8>);

    const NAMES: [&str; 9] = [
        "traceparent",
        "tracestate",
        "grpc-timeout",
        "grpc-timeout",
        "traceparent",
        "x-a",
        "x-a-bin",
        "user-agent",
        "grpc-encoding",
    ];

    fn value() -> impl Strategy<Value = Vec<u8>> {
        let known: [&[u8]; 12] = [
            b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            b"1S",
            b"0S",
            b"99999999H",
            b"123456789S",
            b"7m",
            b"identity",
            b"gzip",
            b"",
            b"AAEC",
            b"a\tb",
            b"a\x7f",
        ];
        prop_oneof![
            select(known.to_vec()).prop_map(<[u8]>::to_vec),
            vec(any::<u8>(), 0..8),
            (0..600_usize).prop_map(|len| vec![b'v'; len]),
        ]
    }

    fn field() -> impl Strategy<Value = OwnedField> {
        (select(NAMES.to_vec()), value())
    }

    fn fields(base: &[OwnedField]) -> Vec<OwnedField> {
        let start = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/echo.Echo/Say"),
            (":authority", "a"),
            ("content-type", "application/grpc"),
        ];
        start.map(|(name, value)| (name, value.into())).into_iter().chain(base.iter().cloned()).collect()
    }

    /// A step from the first head to the second one.
    #[derive(Clone, Debug)]
    enum Change {
        Insert(OwnedField),
        Remove,
        Replace(Vec<u8>),
        Swap(usize),
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            field().prop_map(Change::Insert),
            Just(Change::Remove),
            value().prop_map(Change::Replace),
            any::<usize>().prop_map(Change::Swap),
        ]
    }

    #[test]
    fn a_varying_field_that_http_forbids_makes_the_head_invalid() {
        for name in ["traceparent", "tracestate", "grpc-timeout"] {
            for value in [&b"\x7f"[..], b"\x01", b"a\tb", "\u{e9}".as_bytes(), b"1S"] {
                check([&fields(&[]), &fields(&[("grpc-timeout", b"1S".to_vec()), (name, value.to_vec())])]);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

        #[test]
        fn similar_heads_make_the_calls_of_the_full_path(
            base in vec(field(), 0..4),
            changes in vec((any::<usize>(), change()), 0..4),
        ) {
            let first = fields(&base);
            let mut second = first.clone();
            for (at, change) in changes {
                let len = second.len();
                match change {
                    Change::Insert(field) => second.insert(5 + at % (len - 4), field),
                    Change::Remove => drop(second.remove(at % len)),
                    Change::Replace(value) => second[at % len].1 = value,
                    Change::Swap(other) => second.swap(at % len, other % len),
                }
                if second.len() < 5 {
                    break;
                }
            }
            check([&first, &second]);
        }
    }
}
