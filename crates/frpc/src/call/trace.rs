//! The trace context of a call, as in [W3C Trace Context](https://www.w3.org/TR/trace-context-2/).

use std::{fmt, str::FromStr, sync::Arc};

use super::metadata::Metadata;

/// The position of a call in a distributed trace: the ids of the trace and of the calling span, and a few flags.
///
/// It travels as the metadata `traceparent` and `tracestate`, on all wires. Calls made inside a handler inherit it, so a
/// service takes part in a trace without any code. An invalid `traceparent` is dropped, and so is an invalid
/// `tracestate`.
///
/// ```
/// use frpc::{Metadata, TraceContext};
///
/// let mut metadata = Metadata::new();
/// metadata.insert("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")?;
///
/// let caller = TraceContext::of(&metadata).expect("the metadata is valid");
/// assert_eq!(caller.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
/// assert!(caller.is_sampled());
///
/// // The context for calls made on behalf of the caller, by a new span.
/// let child = caller.child();
/// assert_eq!(child.trace_id(), caller.trace_id());
/// child.write_to(&mut metadata);
/// # Ok::<(), frpc::InvalidMetadata>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TraceContext {
    parent: TraceParent,
    state: Option<Arc<str>>,
}

/// The id of a trace: 16 bytes, not all zero. Displayed as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId([u8; 16]);

/// The id of a span in a trace: 8 bytes, not all zero. Displayed as 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId([u8; 8]);

/// The content of a `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct TraceParent {
    trace: TraceId,
    span: SpanId,
    flags: u8,
}

/// The error for a text without a valid trace context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidTrace {
    /// The `traceparent` is malformed, or one of its ids is zero.
    Parent,
    /// The `tracestate` is malformed, or exceeds [`TraceContext::STATE_LEN_MAX`] or [`TraceContext::MEMBERS_MAX`].
    State,
}

impl TraceContext {
    /// The names of the metadata: `traceparent` and `tracestate`.
    pub const NAMES: [&str; 2] = ["traceparent", "tracestate"];
    /// The maximum length of a `tracestate` in bytes. A longer one is dropped.
    pub const STATE_LEN_MAX: usize = 512;
    /// The maximum number of members of a `tracestate`. One with more members is dropped.
    pub const MEMBERS_MAX: usize = 32;

    /// Creates a context with these ids.
    pub const fn new(trace: TraceId, span: SpanId, is_sampled: bool) -> Self {
        Self { parent: TraceParent { trace, span, flags: is_sampled as u8 }, state: None }
    }

    /// Begins a trace with random ids.
    pub fn root(is_sampled: bool) -> Self {
        let flags = RANDOM | u8::from(is_sampled);
        Self { parent: TraceParent { trace: TraceId::random(), span: SpanId::random(), flags }, state: None }
    }

    /// Returns the context of a new span in the same trace.
    pub fn child(&self) -> Self {
        Self { parent: TraceParent { span: SpanId::random(), ..self.parent }, state: self.state.clone() }
    }

    /// Returns the same context with another decision on sampling.
    pub fn with_sampled(mut self, is_sampled: bool) -> Self {
        self.parent.flags = self.parent.flags & !SAMPLED | u8::from(is_sampled);
        self
    }

    /// Returns the same context with other flags. Only the lowest two bits have a meaning and remain: sampled, and a
    /// trace id with random bytes.
    pub fn with_flags(mut self, flags: u8) -> Self {
        self.parent.flags = flags & KNOWN_FLAGS;
        self
    }

    /// Returns the same context with another `tracestate`.
    ///
    /// # Errors
    ///
    /// Fails if the state is malformed or too large.
    pub fn with_state(mut self, state: &str) -> Result<Self, InvalidTrace> {
        if !is_state(std::iter::once(state.as_bytes())) {
            return Err(InvalidTrace::State);
        }
        self.state = Some(state).filter(|state| !state.is_empty()).map(Arc::from);
        Ok(self)
    }

    /// Returns the context in the metadata of a call, if there is a valid one. An invalid `tracestate` alone is dropped.
    pub fn of(metadata: &Metadata) -> Option<Self> {
        let parent = TraceParent::of(metadata)?;
        let mut state = None;
        if states(metadata).next().is_some() && is_state(states(metadata)) {
            let joined = states(metadata).collect::<Vec<_>>().join(&b","[..]);
            state = String::from_utf8(joined).ok().filter(|state| !state.is_empty()).map(Arc::from);
        }
        Some(Self { parent, state })
    }

    /// Replaces the context in the metadata of a call.
    pub fn write_to(&self, metadata: &mut Metadata) {
        if has_any(metadata) {
            for name in Self::NAMES {
                metadata.remove(name);
            }
        }
        self.add_to(metadata);
    }

    /// Returns the id of the trace.
    pub fn trace_id(&self) -> TraceId {
        self.parent.trace
    }

    /// Returns the id of the span of the caller.
    pub fn span_id(&self) -> SpanId {
        self.parent.span
    }

    /// Returns `true` if the caller records this trace.
    pub fn is_sampled(&self) -> bool {
        self.parent.flags & SAMPLED != 0
    }

    /// Returns the flags of the context.
    pub fn flags(&self) -> u8 {
        self.parent.flags
    }

    /// Returns the `tracestate`: values of tracing systems, as `key=value` with commas in between. Often empty.
    pub fn state(&self) -> &str {
        self.state.as_deref().unwrap_or_default()
    }

    fn add_to(&self, metadata: &mut Metadata) {
        metadata.push_known(PARENT, &self.parent.text());
        if let Some(state) = &self.state {
            metadata.push_known(STATE, state.as_bytes());
        }
    }

    /// Adds this context to the metadata of a call, unless the call has one.
    pub(super) fn inherit(&self, metadata: &mut Metadata) {
        if !has_any(metadata) {
            self.add_to(metadata);
        }
    }
}

/// A received context as passed on to another call. Does not allocate.
pub(super) struct ReceivedTrace<'a> {
    parent: TraceParent,
    received: &'a Metadata,
}

impl<'a> ReceivedTrace<'a> {
    /// Returns the context in the metadata of a received call, if there is a valid one.
    pub(super) fn of(received: &'a Metadata) -> Option<Self> {
        TraceParent::of(received).map(|parent| Self { parent, received })
    }

    /// Adds this context to the metadata of a call, unless the call has one.
    pub(super) fn inherit(&self, metadata: &mut Metadata) {
        if has_any(metadata) {
            return;
        }
        metadata.push_known(PARENT, &self.parent.text());
        if self.received.len() > 1 && is_state(states(self.received)) {
            for state in states(self.received) {
                metadata.push_known(STATE, state);
            }
        }
    }
}

/// Returns `true` if the metadata has a `traceparent`, valid or not.
#[inline]
pub(super) fn has_parent(metadata: &Metadata) -> bool {
    metadata.entries().any(|entry| entry.name == PARENT)
}

/// Returns `true` if the metadata is a valid context as [`TraceContext`] writes it, and nothing else.
pub(super) fn is_only_context(metadata: &Metadata) -> bool {
    metadata.entries().all(|entry| entry.name == PARENT && is_canonical(entry.value) || entry.name == STATE)
        && TraceParent::of(metadata).is_some()
        && (metadata.len() == 1 || is_state(states(metadata)))
}

/// Returns `true` for a valid `traceparent` of the known version, with known flags.
fn is_canonical(parent: &[u8]) -> bool {
    matches!(parent, [b'0', b'0', .., b'0', b'0'..=b'3']) && parent.len() == PARENT_LEN
}

fn has_any(metadata: &Metadata) -> bool {
    metadata.entries().any(|entry| entry.name == PARENT || entry.name == STATE)
}

fn states(metadata: &Metadata) -> impl Iterator<Item = &[u8]> {
    metadata.entries().filter(|entry| entry.name == STATE).map(|entry| entry.value)
}

/// Returns `true` if a name belongs to the trace context.
pub(super) fn is_name(name: &[u8]) -> bool {
    TraceContext::NAMES.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

impl TraceParent {
    fn of(metadata: &Metadata) -> Option<Self> {
        let mut values = metadata.entries().filter(|entry| entry.name == PARENT);
        let parent = Self::parse(values.next()?.value)?;
        // Two values contradict each other.
        values.next().is_none().then_some(parent)
    }

    /// Reads `version-trace-span-flags`. A version after ours may add fields.
    fn parse(text: &[u8]) -> Option<Self> {
        let (fields, rest) = text.split_first_chunk::<PARENT_LEN>()?;
        let mut digits = HexReader::default();
        let mut id = |at: usize| -> u32 { digits.read(fields[at..].first_chunk().unwrap_or(&[0; 8])) };
        let (trace, span) = ([id(3), id(11), id(19), id(27)], [id(36), id(44)]);
        let [a, b, dash, .., before_flags, c, d] = *fields;
        let [_, _, version, flags] = digits.read(&[b'0', b'0', b'0', b'0', a, b, c, d]).to_be_bytes();
        let has_dashes = dash == b'-' && fields[35] == b'-' && before_flags == b'-';
        let has_known_end = rest.is_empty() || version > 0 && rest[0] == b'-';
        if digits.has_failed() || !has_dashes || !has_known_end || version == u8::MAX {
            return None;
        }
        let [trace, span] =
            [&trace[..], &span].map(|parts| parts.iter().fold(0, |id, part| id << 32 | u128::from(*part)));
        let [.., a, b, c, d, e, f, g, h] = span.to_be_bytes();
        let (trace, span) = (TraceId::from_bytes(trace.to_be_bytes())?, SpanId::from_bytes([a, b, c, d, e, f, g, h])?);
        Some(Self { trace, span, flags: flags & KNOWN_FLAGS })
    }

    /// Writes the context in the version known here.
    fn text(&self) -> [u8; PARENT_LEN] {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        let mut put = |at: usize, bytes: [u8; 4]| {
            text[at..at + 8].copy_from_slice(&hex(u32::from_be_bytes(bytes)));
        };
        self.trace.0.as_chunks().0.iter().enumerate().for_each(|(index, bytes)| put(3 + 8 * index, *bytes));
        self.span.0.as_chunks().0.iter().enumerate().for_each(|(index, bytes)| put(36 + 8 * index, *bytes));
        text[53..].copy_from_slice(&hex(self.flags.into())[6..]);
        text
    }
}

const PARENT: &[u8] = TraceContext::NAMES[0].as_bytes();
const STATE: &[u8] = TraceContext::NAMES[1].as_bytes();
const PARENT_LEN: usize = 55;
const SAMPLED: u8 = 1;
/// The flag of a trace id with random bytes, as ratios of samples need them.
const RANDOM: u8 = 2;
const KNOWN_FLAGS: u8 = SAMPLED | RANDOM;

/// Reads hexadecimal digits in lower case, eight at the same time: each byte of a number holds one of them.
#[derive(Default)]
struct HexReader {
    /// Bits of other characters.
    others: u64,
}

impl HexReader {
    #[inline]
    fn read(&mut self, digits: &[u8; 8]) -> u32 {
        let digits = u64::from_be_bytes(*digits);
        let values = (digits & (BYTES * 0x0f)) + ((digits >> 6) & BYTES) * 9;
        // Other characters have values above 15, or those of other digits.
        self.others |= values & (BYTES * 0xf0) | hex_digits(values) ^ digits;
        let pairs = (values | values >> 4) & 0x00ff_00ff_00ff_00ff;
        let quads = (pairs | pairs >> 8) & 0x0000_ffff_0000_ffff;
        let [.., a, b, c, d] = (quads | quads >> 16).to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }

    fn has_failed(&self) -> bool {
        self.others != 0
    }
}

/// Writes a number as eight hexadecimal digits in lower case.
#[inline]
fn hex(number: u32) -> [u8; 8] {
    let number = u64::from(number);
    let quads = (number | number << 16) & 0x0000_ffff_0000_ffff;
    let pairs = (quads | quads << 8) & 0x00ff_00ff_00ff_00ff;
    hex_digits((pairs | pairs << 4) & (BYTES * 0x0f)).to_be_bytes()
}

/// Returns the digits of eight values of at most 15, each in a byte.
#[inline]
fn hex_digits(values: u64) -> u64 {
    let letters = ((values + BYTES * 6) >> 4) & BYTES;
    values + BYTES * 0x30 + letters * 39
}

/// One in each byte.
const BYTES: u64 = u64::MAX / 0xff;

/// Returns `true` if these values of `tracestate` form a valid list together.
fn is_state<'a>(values: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut keys: [&[u8]; TraceContext::MEMBERS_MAX] = [&[]; TraceContext::MEMBERS_MAX];
    let (mut members, mut len) = (0, 0);
    for value in values {
        // The comma between two values counts.
        len += value.len() + usize::from(len > 0);
        if len > TraceContext::STATE_LEN_MAX {
            return false;
        }
        for member in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if member.is_empty() {
                continue;
            }
            let Some(end) = member.iter().position(|byte| *byte == b'=') else { return false };
            let (key, value) = (&member[..end], &member[end + 1..]);
            if members == keys.len() || !is_key(key) || !is_value(value) || keys[..members].contains(&key) {
                return false;
            }
            keys[members] = key;
            members += 1;
        }
    }
    true
}

/// Returns `true` for the key of a member: `system` or `tenant@system`.
fn is_key(key: &[u8]) -> bool {
    let is_known = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/');
    let begins_well = |part: &[u8], may_be_digit: bool| match part.first() {
        Some(b'a'..=b'z') => true,
        Some(b'0'..=b'9') => may_be_digit,
        _ => false,
    };
    match key.iter().position(|byte| *byte == b'@') {
        None => key.len() <= 256 && begins_well(key, false) && key.iter().all(is_known),
        Some(at) => {
            let (tenant, system) = (&key[..at], &key[at + 1..]);
            tenant.len() <= 241
                && system.len() <= 14
                && begins_well(tenant, true)
                && begins_well(system, false)
                && tenant.iter().chain(system).all(is_known)
        }
    }
}

/// Returns `true` for the value of a member: printable, without commas and equals signs.
fn is_value(value: &[u8]) -> bool {
    !value.is_empty() && value.len() <= 256 && value.iter().all(|byte| matches!(byte, b' '..=b'~') && *byte != b'=')
}

impl TraceId {
    /// Creates an id. `None` if all bytes are zero, because no trace has such an id.
    pub fn from_bytes(bytes: [u8; 16]) -> Option<Self> {
        (bytes != [0; 16]).then_some(Self(bytes))
    }

    /// Creates a random id.
    pub fn random() -> Self {
        Self(fastrand::u128(1..).to_be_bytes())
    }

    /// Returns the bytes of the id.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Returns `true` for this share of all ids. Every service with the same ratio makes the same choice, as with
    /// OpenTelemetry's `TraceIdRatioBased`.
    pub fn is_within(self, ratio: f64) -> bool {
        let [.., a, b, c, d, e, f, g] = self.0;
        let value = u64::from_be_bytes([0, a, b, c, d, e, f, g]);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a ratio of 56 bits")]
        let limit = (ratio.clamp(0.0, 1.0) * (1_u64 << 56) as f64) as u64;
        value < limit
    }
}

impl SpanId {
    /// Creates an id. `None` if all bytes are zero, because no span has such an id.
    pub fn from_bytes(bytes: [u8; 8]) -> Option<Self> {
        (bytes != [0; 8]).then_some(Self(bytes))
    }

    /// Creates a random id.
    pub fn random() -> Self {
        Self(fastrand::u64(1..).to_be_bytes())
    }

    /// Returns the bytes of the id.
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0
    }
}

/// Reads a `traceparent`.
impl FromStr for TraceContext {
    type Err = InvalidTrace;

    fn from_str(parent: &str) -> Result<Self, InvalidTrace> {
        let parent = TraceParent::parse(parent.as_bytes()).ok_or(InvalidTrace::Parent)?;
        Ok(Self { parent, state: None })
    }
}

/// Writes the `traceparent`.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(str::from_utf8(&self.parent.text()).expect("digits are ASCII"))
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceContext").field("parent", &self.to_string()).field("state", &self.state()).finish()
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceId({self})")
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpanId({self})")
    }
}

impl fmt::Display for InvalidTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Parent => "the traceparent is malformed or has an id of zeros",
            Self::State => "the tracestate is malformed, longer than 512 bytes, or has more than 32 members",
        })
    }
}

impl std::error::Error for InvalidTrace {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn metadata(entries: &[(&str, &str)]) -> Metadata {
        let mut metadata = Metadata::new();
        for (name, value) in entries {
            metadata.append(name, value).unwrap();
        }
        metadata
    }

    fn state_of(states: &[&str]) -> Option<String> {
        let mut entries = vec![("traceparent", VALID)];
        entries.extend(states.iter().map(|state| ("tracestate", *state)));
        let received = metadata(&entries);
        let state = TraceContext::of(&received).map(|context| context.state().to_owned());
        // A context passed on without a typed value keeps the same state.
        let mut sent = Metadata::new();
        ReceivedTrace::of(&received).unwrap().inherit(&mut sent);
        assert_eq!(TraceContext::of(&sent), TraceContext::of(&received));
        state
    }

    #[test]
    fn only_lower_case_digits_are_read() {
        for byte in 0..=u8::MAX {
            let value = b"0123456789abcdef".iter().position(|digit| *digit == byte);
            for at in 0..8 {
                let mut text = *b"00000000";
                text[at] = byte;
                let expected = value.map(|value| u32::try_from(value).unwrap() << (28 - 4 * at));
                let mut digits = HexReader::default();
                let number = digits.read(&text);
                assert_eq!((!digits.has_failed()).then_some(number), expected, "{byte:#x} at {at}");
            }
        }
        assert_eq!(hex(HexReader::default().read(b"0189abef")), *b"0189abef");
    }

    #[test]
    fn malformed_parents_are_dropped() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let zeros = "00000000000000000000000000000000";
        for parent in [
            String::new(),
            "00".to_owned(),
            format!("00-{trace}-00f067aa0ba902b7"),
            format!("00-{trace}-00f067aa0ba902b7-0"),
            format!("00-{trace}-00f067aa0ba902b7-01-"),
            format!("00-{trace}-00f067aa0ba902b7-01-what"),
            format!("00-{trace}-00f067aa0ba902b7-0g"),
            format!("00_{trace}-00f067aa0ba902b7-01"),
            format!("00-{}-00f067aa0ba902b7-01", trace.to_uppercase()),
            format!("00-{zeros}-00f067aa0ba902b7-01"),
            format!("00-{trace}-0000000000000000-01"),
            format!("ff-{trace}-00f067aa0ba902b7-01"),
            format!("cc-{trace}-00f067aa0ba902b7-01.what"),
            format!("0x-{trace}-00f067aa0ba902b7-01"),
            format!("{VALID},{VALID}"),
        ] {
            assert_eq!(parent.parse::<TraceContext>(), Err(InvalidTrace::Parent), "{parent:?}");
            assert_eq!(TraceContext::of(&metadata(&[("traceparent", &parent)])), None, "{parent:?}");
        }
        assert_eq!(TraceContext::of(&metadata(&[("traceparent", VALID), ("traceparent", VALID)])), None);
        assert_eq!(TraceContext::of(&metadata(&[("tracestate", "a=1")])), None);
    }

    #[test]
    fn later_versions_are_read_as_ours() {
        for later in ["cc-", "01-"] {
            for end in ["", "-", "-more.fields"] {
                let parent = format!("{later}{}{end}", &VALID[3..]);
                assert_eq!(parent.parse::<TraceContext>().unwrap().to_string(), VALID, "{parent}");
            }
        }
    }

    #[test]
    fn unknown_flags_are_removed() {
        let context: TraceContext = format!("{}ff", &VALID[..53]).parse().unwrap();
        assert_eq!((context.flags(), context.is_sampled()), (3, true));
        let context = context.with_sampled(false);
        assert_eq!((context.flags(), context.is_sampled()), (2, false));
        assert_eq!(context.with_flags(0xfd).flags(), 1);
    }

    #[test]
    fn states_have_limits() {
        assert_eq!(state_of(&[]).as_deref(), Some(""));
        assert_eq!(state_of(&["a=1, b=2"]).as_deref(), Some("a=1, b=2"));
        assert_eq!(state_of(&["a=1", "t@s=2"]).as_deref(), Some("a=1,t@s=2"));
        assert_eq!(state_of(&["a=1,,b=2,"]).as_deref(), Some("a=1,,b=2,"));
        let many = |count: usize| (0..count).map(|i| format!("k{i}=v")).collect::<Vec<_>>().join(",");
        assert_eq!(state_of(&[&many(32)]), Some(many(32)));
        let long = format!("a={},b={}", "x".repeat(250), "y".repeat(257 - 2));
        assert_eq!((long.len(), state_of(&[&long])), (510, Some(long.clone())));
        for dropped in [
            &*many(33),
            &format!("{long},c=1"),
            "a",
            "=1",
            "a=",
            "A=1",
            "1=1",
            "a=1=2",
            "a=1,a=2",
            "t@=1",
            "@s=1",
            "t@s@u=1",
            "t@averyverylongname=1",
        ] {
            assert_eq!(state_of(&[dropped]).as_deref(), Some(""), "{dropped}");
            let context: TraceContext = VALID.parse().unwrap();
            assert_eq!(context.with_state(dropped), Err(InvalidTrace::State), "{dropped}");
        }
        assert_eq!(state_of(&["a=1", "a=2"]).as_deref(), Some(""));
    }

    #[test]
    fn a_context_replaces_or_inherits() {
        let context: TraceContext = VALID.parse().unwrap();
        let context = context.with_state("a=1").unwrap();
        let other = TraceContext::root(false);
        let mut sent = metadata(&[("x", "y")]);
        other.write_to(&mut sent);
        context.inherit(&mut sent);
        assert_eq!(TraceContext::of(&sent), Some(other));
        context.write_to(&mut sent);
        assert_eq!(TraceContext::of(&sent), Some(context.clone()));
        assert_eq!((sent.len(), sent.get("x")), (3, Some("y")));
        let child = context.child();
        assert_eq!((child.trace_id(), child.state()), (context.trace_id(), "a=1"));
        assert_ne!(child.span_id(), context.span_id());
    }

    #[test]
    fn ratios_choose_their_share_of_traces() {
        fastrand::seed(7);
        let chosen = (0..10_000).filter(|_| TraceId::random().is_within(0.25)).count();
        assert!((2_300..2_700).contains(&chosen), "{chosen}");
        let last = TraceId::from_bytes([0xff; 16]).unwrap();
        let first = TraceId::from_bytes([[0xff; 8], [0; 8]].concat().try_into().unwrap()).unwrap();
        assert!(last.is_within(1.0) && first.is_within(0.000_1));
        assert!(!last.is_within(0.999) && !first.is_within(0.0) && !first.is_within(f64::NAN));
    }

    proptest! {
        #[test]
        fn a_context_survives_a_round_trip(trace in 1_u128.., span in 1_u64.., flags in 0_u8..4) {
            let (trace, span) = (TraceId(trace.to_be_bytes()), SpanId(span.to_be_bytes()));
            let context = TraceContext::new(trace, span, false).with_flags(flags);
            prop_assert_eq!(context.to_string().parse(), Ok(context.clone()));
            let mut metadata = Metadata::new();
            context.write_to(&mut metadata);
            prop_assert_eq!(TraceContext::of(&metadata), Some(context));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(
            parent in "\\PC*|[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}.{0,3}",
            state in "[ -~]{0,600}|([a-c]{0,2}[=,@ ]){0,80}",
        ) {
            let _ = parent.parse::<TraceContext>();
            let mut metadata = Metadata::new();
            let _ = metadata.append_received(b"traceparent", parent.as_bytes());
            let _ = metadata.append_received(b"tracestate", state.as_bytes());
            if let Some(context) = TraceContext::of(&metadata) {
                let mut sent = Metadata::new();
                context.write_to(&mut sent);
                prop_assert_eq!(TraceContext::of(&sent), Some(context));
            }
        }

        #[test]
        fn any_bytes_of_a_parent_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = TraceParent::parse(&bytes);
            let _ = is_state(bytes.chunks(7));
        }
    }
}
