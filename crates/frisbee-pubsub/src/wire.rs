//! Encoding of the packets between clients and brokers, as defined in `docs/pubsub.md`. Decoders trust no input and
//! allocate nothing for a merely announced length.

use std::str;

use bytes::{BufMut, Bytes};
use frisbee::{InvalidSetting, Operation};

use crate::{InvalidSubject, Message, Policy, Publication, Refusal, RefusalCode, SUBJECT_LEN_MAX, Subject};

/// Kinds of packets. A packet's operation number is the base plus its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum PacketKind {
    Hello,
    Welcome,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Ended,
    Publish,
    Published,
    Message,
    Missing,
    Credit,
    Allow,
    Refused,
}

impl PacketKind {
    /// Returns `true` for packets from clients to brokers.
    #[inline]
    pub(crate) fn is_for_broker(self) -> bool {
        matches!(self, Self::Hello | Self::Subscribe | Self::Unsubscribe | Self::Publish | Self::Credit)
    }
}

const KINDS: [PacketKind; 13] = [
    PacketKind::Hello,
    PacketKind::Welcome,
    PacketKind::Subscribe,
    PacketKind::Subscribed,
    PacketKind::Unsubscribe,
    PacketKind::Ended,
    PacketKind::Publish,
    PacketKind::Published,
    PacketKind::Message,
    PacketKind::Missing,
    PacketKind::Credit,
    PacketKind::Allow,
    PacketKind::Refused,
];

/// The first of the consecutive operation numbers for publish and subscribe, one per kind of packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OperationBase(u16);

impl OperationBase {
    pub(crate) const fn new(number: u16) -> Self {
        Self(number)
    }

    pub(crate) const fn number(self) -> u16 {
        self.0
    }

    /// Rejects numbers reserved by frisbee, and numbers too high to leave room for all kinds.
    pub(crate) fn check(self) -> Result<(), InvalidSetting> {
        if self.0 >= Operation::FIRST && usize::from(self.0) + KINDS.len() <= usize::from(u16::MAX) + 1 {
            return Ok(());
        }
        Err(InvalidSetting::new("base", format!("is {}; it may be from 10 to {}", self.0, 0x1_0000 - KINDS.len())))
    }

    #[inline]
    pub(crate) fn operation(self, kind: PacketKind) -> Operation {
        // `Inbox` accepts an unchecked base. An invalid one must not panic here.
        Operation::new(self.0.wrapping_add(u16::from(kind as u8))).unwrap_or(Operation::EXTENDED)
    }

    /// Returns the kind of a packet, or `None` if its operation is outside the range.
    #[inline]
    pub(crate) fn kind(self, operation: Operation) -> Option<PacketKind> {
        KINDS.get(usize::from(operation.number().wrapping_sub(self.0))).copied()
    }
}

/// Default for the first operation number, far above the numbers of RPC methods.
pub const BASE: u16 = 7000;

pub(crate) const VERSION: u8 = 1;

/// Fixed cost of a message, in addition to its content.
pub(crate) const MESSAGE_COST: usize = 64;

pub(crate) const ACKNOWLEDGE: u8 = 1;
pub(crate) const RETAIN: u8 = 2;
pub(crate) const REPLY: u8 = 4;
pub(crate) const FORWARDED: u8 = 8;

/// A packet with an invalid content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MalformedPacket(pub(crate) &'static str);

impl From<MalformedPacket> for Refusal {
    fn from(malformed: MalformedPacket) -> Self {
        Self::new(RefusalCode::Malformed, malformed.0)
    }
}

impl From<InvalidSubject> for Refusal {
    fn from(error: InvalidSubject) -> Self {
        Self::new(RefusalCode::Malformed, error.to_string())
    }
}

/// A cursor over the unread part of a content.
struct ContentReader<'a>(&'a [u8]);

impl<'a> ContentReader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], MalformedPacket> {
        let (array, left) = self.0.split_first_chunk().ok_or(MalformedPacket("the content is too short"))?;
        self.0 = left;
        Ok(*array)
    }

    fn u8(&mut self) -> Result<u8, MalformedPacket> {
        Ok(self.array::<1>()?[0])
    }

    fn u32(&mut self) -> Result<u32, MalformedPacket> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// Reads at most 255 bytes after their length.
    fn short(&mut self) -> Result<&'a [u8], MalformedPacket> {
        let len = usize::from(self.u8()?);
        let (short, left) =
            self.0.split_at_checked(len).ok_or(MalformedPacket("the content is shorter than a length in it"))?;
        self.0 = left;
        Ok(short)
    }

    fn short_text(&mut self) -> Result<&'a str, MalformedPacket> {
        str::from_utf8(self.short()?).map_err(|_| MalformedPacket("a text is not UTF-8"))
    }
}

/// Parts of a PUBLISH, or of a MESSAGE after its subscription number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PublishPacket<'a> {
    pub(crate) flags: u8,
    /// Not validated, so that known subjects cost no second validation.
    pub(crate) subject: &'a [u8],
    pub(crate) reply: Option<&'a [u8]>,
    pub(crate) payload: &'a [u8],
}

impl<'a> PublishPacket<'a> {
    #[inline]
    pub(crate) fn read(content: &'a [u8]) -> Result<Self, MalformedPacket> {
        let mut reader = ContentReader(content);
        let flags = reader.u8()?;
        let subject = reader.short()?;
        let reply = if flags & REPLY != 0 { Some(reader.short()?) } else { None };
        Ok(Self { flags, subject, reply, payload: reader.0 })
    }

    /// Returns the bytes between the flags and the payload.
    pub(crate) fn subjects<'c>(&self, content: &'c [u8]) -> &'c [u8] {
        &content[1..content.len() - self.payload.len()]
    }
}

/// Returns the flags for the properties of a publication, except for its reply subject.
pub(crate) fn publication_flags(publication: &Publication<'_>) -> u8 {
    let retain = if publication.retain { RETAIN } else { 0 };
    retain | if publication.is_forwarded { FORWARDED } else { 0 }
}

/// Writes everything before the payload of a PUBLISH. Expects validated subjects.
pub(crate) fn write_publish(flags: u8, subject: &str, reply: Option<&str>, into: &mut Vec<u8>) {
    into.push(flags | if reply.is_some() { REPLY } else { 0 });
    write_short(subject.as_bytes(), into);
    if let Some(reply) = reply {
        write_short(reply.as_bytes(), into);
    }
}

fn write_short(bytes: &[u8], into: &mut Vec<u8>) {
    debug_assert!(bytes.len() <= SUBJECT_LEN_MAX);
    // Callers have validated the length. A longer text is truncated here, so the rest of the packet stays readable.
    let len = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
    into.push(len);
    into.extend_from_slice(&bytes[..usize::from(len)]);
}

/// Reads a MESSAGE. Returns the number of its subscription and the message, made of slices of the content.
pub(crate) fn read_message(content: &Bytes) -> Result<(u32, Message), MalformedPacket> {
    let number = ContentReader(content).u32()?;
    // Reading the number has proved that there are four bytes.
    let published = PublishPacket::read(&content[4..])?;
    let subject =
        |bytes| Subject::from_bytes(content.slice_ref(bytes)).map_err(|_| MalformedPacket("a subject is invalid"));
    let message = Message {
        subject: subject(published.subject)?,
        reply: published.reply.map(subject).transpose()?,
        payload: content.slice_ref(published.payload),
        is_retained: published.flags & RETAIN != 0,
        is_forwarded: published.flags & FORWARDED != 0,
    };
    Ok((number, message))
}

/// Content of a SUBSCRIBE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubscribePacket<'a> {
    pub(crate) policy: Policy,
    /// Zero means no window: the broker sends whatever the connection takes.
    pub(crate) window: u32,
    /// Distinguishes a client's subscriptions with the same pattern.
    pub(crate) slot: u8,
    pub(crate) pattern: &'a str,
    /// Empty without a group.
    pub(crate) group: &'a str,
}

impl<'a> SubscribePacket<'a> {
    pub(crate) fn read(content: &'a [u8]) -> Result<Self, MalformedPacket> {
        let mut reader = ContentReader(content);
        let policy = POLICIES.get(usize::from(reader.u8()?)).ok_or(MalformedPacket("the policy is unknown"))?;
        let (window, slot) = (reader.u32()?, reader.u8()?);
        let (pattern, group) = (reader.short_text()?, reader.short_text()?);
        Ok(Self { policy: *policy, window, slot, pattern, group })
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut content = Vec::new();
        content.push(self.policy as u8);
        content.put_u32(self.window);
        content.push(self.slot);
        write_short(self.pattern.as_bytes(), &mut content);
        write_short(self.group.as_bytes(), &mut content);
        content
    }
}

/// The policies in the order of their numbers.
const POLICIES: [Policy; 5] =
    [Policy::DropNewest, Policy::DropOldest, Policy::KeepLatest, Policy::Block, Policy::Disconnect];

/// Reasons in an ENDED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    Unsubscribed,
    TooSlow,
    Unknown,
}

/// Content of an ENDED, the last packet of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndedPacket<'a> {
    pub(crate) number: u32,
    pub(crate) reason: EndReason,
    /// Messages neither delivered nor reported as missing before.
    pub(crate) missing: u64,
    pub(crate) text: &'a str,
}

impl<'a> EndedPacket<'a> {
    pub(crate) fn read(content: &'a [u8]) -> Result<Self, MalformedPacket> {
        let mut reader = ContentReader(content);
        let number = reader.u32()?;
        let reason = match reader.u8()? {
            0 => EndReason::Unsubscribed,
            1 => EndReason::TooSlow,
            // Later versions of the protocol may add reasons.
            _ => EndReason::Unknown,
        };
        let missing = u64::from_be_bytes(reader.array()?);
        let text = str::from_utf8(reader.0).map_err(|_| MalformedPacket("a text is not UTF-8"))?;
        Ok(Self { number, reason, missing, text })
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut content = Vec::new();
        content.put_u32(self.number);
        content.push(match self.reason {
            EndReason::Unsubscribed => 0,
            EndReason::TooSlow => 1,
            EndReason::Unknown => u8::MAX,
        });
        content.put_u64(self.missing);
        content.extend_from_slice(self.text.as_bytes());
        content
    }
}

/// Reads a MISSING: the number of the subscription and the count of messages.
pub(crate) fn read_missing(content: &[u8]) -> Result<(u32, u64), MalformedPacket> {
    let mut reader = ContentReader(content);
    Ok((reader.u32()?, u64::from_be_bytes(reader.array()?)))
}

pub(crate) fn write_missing(number: u32, count: u64) -> Vec<u8> {
    let mut content = number.to_be_bytes().to_vec();
    content.put_u64(count);
    content
}

/// Reads a CREDIT: the number of the subscription and the bytes.
pub(crate) fn read_credit(content: &[u8]) -> Result<(u32, u32), MalformedPacket> {
    let mut reader = ContentReader(content);
    Ok((reader.u32()?, reader.u32()?))
}

pub(crate) fn write_credit(number: u32, bytes: u32) -> [u8; 8] {
    let mut content = [0; 8];
    content[..4].copy_from_slice(&number.to_be_bytes());
    content[4..].copy_from_slice(&bytes.to_be_bytes());
    content
}

/// Reads a SUBSCRIBED, UNSUBSCRIBE, PUBLISHED or ALLOW: a single number.
pub(crate) fn read_number(content: &[u8]) -> Result<u32, MalformedPacket> {
    ContentReader(content).u32()
}

/// Reads a HELLO: the version.
pub(crate) fn read_hello(content: &[u8]) -> Result<u8, MalformedPacket> {
    ContentReader(content).u8()
}

/// Reads a WELCOME: the version and the window for publishing.
pub(crate) fn read_welcome(content: &[u8]) -> Result<(u8, u32), MalformedPacket> {
    let mut reader = ContentReader(content);
    Ok((reader.u8()?, reader.u32()?))
}

pub(crate) fn write_welcome(window: u32) -> Vec<u8> {
    let mut content = vec![VERSION];
    content.put_u32(window);
    content
}

/// Reads a REFUSED: the kind of the refused packet and the reason.
pub(crate) fn read_refused(content: &[u8]) -> Result<(Option<PacketKind>, Refusal), MalformedPacket> {
    let mut reader = ContentReader(content);
    let kind = KINDS.get(usize::from(reader.u8()?)).copied();
    let code = match reader.u8()? {
        0 => RefusalCode::Malformed,
        1 => RefusalCode::Denied,
        2 => RefusalCode::LimitReached,
        3 => RefusalCode::ShuttingDown,
        _ => RefusalCode::Unknown,
    };
    let text = str::from_utf8(reader.0).map_err(|_| MalformedPacket("a text is not UTF-8"))?;
    Ok((kind, Refusal::new(code, text)))
}

pub(crate) fn write_refused(kind: PacketKind, refusal: &Refusal) -> Vec<u8> {
    let mut content = vec![kind as u8];
    content.push(match refusal.code {
        RefusalCode::Malformed => 0,
        RefusalCode::Denied => 1,
        RefusalCode::LimitReached => 2,
        RefusalCode::ShuttingDown => 3,
        RefusalCode::Unknown => u8::MAX,
    });
    content.extend_from_slice(refusal.text.as_bytes());
    content
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[test]
    fn packets_round_trip() {
        let subscribe = SubscribePacket { policy: Policy::Block, window: 70_000, slot: 3, pattern: "a.*", group: "g" };
        assert_eq!(SubscribePacket::read(&subscribe.write()), Ok(subscribe));
        for (number, policy) in (0..).zip(POLICIES) {
            assert_eq!(SubscribePacket { policy, ..subscribe }.write()[0], number);
        }
        let ended = EndedPacket { number: 9, reason: EndReason::TooSlow, missing: 1 << 40, text: "too slow" };
        assert_eq!(EndedPacket::read(&ended.write()), Ok(ended));
        assert_eq!(read_missing(&write_missing(7, 1 << 33)), Ok((7, 1 << 33)));
        assert_eq!(read_credit(&write_credit(7, 8)), Ok((7, 8)));
        assert_eq!(read_welcome(&write_welcome(5)), Ok((VERSION, 5)));
        let refusal = Refusal::new(RefusalCode::Denied, "no");
        assert_eq!(
            read_refused(&write_refused(PacketKind::Publish, &refusal)),
            Ok((Some(PacketKind::Publish), refusal))
        );
    }

    #[test]
    fn a_message_is_a_publication_after_a_slot_number() {
        let mut content = 5_u32.to_be_bytes().to_vec();
        write_publish(RETAIN | FORWARDED, "a.b", Some("r.1"), &mut content);
        content.extend_from_slice(b"payload");
        let (number, message) = read_message(&content.clone().into()).expect("it is whole");
        assert_eq!((number, &*message.subject), (5, "a.b"));
        assert!(message.is_retained && message.is_forwarded);
        assert_eq!((message.reply.as_deref(), &*message.payload), (Some("r.1"), &b"payload"[..]));
        let published = PublishPacket::read(&content[4..]).expect("it is whole");
        assert_eq!(published.subjects(&content[4..]), b"\x03a.b\x03r.1");
    }

    #[test]
    fn every_kind_has_an_operation_below_the_highest_base() {
        for (index, kind) in KINDS.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
            assert_eq!(OperationBase::new(BASE).kind(OperationBase::new(BASE).operation(kind)), Some(kind));
        }
        let is_good = |number| OperationBase::new(number).check().is_ok();
        assert!(is_good(10) && is_good(BASE) && is_good(65_523));
        assert!(!is_good(9) && !is_good(65_524) && !is_good(u16::MAX));
        let operation = |number| Operation::new(number).expect("it is not reserved");
        assert_eq!(OperationBase::new(7000).kind(operation(6999)), None);
        assert_eq!(OperationBase::new(7000).kind(operation(7013)), None);
    }

    proptest! {
        #[test]
        fn arbitrary_content_is_decoded_or_rejected(content in vec(any::<u8>(), 0..80)) {
            let _ = (PublishPacket::read(&content), SubscribePacket::read(&content), EndedPacket::read(&content));
            let _ = (read_message(&content.clone().into()), read_refused(&content), read_welcome(&content));
            let _ = (read_missing(&content), read_credit(&content), read_number(&content), read_hello(&content));
        }

        #[test]
        fn truncated_packets_are_rejected(at in 0_usize..100) {
            let mut content = 5_u32.to_be_bytes().to_vec();
            write_publish(0, "a.b", Some("r.1"), &mut content);
            let end = at % content.len();
            prop_assert!(read_message(&content[..end].to_vec().into()).is_err());
            let content = SubscribePacket { policy: Policy::Block, window: 1, slot: 0, pattern: "a.*", group: "g" }.write();
            prop_assert!(SubscribePacket::read(&content[..at % content.len()]).is_err());
        }
    }
}
