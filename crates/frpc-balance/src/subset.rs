//! The part of a large set of endpoints for one client.

use crate::pick::mix;

/// Returns at most `len_max` of the endpoints, in their order.
///
/// Clients with different seeds use different parts, so together they use all endpoints evenly (rendezvous hashing).
/// A new or vanished endpoint changes at most one other member of each part.
pub fn random_subset<T>(endpoints: Vec<T>, len_max: usize, seed: u64, hash: impl Fn(&T) -> u64) -> Vec<T> {
    if endpoints.len() <= len_max {
        return endpoints;
    }
    let mut ranks: Vec<_> = endpoints.iter().map(|endpoint| mix(hash(endpoint) ^ seed)).collect();
    ranks.sort_unstable();
    let limit = ranks[len_max];
    endpoints.into_iter().filter(|endpoint| mix(hash(endpoint) ^ seed) < limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_use_different_parts_of_a_large_set() {
        let mut uses = [0; 100];
        for client in 0..1_000 {
            let part = random_subset((0..100_usize).collect(), 20, mix(client), |endpoint| mix(*endpoint as u64));
            assert_eq!(part.len(), 20);
            part.into_iter().for_each(|endpoint| uses[endpoint] += 1);
        }
        assert!(uses.iter().all(|uses| (140..260).contains(uses)), "{uses:?}");
    }

    #[test]
    fn one_more_endpoint_changes_at_most_one_other() {
        let part = |len: u64| random_subset((0..len).collect(), 20, 7, |endpoint| mix(*endpoint));
        for len in 20..60 {
            let (before, after) = (part(len), part(len + 1));
            assert!(before.iter().filter(|endpoint| !after.contains(endpoint)).count() <= 1);
        }
        assert_eq!(part(5), [0, 1, 2, 3, 4]);
    }
}
