//! Queue groups: each message goes to one member.

use std::sync::Arc;

use frisbee::Content;

use crate::broker::{
    hold::PublisherAccount,
    registry::QueueGroup,
    subscriber::{OfferOutcome, Subscriber, TakeOutcome},
};

/// Delivers a message to the first member able to take it now, or else queues it for the next member in turn.
///
/// Returns `false` if the group has no members left. The cost does not grow with the number of full members.
pub(super) fn deliver_to_one(
    group: &QueueGroup,
    account: &Arc<PublisherAccount>,
    message: impl Fn(u32) -> Content,
    too_slow: &mut Vec<(Arc<Subscriber>, u64)>,
) -> bool {
    let mut refusals = 0;
    // Members without room leave the ready list, so every round makes progress.
    while refusals < REFUSALS_MAX {
        let Some(member) = group.ready_in_turn() else { break };
        match member.take(&message(member.number)) {
            TakeOutcome::Yes => return true,
            TakeOutcome::NotNow => group.remove_ready(&member),
            TakeOutcome::NotThis => refusals += 1,
        }
    }
    for _ in 0..REFUSALS_MAX {
        let Some(member) = group.in_turn() else { return false };
        match member.offer_one(&message(member.number), account) {
            // The member has ended and is about to leave the group. Try the next one.
            OfferOutcome::HasEnded => continue,
            OfferOutcome::TooSlow(missing) => too_slow.push((member, missing)),
            OfferOutcome::GoesOn => {}
        }
        return true;
    }
    false
}

/// Maximum number of members tried in vain per message. Members without room are not counted, because they leave the
/// ready list.
const REFUSALS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::broker::{BrokerLimits, registry::PatternRegistry, testing::Bench};

    #[tokio::test]
    async fn group_delivery_cost_is_independent_of_full_members() {
        let (bench, mut registry) = (Bench::new(BrokerLimits::default()).await, PatternRegistry::default());
        let members: Vec<_> = (0..MEMBERS).map(|_| bench.join(&mut registry, "jobs", "workers")).collect();
        let group = registry.group_of(&members[0]).expect("it has members");
        let (made, mut too_slow) = (Cell::new(0), Vec::new());
        let message = |number: u32| {
            made.set(made.get() + 1);
            number.to_be_bytes().to_vec().into()
        };
        let mut deliver = |count: usize| {
            made.set(0);
            for _ in 0..count {
                assert!(deliver_to_one(&group, &bench.peer.account, message, &mut too_slow));
            }
            made.get()
        };
        assert_eq!(deliver(MEMBERS), MEMBERS, "each has room for one");
        assert_eq!(deliver(1), MEMBERS + 1, "each is found out to be full once");
        assert_eq!(deliver(500), 500);
        members[7].give_credit(1000);
        assert_eq!(deliver(1), 1, "one that takes messages again comes back");
    }

    const MEMBERS: usize = 100;
}
