//! Queue groups: each message goes to one of the members.

use std::sync::Arc;

use frisbee::Content;

use crate::broker::{
    hold::Account,
    registry::Group,
    subscriber::{Subscriber, Taken, Verdict},
};

/// Gives a message to the first member that takes it now. Where none does, it waits for the one whose turn it is. Returns whether
/// there is any. The work does not grow with the number of members that take nothing.
pub(super) fn deliver_to_one(
    group: &Group,
    account: &Arc<Account>,
    message: impl Fn(u32) -> Content,
    too_slow: &mut Vec<(Arc<Subscriber>, u64)>,
) -> bool {
    let mut refusals = 0;
    while refusals < REFUSALS_MAX {
        let Some(member) = group.ready_in_turn() else { break };
        match member.take(&message(member.number)) {
            Taken::Yes => return true,
            Taken::NotNow => group.remove_ready(&member),
            Taken::NotThis => refusals += 1,
        }
    }
    for _ in 0..REFUSALS_MAX {
        let Some(member) = group.in_turn() else { return false };
        match member.offer_one(&message(member.number), account) {
            // It is about to be removed.
            Verdict::HasEnded => continue,
            Verdict::TooSlow(missing) => too_slow.push((member, missing)),
            Verdict::GoesOn => {}
        }
        return true;
    }
    false
}

/// Members that are asked to take a message and do not, for another reason than that they have no room.
const REFUSALS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::broker::{Limits, registry::Registry, testing::Bench};

    #[tokio::test]
    async fn a_message_for_a_group_costs_the_same_however_many_of_its_members_are_full() {
        let (bench, mut registry) = (Bench::new(Limits::default()).await, Registry::default());
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
