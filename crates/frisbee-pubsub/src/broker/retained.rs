//! Retained values: the last message of each subject published with the retain flag.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::{
    Pattern, Refusal, RefusalCode,
    broker::limits::BrokerLimits,
    wire::{ACKNOWLEDGE, MESSAGE_COST, PublishPacket, RETAIN},
};

/// Retained values by subject. Each is stored as the part of a MESSAGE after the subscription number.
#[derive(Debug, Default)]
pub(super) struct RetainedValues {
    values: BTreeMap<Box<str>, Bytes>,
    len: usize,
}

impl RetainedValues {
    /// Retains the content of a PUBLISH as the value of its subject. An empty payload removes the value.
    pub(super) fn set(
        &mut self,
        limits: &BrokerLimits,
        subject: &str,
        published: &PublishPacket<'_>,
        content: &[u8],
    ) -> Result<(), Refusal> {
        let before = self.values.get(subject).map_or(0, cost);
        if published.payload.is_empty() {
            self.values.remove(subject);
            self.len -= before;
            return Ok(());
        }
        let refused = |text| Err(Refusal::new(RefusalCode::LimitReached, text));
        if self.len - before + content.len() + MESSAGE_COST > limits.retained_len_max {
            return refused("the retained values have reached their limit of bytes (retained_len_max)");
        }
        if before == 0 && self.values.len() >= limits.retained_max {
            return refused("the broker has reached its limit of retained values (retained_max)");
        }
        let mut value = content.to_vec();
        value[0] = (value[0] & !ACKNOWLEDGE) | RETAIN;
        self.len = self.len - before + value.len() + MESSAGE_COST;
        self.values.insert(subject.into(), value.into());
        Ok(())
    }

    /// Returns the values of all subjects matching a pattern.
    pub(super) fn matching<'a>(&'a self, pattern: &'a Pattern) -> impl Iterator<Item = &'a Bytes> {
        // A matching subject starts with the text of the pattern before its first wildcard, so search only that range.
        let fixed = pattern.as_str().find(['*', '>']).map_or(pattern.as_str(), |at| &pattern.as_str()[..at]);
        let from = self.values.range::<str, _>((std::ops::Bound::Included(fixed), std::ops::Bound::Unbounded));
        from.take_while(move |(subject, _)| subject.starts_with(fixed))
            .filter(|(subject, _)| pattern.matches(subject))
            .map(|(_, value)| value)
    }

    /// Returns the number of subjects with a value.
    pub(super) fn count(&self) -> usize {
        self.values.len()
    }
}

fn cost(value: &Bytes) -> usize {
    value.len() + MESSAGE_COST
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::write_publish;

    fn set(retained: &mut RetainedValues, limits: &BrokerLimits, subject: &str, payload: &str) -> bool {
        let mut content = Vec::new();
        write_publish(RETAIN, subject, None, &mut content);
        content.extend_from_slice(payload.as_bytes());
        let published = PublishPacket::read(&content).expect("it is whole");
        retained.set(limits, subject, &published, &content).is_ok()
    }

    fn found(retained: &RetainedValues, pattern: &str) -> Vec<String> {
        let pattern = Pattern::new(pattern).expect("it is good");
        let payload = |value: &Bytes| {
            String::from_utf8_lossy(PublishPacket::read(value).expect("it is whole").payload).into_owned()
        };
        retained.matching(&pattern).map(payload).collect()
    }

    #[test]
    fn each_subject_has_its_last_value() {
        let (mut retained, limits) = (RetainedValues::default(), BrokerLimits::default());
        for (subject, payload) in [("a.x", "1"), ("a.y", "2"), ("ab", "3"), ("a.x", "4"), ("a.y.z", "5")] {
            assert!(set(&mut retained, &limits, subject, payload));
        }
        assert_eq!(found(&retained, "a.*"), ["4", "2"]);
        assert_eq!(found(&retained, "a.>"), ["4", "2", "5"]);
        assert_eq!(found(&retained, ">"), ["4", "2", "5", "3"]);
        assert_eq!(found(&retained, "ab"), ["3"]);
        assert_eq!(found(&retained, "a"), [""; 0]);
        assert!(set(&mut retained, &limits, "a.x", ""), "which removes it");
        assert_eq!((found(&retained, "a.*"), retained.count()), (vec!["2".to_owned()], 3));
    }

    #[test]
    fn retained_values_are_bounded_in_number_and_bytes() {
        let limits = BrokerLimits { retained_max: 2, retained_len_max: 200, ..BrokerLimits::default() };
        let mut retained = RetainedValues::default();
        assert!(set(&mut retained, &limits, "a", "1") && set(&mut retained, &limits, "b", "1"));
        assert!(!set(&mut retained, &limits, "c", "1"), "it is one too many");
        assert!(!set(&mut retained, &limits, "a", &"x".repeat(100)), "it is too long");
        assert_eq!(found(&retained, "a"), ["1"], "and leaves the one before");
        assert!(set(&mut retained, &limits, "b", "") && set(&mut retained, &limits, "c", "1"));
        for subject in ["a", "c"] {
            assert!(set(&mut retained, &limits, subject, ""));
        }
        assert_eq!((retained.len, retained.count()), (0, 0));
    }
}
