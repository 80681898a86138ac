//! Divides an interval among spans that overlap. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::Doing;

/// How specific a claim is: of those that hold at the same time, the first of these counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// A wait for others within an attempt.
    Wait,
    /// An attempt to schedule the Pod.
    Attempt,
    /// A call of the container runtime.
    Call,
    /// A step of the kubelet.
    Step,
    /// The wait for the client's rate limiter, within the creation.
    Limiter,
    /// The request that created the Pod.
    Creation,
    /// A wait with a name between two steps of the kubelet.
    Gap,
    /// A wait of which less is known.
    Wider,
    /// The rest of what the kubelet does.
    Node,
    /// A stage of the lifecycle, by the Pod's status.
    Stage,
}

/// What time counts for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) doing: Doing,
    pub(super) what: String,
}

/// Something that took time, if nothing more specific did.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claim {
    pub(super) rank: Rank,
    /// Start and end, nanoseconds since the Unix epoch.
    pub(super) time: [u64; 2],
    pub(super) key: Key,
}

/// How long each claim counts in this interval, nanoseconds. Together they are as long as the interval: where there is no claim, it counts
/// for [`Doing::Unknown`]. Neither the order of the claims nor one that is there twice changes anything.
pub(super) fn divided([start, end]: [u64; 2], mut claims: Vec<Claim>) -> BTreeMap<Key, u64> {
    claims.sort();
    let mut edges: Vec<(u64, usize)> = Vec::with_capacity(2 * claims.len() + 1);
    for (number, claim) in claims.iter().enumerate() {
        let [from, to] = claim.time.map(|time| time.clamp(start, end.max(start)));
        if from < to {
            edges.extend([(from, number), (to, number)]);
        }
    }
    edges.sort_unstable();
    edges.push((end, claims.len()));
    let mut divided = BTreeMap::new();
    // By number they are in the order of their ranks.
    let mut open = BTreeSet::new();
    let mut since = start;
    for (time, number) in edges {
        if time > since {
            let first = open.first().and_then(|first: &usize| claims.get(*first));
            let key =
                first.map_or(Key { doing: Doing::Unknown, what: String::new() }, |claim| claim.key.clone());
            *divided.entry(key).or_default() += time - since;
            since = time;
        }
        if !open.remove(&number) {
            open.insert(number);
        }
    }
    divided
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RANKS: [Rank; 3] = [Rank::Wait, Rank::Step, Rank::Stage];
    const DOINGS: [Doing; 3] = [Doing::Schedule, Doing::Pull, Doing::Queue];

    fn claim(rank: usize, start: u64, end: u64) -> Claim {
        Claim { rank: RANKS[rank], time: [start, end], key: Key { doing: DOINGS[rank], what: String::new() } }
    }

    fn of(divided: &BTreeMap<Key, u64>, doing: Doing) -> u64 {
        divided.iter().filter(|(key, _)| key.doing == doing).map(|(_, ns)| ns).sum()
    }

    #[test]
    fn time_counts_once_for_the_most_specific_claim() {
        let claims = vec![claim(2, 0, 50), claim(1, 10, 30), claim(1, 20, 40), claim(0, 25, 26)];
        let divided = divided([0, 60], claims);
        let found =
            [Doing::Schedule, Doing::Pull, Doing::Queue, Doing::Unknown].map(|doing| of(&divided, doing));
        assert_eq!(found, [1, 29, 20, 10]);
    }

    #[test]
    fn claims_that_make_no_sense_take_no_time() {
        let claims = vec![claim(0, 9, 3), claim(0, 0, 1), claim(0, 20, u64::MAX), claim(1, 5, 5)];
        assert_eq!(of(&divided([2, 10], claims.clone()), Doing::Unknown), 8);
        assert!(divided([10, 2], claims).is_empty());
    }

    fn claims() -> impl Strategy<Value = Vec<Claim>> {
        let one = (0..3_usize, 0..100_u64, 0..40_u64)
            .prop_map(|(rank, start, long)| claim(rank, start, start + long));
        proptest::collection::vec(one, 0..12)
    }

    proptest! {
        #[test]
        fn the_parts_are_as_long_as_the_whole(claims in claims(), start in 0..60_u64, long in 0..80_u64) {
            let all: u64 = divided([start, start + long], claims).values().sum();
            prop_assert_eq!(all, long);
        }

        #[test]
        fn the_most_specific_claims_count_for_as_long_as_any_of_them_holds(claims in claims()) {
            let holds = |now| claims.iter().any(|claim| claim.rank == Rank::Wait && claim.time[0] <= now && now < claim.time[1]);
            let union = (0..200).filter(|now| holds(*now)).count() as u64;
            prop_assert_eq!(of(&divided([0, 200], claims.clone()), Doing::Schedule), union);
        }

        #[test]
        fn no_order_and_no_repetition_of_claims_matters(claims in claims(), first in 0..12_usize) {
            let mut other = claims.clone();
            other.rotate_left(first.min(claims.len()));
            other.extend(claims.iter().take(first).cloned());
            prop_assert_eq!(divided([10, 90], claims), divided([10, 90], other));
        }
    }
}
